"""The studies that can be run by name, most of them published. Each is a function that yields its runs in order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from unbraid.data.readers.smallnorb import GRID_NAME
from unbraid.methods import (
    DIPVAEI,
    DIPVAEII,
    AdaGVAE,
    AdaMLVAE,
    AnnealedVAE,
    BetaTCVAE,
    BetaVAE,
    DiffusionVAE,
    FactorVAE,
)
from unbraid.spaces import Sphere
from unbraid.studies.baselines import dubois2019, klindt2021, lin2020
from unbraid.studies.beyond import beyond2026
from unbraid.studies.claims import FACTOR_VAE_STEPS, locatello2020_labels, roth2023
from unbraid.studies.demystifying import demystifying2021
from unbraid.studies.planned import PlannedRun, Setting, Study, grid, number_runs, replace_spec, sweep
from unbraid.studies.pmp import pmp2021, pmp_meshes
from unbraid.studies.quantised import hsu2024
from unbraid.studies.vitae import vitae_bodies, vitae_celeba, vitae_mnist, vitae_stability

SEVEN_DATASETS = ("dsprites", "color_dsprites", "noisy_dsprites", "scream_dsprites", "smallnorb", "cars3d", "shapes3d")
BETAS = (1.0, 2.0, 4.0, 6.0, 8.0, 16.0)


def locatello_settings() -> list[Setting]:
    """Return the 36 settings of `locatello2019`: six methods with six strengths each, in the published order."""
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
    """Yield 12,600 runs: 7 datasets x 36 settings x 50 seeds, numbered as published.

    Each run has 10 latents and is trained for 300,000 steps with batches of 64, by Adam at learning rate 1e-4.
    FactorVAE has only 150,000 steps, because the authors' code counts each of its updates as two steps. dSprites is the
    dataset that unbraid renders, not the published file.
    Reference: Locatello et al. (2019), arXiv:1811.12359; the order of the sweep is that of the authors' code.
    """
    settings = [
        replace(setting, spec={"steps": FACTOR_VAE_STEPS}) if isinstance(setting.method, FactorVAE) else setting
        for setting in locatello_settings()
    ]
    yield from grid(SEVEN_DATASETS, settings, 50)


def locatello2020_weak() -> Iterator[PlannedRun]:
    """Yield 630 runs of Ada-GVAE, Ada-ML-VAE and beta-VAE: 7 datasets x 18 settings x 5 seeds.

    The two examples of a pair differ in one or a few factors. The setting k of the methods for pairs is 0, which draws
    the number of these factors at random. The strengths are those of the paper. The authors' code does not contain the
    other settings of the sweep, so they are those of `locatello2019`.

    Deviations: Small NORB has the instance as a factor, because pairs need a full grid. A batch has 64 images, which
    are 32 pairs for the methods for pairs. The batch size of the authors' code is the number of pairs.
    Reference: Locatello et al. (2020), arXiv:2002.02886.
    """
    settings = [*sweep(BetaVAE, "beta", BETAS), *sweep(AdaGVAE, "beta", BETAS), *sweep(AdaMLVAE, "beta", BETAS)]
    yield from grid([GRID_NAME if name == "smallnorb" else name for name in SEVEN_DATASETS], settings, 5)


def diffusion_settings(latents: int) -> list[Setting]:
    """Return the settings of the diffusion VAE at three strengths, on the sphere in a space of `latents` dimensions."""
    low, _ = Sphere(latents).kl_range(-10.0, -1.0)
    fixed = {"walk_steps": 5, "iteration_threshold": 100_000, "c_min": round(low + 0.001, 3), "c_max": 15.0}
    settings = sweep(DiffusionVAE, "beta", (1.0, 2.5, 10.0), **fixed)
    return [replace(setting, spec={"latents": latents}, variant=f"d = {latents - 1}") for setting in settings]


def diffusion2019() -> Iterator[PlannedRun]:
    """Yield 120 runs of diffusion VAEs: 4 datasets x 2 spheres (dimensions 10 and 20) x 3 values of beta x 5 seeds.

    The random walk has L = 5 steps. The capacity is annealed: it increases from the minimum possible KL divergence to
    15 nats over the first third of 300,000 steps. Pixels have a normal likelihood with identity covariance. The
    dimensions are variants with the names "d = 10" and "d = 20". The datasets are those of the challenge (MPI3D), whose
    files must be downloaded, and Cars3D, the example in the report (see the reference). The duration of the annealing
    in steps is our choice, because the report gives it in epochs without the length of an epoch.

    Deviations: the encoder of the report is a multilayer perceptron of unknown size, and here it is the network of
    `locatello2019`. A step of the random walk has the scale sqrt(t / L), where t is the diffusion time, whereas the
    report prints t. The report starts the capacity at 0 nats, which is below the minimum possible KL divergence.
    Reference: Perez Rey (2019), NeurIPS 2019 Disentanglement Challenge.
    """
    settings = [*diffusion_settings(11), *diffusion_settings(21)]
    yield from grid(("mpi3d_toy", "mpi3d_realistic", "mpi3d_real", "cars3d"), settings, 5, likelihood="gaussian")


def small() -> Iterator[PlannedRun]:
    """Yield 72 short runs to try out every analysis in about ten minutes on two cores. The results are not meaningful.

    The runs are the six methods of `locatello2019` at its first, third and last strength, with 2 seeds, on the built-in
    sprites and the toy data. Each run has 6 latents, two hidden layers of 256 units instead of convolutions, and 600
    steps with batches of 64 at learning rate 1e-3.
    Reference: Locatello et al. (2019), arXiv:1811.12359.
    """
    settings = [setting for setting in locatello_settings() if setting.level in (0, 2, 5)]
    fixed: dict[str, Any] = {"learning_rate": 1e-3, "latents": 6, "net": "mlp"}
    grids = (
        grid([name], settings, 2, likelihood=likelihood, **fixed)
        for name, likelihood in (("sprites", "bernoulli"), ("toy", "gaussian"))
    )
    yield from (replace_spec(run, steps=600) for run in number_runs(itertools.chain.from_iterable(grids)))


STUDIES: dict[str, Study] = {
    "locatello2019": locatello2019,
    "locatello2020_weak": locatello2020_weak,
    "pmp2021": pmp2021,
    "pmp_meshes": pmp_meshes,
    "diffusion2019": diffusion2019,
    "demystifying2021": demystifying2021,
    "beyond2026": beyond2026,
    "lin2020": lin2020,
    "dubois2019": dubois2019,
    "klindt2021": klindt2021,
    "locatello2020_labels": locatello2020_labels,
    "roth2023": roth2023,
    "hsu2024": hsu2024,
    "small": small,
    "vitae_mnist": vitae_mnist,
    "vitae_bodies": vitae_bodies,
    "vitae_celeba": vitae_celeba,
    "vitae_stability": vitae_stability,
}
