"""The studies of VITAE: its comparison with VAEs on three datasets, and the stability of affine transformations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from unbraid.methods import CVITAE, DIPVAEII, UVITAE, VAE, BetaTCVAE, BetaVAE
from unbraid.studies.planned import PlannedRun, Setting, grid

WARMUP = 0.5  # fraction of the training over which the multiplier of the KL term rises from 0 to 1, in all models
DIGITS = "mnist?turn=20&shift=10&pad=0&part=train"
DIGITS_STEPS, DIGITS_BATCH = 2_000 * 60_000 // 512, 512
LEARNING_RATES = (1e-4, 1e-3, 1e-2, 1e-1)
PARAMETRISATIONS: dict[str, dict[str, Any]] = {
    "affine": {"transform": "affine"},
    "affine_decomposed": {"transform": "affine_decomposed"},
    "affine_diffeomorphic": {"transform": "affine_diffeomorphic", "bound": "none"},
}  # fields of C-VITAE for equations 1, 2 and 3 of the supplement


def vitae_settings(net: str, **warps: Any) -> list[Setting]:
    """Return the settings of four VAEs with the network `net`, and of two VITAEs with the half-size variant of `net`.

    All models have 4 latents. In VITAE, 2 latents represent appearance and 2 represent perspective. In all models, the
    KL term is multiplied by a number that rises from 0 to 1 over the first half of the training.

    The supplement gives no strengths. We use beta 4 for the beta-VAE, beta 6 for the beta-TCVAE, and 10 for both
    weights of DIP-VAE-II.

    Args:
        net: The name of the network.
        **warps: Fields of the VITAE methods, such as `transform`.
    """
    whole, half = {"net": net, "latents": 4}, {"net": f"{net}_half", "latents": 4}
    return [
        Setting(VAE(warmup=WARMUP), 0.0, 0, whole),
        Setting(BetaVAE(beta=4.0, warmup=WARMUP), 4.0, 0, whole),
        Setting(BetaTCVAE(beta=6.0, warmup=WARMUP), 6.0, 0, whole),
        Setting(DIPVAEII(lambda_od=10.0, warmup=WARMUP), 10.0, 0, whole),
        Setting(UVITAE(warmup=WARMUP, **warps), 0.0, 0, half),
        Setting(CVITAE(warmup=WARMUP, **warps), 0.0, 0, half),
    ]


def vitae_mnist() -> Iterator[PlannedRun]:
    """Yield 30 runs of VITAE and VAEs on moved digits: 6 settings x 5 seeds.

    VITAE uses affine flows. Pixels have Bernoulli likelihoods. Each run is trained for 2,000 epochs with batches of
    512, by Adam at learning rate 1e-4. The KL term is multiplied by a number that rises from 0 to 1 over the first half
    of the training. Digits are rotated by up to 20 degrees and shifted by up to 10 %. Each digit has one rotation and
    shift for the whole training, whereas the authors' code draws new ones each time.

    Deviations in all VITAE studies: The strengths are our choice (see `vitae_settings`).
    Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881, supplement, section 2 and table 1.
    """
    yield from grid([DIGITS], vitae_settings("vitae_mlp"), 5, steps=DIGITS_STEPS, batch=DIGITS_BATCH)


def vitae_bodies() -> Iterator[PlannedRun]:
    """Yield 30 runs of VITAE and VAEs on images of bodies: 6 settings x 5 seeds.

    VITAE uses CPAB flows on 2 x 4 rectangles. Pixels have normal likelihoods of variance 0.1. Each run is trained for
    5,000 epochs with batches of 256, by Adam at learning rate 1e-4. The hidden layers of all decoders of VITAE have 64
    and 128 units, half as many as in the VAEs.

    Deviations: those of `vitae_mnist`. The bodies are those of the freely available dataset `body_images`. Images have
    64x64 instead of 400x200 pixels. The option ``--data "body_images?size=400x200"`` restores the size of the paper.
    Flows are integrated in 20 steps.
    Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881, supplement, section 2 and table 3.
    """
    hidden = {"perspective_hidden1": 64, "perspective_hidden2": 128}
    settings = vitae_settings("vitae_bodies", transform="cpab", nx=2, ny=4, **hidden)
    yield from grid(["body_images"], settings, 5, steps=5_000 * 10_000 // 256, batch=256, likelihood="normal")


def vitae_celeba() -> Iterator[PlannedRun]:
    """Yield 30 runs of VITAE and VAEs on faces of 128x128 pixels: 6 settings x 5 seeds.

    VITAE uses CPAB flows on 4 x 4 rectangles. Networks are convolutional, and decoders end in a sigmoid. Pixels have
    normal likelihoods of variance 0.1. Each run is trained for 5,000 epochs with batches of 256, by Adam at learning
    rate 1e-4.

    Deviations: those of `vitae_mnist`. The VAEs have 4 latents, whereas in the paper's table every encoder has 2. The
    supplement does not give the decoder of the perspective for faces, so we use that of `vitae_mnist`. Flows are
    integrated in 20 steps.
    Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881, supplement, section 2 and table 4.
    """
    settings = vitae_settings("vitae_celeba", transform="cpab", nx=4, ny=4)
    yield from grid(["celeba?size=128"], settings, 5, steps=5_000 * 202_599 // 256, batch=256, likelihood="normal")


def vitae_stability() -> Iterator[PlannedRun]:
    """Yield 60 runs of C-VITAE on moved digits: 3 parametrisations of affine maps x 4 learning rates x 5 seeds.

    The parametrisations are variants. The parameters of "affine" are the entries of a matrix (equation 1), those of
    "affine_decomposed" are rotation, shear, scales and shift (equation 2), and those of "affine_diffeomorphic" are the
    unbounded entries of a matrix whose exponential is the map (equation 3). The strength of a run is its learning rate,
    1e-4 to 1e-1. Everything else is as in `vitae_mnist`. Runs at high learning rates are expected to diverge. The
    analysis `stability` draws the figure.

    Deviations: the supplement does not give the number of seeds and epochs, so they are those of `vitae_mnist`.
    Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881, supplement, section 3 and figure 1.
    """
    half = {"net": "vitae_mlp_half", "latents": 4}
    settings = [
        Setting(CVITAE(warmup=WARMUP, **fields), rate, level, {**half, "learning_rate": rate}, name)
        for name, fields in PARAMETRISATIONS.items()
        for level, rate in enumerate(LEARNING_RATES)
    ]
    yield from grid([DIGITS], settings, 5, steps=DIGITS_STEPS, batch=DIGITS_BATCH)
