"""The published studies. Each is a function that yields its runs in their published order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from unbraid.methods import (
    CVITAE,
    DIPVAEI,
    DIPVAEII,
    PMP,
    UVITAE,
    VAE,
    AdaGVAE,
    AdaMLVAE,
    AnnealedVAE,
    BetaTCVAE,
    BetaVAE,
    DiffusionVAE,
    FactorVAE,
)
from unbraid.spaces import Sphere
from unbraid.studies.demystifying import demystifying2021
from unbraid.studies.planned import PlannedRun, Setting, Study, grid, replace_spec, sweep

SEVEN_DATASETS = ("dsprites", "color_dsprites", "noisy_dsprites", "scream_dsprites", "smallnorb", "cars3d", "shapes3d")
BETAS = (1.0, 2.0, 4.0, 6.0, 8.0, 16.0)


def locatello_settings() -> list[Setting]:
    """36 settings of the large study: six methods with six strengths each, in the published order."""
    weights = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
    return [
        *sweep(BetaVAE, "beta", BETAS),
        *sweep(FactorVAE, "gamma", (10.0, 20.0, 30.0, 40.0, 50.0, 100.0)),
        *sweep(DIPVAEI, "lambda_od", weights),
        *sweep(DIPVAEII, "lambda_od", weights),
        *sweep(BetaTCVAE, "beta", (1.0, 2.0, 4.0, 6.0, 8.0, 10.0)),
        *sweep(AnnealedVAE, "c_max", (5.0, 10.0, 25.0, 50.0, 75.0, 100.0)),
    ]


def locatello2019() -> Iterator[PlannedRun]:
    """12,600 models: 7 datasets x 36 settings x 50 seeds, numbered as published.

    dSprites is the regenerated dataset. 300,000 steps of batch 64, Adam at learning rate 1e-4, 10 latents.
    Reference: Locatello et al. (2019), arXiv:1811.12359; the order of the sweep is that of its public code.
    """
    yield from grid(SEVEN_DATASETS, locatello_settings(), 50)


def locatello2020_weak() -> Iterator[PlannedRun]:
    """Ada-GVAE, Ada-ML-VAE and beta-VAE: 7 datasets x 18 settings x 5 seeds.

    Pairs differ in one or a few factors (k = 0 draws their number at random). The strengths are those of the paper.
    The rest of its sweep is not published in its code.
    Reference: Locatello et al. (2020), arXiv:2002.02886.
    """
    settings = [*sweep(BetaVAE, "beta", BETAS), *sweep(AdaGVAE, "beta", BETAS), *sweep(AdaMLVAE, "beta", BETAS)]
    yield from grid(SEVEN_DATASETS, settings, 5)


def pmp2021() -> Iterator[PlannedRun]:
    """PMP, Ada-GVAE, and PMP without each of its losses: 4 datasets x 6 settings x 5 seeds, 16,500 steps.

    Learning rate 5e-4. The strength is the weight of the consistency term, or 0 for methods without it.
    Reference: Fumero et al. (2021), arXiv:2103.01638.
    """
    terms = ("distance", "sparsity", "consistency", "regularisation")
    ablations: list[dict[str, Any]] = [{}, *({term: 0.0} for term in terms)]
    methods = [PMP(**weights) for weights in ablations]
    settings = [Setting(m, float(m.consistency), level) for level, m in enumerate(methods)]
    data = ("dsprites", "shapes3d", "cars3d", "smallnorb")
    yield from grid(data, [Setting(AdaGVAE(), 0.0, 0), *settings], 5, steps=16_500, learning_rate=5e-4)


def diffusion2019() -> Iterator[PlannedRun]:
    """Diffusion VAEs on the 10-sphere and the 20-sphere with three weights and capacity annealing, 5 seeds each.

    L = 5. The capacity rises from the smallest possible KL divergence to 15 nats over the first third of 300,000
    steps. The data are those of the challenge (MPI3D) and need their files. The report gives the annealing in epochs
    without their length.
    Reference: Perez Rey (2019), NeurIPS 2019 Disentanglement Challenge.
    """
    index = 0
    for name in ("mpi3d_toy", "mpi3d_realistic", "mpi3d_real"):
        for latents in (11, 21):
            low, _ = Sphere(latents).kl_range(-10.0, -1.0)
            fixed = {"walk_steps": 5, "iteration_threshold": 100_000, "c_min": round(low + 0.001, 3), "c_max": 15.0}
            for planned in grid([name], sweep(DiffusionVAE, "beta", (1.0, 2.5, 10.0), **fixed), 5, latents=latents):
                yield PlannedRun(index, planned.spec, planned.strength, planned.level)
                index += 1


def vitae_settings(net: str, **warps: Any) -> list[Setting]:
    """Four VAEs with the network `net`, and two VITAEs with its half-size variant; 4 latents, in VITAE 2 + 2.

    The supplement gives no strengths. We use beta 4 for the beta-VAE, beta 6 for the beta-TCVAE, and 10 for both
    weights of DIP-VAE-II.

    Args:
        net: The name of the network.
        **warps: Fields of the VITAE methods, such as `transform`.
    """
    whole, half = {"net": net, "latents": 4}, {"net": f"{net}_half", "latents": 4}
    return [
        Setting(VAE(), 0.0, 0, whole),
        Setting(BetaVAE(beta=4.0), 4.0, 0, whole),
        Setting(BetaTCVAE(beta=6.0), 6.0, 0, whole),
        Setting(DIPVAEII(lambda_od=10.0), 10.0, 0, whole),
        Setting(UVITAE(**warps), 0.0, 0, half),
        Setting(CVITAE(**warps), 0.0, 0, half),
    ]


def vitae_mnist() -> Iterator[PlannedRun]:
    """VITAE and VAEs on moved digits, 6 settings x 5 seeds: affine flows, Bernoulli pixels, 2,000 epochs.

    Batch 512, Adam at learning rate 1e-4. Digits are rotated by up to 20 degrees and shifted by up to 10 %. Each digit
    is moved by a fixed amount; the authors' code moves it by a new amount each time. Deviations in all three VITAE
    studies: the strengths are our choice (`vitae_settings`), and the weight of the KL divergence rises over half the
    training in VITAE only, not in the VAEs.
    Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881, supplement, section 2.
    """
    data, settings = "mnist?turn=20&shift=10&pad=0&part=train", vitae_settings("vitae_mlp")
    yield from grid([data], settings, 5, steps=2_000 * 60_000 // 512, batch=512)


def vitae_bodies() -> Iterator[PlannedRun]:
    """VITAE and VAEs on images of bodies, 6 settings x 5 seeds: CPAB on 2 x 4 rectangles, 5,000 epochs.

    Batch 256, Adam at learning rate 1e-4, normal pixels of variance .1. Deviations: those of `vitae_mnist`; the freely
    available bodies of `body_images`; 64x64 instead of 400x200 pixels (``--data "body_images?size=400x200"`` has the
    latter); 20 integration steps of the flow.
    Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881, supplement, section 2.
    """
    settings = vitae_settings("vitae_bodies", transform="cpab", nx=2, ny=4)
    yield from grid(["body_images"], settings, 5, steps=5_000 * 10_000 // 256, batch=256, likelihood="normal")


def vitae_celeba() -> Iterator[PlannedRun]:
    """VITAE and VAEs on faces of 128x128 pixels, 6 settings x 5 seeds: CPAB on 4 x 4 rectangles, 5,000 epochs.

    Batch 256, Adam at learning rate 1e-4, normal pixels of variance .1, convolutions. Deviations: those of
    `vitae_mnist`; the VAEs have 4 latents, whereas the paper's table gives every encoder 2; decoders end in a linear
    layer, not in a sigmoid; 20 integration steps of the flow.
    Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881, supplement, section 2.
    """
    settings = vitae_settings("vitae_conv", transform="cpab", nx=4, ny=4)
    yield from grid(["celeba?size=128"], settings, 5, steps=5_000 * 202_599 // 256, batch=256, likelihood="normal")


def small() -> Iterator[PlannedRun]:
    """72 short runs for trying out every analysis in about ten minutes on two cores. The results are not evidence.

    The six methods of the large study at its first, third and last strength with 2 seeds, on the built-in sprites and
    the toy data; 600 steps of batch 64 at learning rate 1e-3, 6 latents, two hidden layers of 256 units instead of
    convolutions.
    Reference: Locatello et al. (2019), arXiv:1811.12359.
    """
    settings = [setting for setting in locatello_settings() if setting.level in (0, 2, 5)]
    fixed: dict[str, Any] = {"learning_rate": 1e-3, "latents": 6, "net": "mlp"}
    index = 0
    for name, likelihood in (("sprites", "bernoulli"), ("toy", "gaussian")):
        for planned in grid([name], settings, 2, likelihood=likelihood, **fixed):
            yield replace_spec(PlannedRun(index, planned.spec, planned.strength, planned.level), steps=600)
            index += 1


STUDIES: dict[str, Study] = {
    "locatello2019": locatello2019,
    "locatello2020_weak": locatello2020_weak,
    "pmp2021": pmp2021,
    "diffusion2019": diffusion2019,
    "demystifying2021": demystifying2021,
    "small": small,
    "vitae_mnist": vitae_mnist,
    "vitae_bodies": vitae_bodies,
    "vitae_celeba": vitae_celeba,
}
