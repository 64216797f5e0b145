"""The study of manipulated images, which trains methods on original, modified and noisy images."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from unbraid.methods import AE, PCL, PMP, AdaGVAE, BetaTCVAE, BetaVAE, FactorVAE, SlowVAE
from unbraid.studies.planned import PlannedRun, Setting, grid, number_runs, sweep

SEARCH = (0.75, 1.0, 1.25, 1.5, 1.75, 2.0)  # multiples of the primary strength, one per level
PRIMARY = SEARCH.index(1.0)  # level of the published tables, and of all methods without a strength
STEPS, SEEDS = 300_000, 10
NOISE = {
    "dsprites": "0.1",
    "shapes3d_rendered": "0.175",
}  # strength of the noise, equal to that of the modification
LATENTS = {"dsprites": 5, "shapes3d_rendered": 6}  # one latent per factor


def dataset_forms(base: str) -> list[str]:
    """Return the names of the original dataset, the modified dataset, and the dataset with noise."""
    return [base, f"{base}?modified=default", f"{base}?noise={NOISE[base]}"]


def search_settings(beta: float, beta_tc: float, gamma: float, latents: int) -> list[Setting]:
    """Return 33 settings: five methods at six strengths each, and three methods without a strength.

    Args:
        beta: The primary beta of the beta-VAE, from table 1 of the paper's supplement.
        beta_tc: The primary beta of the beta-TCVAE, from the same table.
        gamma: The primary gamma of FactorVAE, from the same table.
        latents: The number of latents, which is also the number of subspaces of PMP.
    """

    def multiples(primary: float) -> list[float]:
        return [primary * multiple for multiple in SEARCH]

    return [
        *sweep(BetaVAE, "beta", multiples(beta)),
        *sweep(BetaTCVAE, "beta", multiples(beta_tc)),
        *sweep(FactorVAE, "gamma", multiples(gamma)),
        *sweep(SlowVAE, "beta", multiples(1.0)),
        Setting(PCL(), 0.0, PRIMARY),
        Setting(AE(), 0.0, PRIMARY),
        *sweep(AdaGVAE, "beta", multiples(1.0)),
        Setting(PMP(subspaces=latents, horizon=float(STEPS)), 0.0, PRIMARY, {"learning_rate": 5e-4}),
    ]


def demystifying2021() -> Iterator[PlannedRun]:
    """Yield 1,980 runs: 2 datasets in 3 forms x 33 settings x 10 seeds. Level 1, the primary strength, has 480 runs.

    Primary strengths on dSprites and Shapes3D: beta 8 and 32 for the beta-VAE, 6 and 32 for the beta-TCVAE, gamma 35
    and 7 for FactorVAE, beta 1 for SlowVAE. Levels 0 to 5 multiply these strengths by 0.75, 1, 1.25, 1.5, 1.75 and 2.
    There are as many latents as factors, 5 and 6. The strength of the noise, 0.1 and 0.175, equals that of the
    modification. PCL and AE are also methods of the paper. Where the paper gives no value, we chose 300,000 steps with
    batches of 64 at learning rate 1e-4, the networks of `locatello2019`, each method's defaults for other settings, and
    for PCL the pairs of SlowVAE. We added Ada-GVAE with the primary strength beta 1, and PMP with one subspace per
    factor and a learning rate of 5e-4.

    Deviations: FactorVAE has 300,000 updates. In the Disentanglement Library, whose defaults the paper uses, its
    300,000 steps are 150,000 updates (see `locatello2019`). dSprites and Shapes3D are the datasets that unbraid
    renders, not the published files. The modification is that of `unbraid data modify`, which must be run first and
    must write its default file. The weakly supervised GAN of the paper is not included.
    Reference: Zietlow et al. (2021), arXiv:2102.06822, and its supplement, table 1 and section 4.
    """
    tables = {"dsprites": (8.0, 6.0, 35.0), "shapes3d_rendered": (32.0, 32.0, 7.0)}
    grids = (
        grid(dataset_forms(base), search_settings(*strengths, LATENTS[base]), SEEDS, steps=STEPS, latents=LATENTS[base])
        for base, strengths in tables.items()
    )
    yield from number_runs(itertools.chain.from_iterable(grids))
