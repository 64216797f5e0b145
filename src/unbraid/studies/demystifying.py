"""The study of manipulated images: methods on original, modified and noisy images."""

from __future__ import annotations

from collections.abc import Iterator

from unbraid.methods import AE, PCL, PMP, AdaGVAE, BetaTCVAE, BetaVAE, FactorVAE, SlowVAE
from unbraid.studies.planned import PlannedRun, Setting, grid, sweep

SEARCH = (0.75, 1.0, 1.25, 1.5, 1.75, 2.0)  # multiples of the primary strength, one per level
PRIMARY = SEARCH.index(1.0)  # the level of the published tables, and of methods that have no primary strength
STEPS, SEEDS = 300_000, 10
NOISE = {"dsprites": "0.1", "shapes3d_rendered": "0.175"}  # the same strength as the modification
LATENTS = {"dsprites": 5, "shapes3d_rendered": 6}  # one per factor


def dataset_forms(base: str) -> list[str]:
    """The names of the original dataset, the modified one, and the one with noise."""
    return [base, f"{base}?modified=default", f"{base}?noise={NOISE[base]}"]


def search_settings(beta: float, beta_tc: float, gamma: float, latents: int) -> list[Setting]:
    """33 settings: five methods at six strengths, and three methods without a strength.

    Args:
        beta: The primary beta of the beta-VAE, from table 1 of the paper's supplement.
        beta_tc: The primary beta of the beta-TCVAE.
        gamma: The primary gamma of FactorVAE.
        latents: The number of latents, which is the number of subspaces of PMP.
    """

    def scaled(primary: float) -> list[float]:
        return [primary * share for share in SEARCH]

    return [
        *sweep(BetaVAE, "beta", scaled(beta)),
        *sweep(BetaTCVAE, "beta", scaled(beta_tc)),
        *sweep(FactorVAE, "gamma", scaled(gamma)),
        *sweep(SlowVAE, "beta", scaled(1.0)),
        Setting(PCL(), 0.0, PRIMARY),
        Setting(AE(), 0.0, PRIMARY),
        *sweep(AdaGVAE, "beta", scaled(1.0)),
        Setting(PMP(subspaces=latents, horizon=float(STEPS)), 0.0, PRIMARY, {"learning_rate": 5e-4}),
    ]


def demystifying2021() -> Iterator[PlannedRun]:
    """1,980 models: 2 datasets in 3 forms x 33 settings x 10 seeds. The primary strengths alone (level 1) are 480.

    Primary strengths on dSprites and Shapes3D: beta 8 and 32 for the beta-VAE, 6 and 32 for the beta-TCVAE, gamma 35
    and 7 for FactorVAE, beta 1 for SlowVAE. Levels 0 to 5 have .75, 1, 1.25, 1.5, 1.75 and 2 times as much. There are
    as many latents as factors, 5 and 6. The noise of .1 and .175 is as strong as the modification. PCL and AE are from
    the paper, too. Where the paper gives no value, we chose 300,000 steps of batch 64 at learning rate 1e-4, the
    networks of the large study, each method's defaults for other settings, and for PCL the pairs of SlowVAE. We added
    Ada-GVAE with beta 1, and PMP with one subspace per factor and its own learning rate of 5e-4. Deviations: dSprites
    is the regenerated dataset, and Shapes3D is the ray-cast one, which needs no file. The modification is the one of
    `unbraid data modify`; it must have been made before, in the place where `modified=default` is looked for. The
    weakly supervised GAN is left out.
    Reference: Zietlow et al. (2021), arXiv:2102.06822, and its supplement, table 1 and section 4.
    """
    tables = {"dsprites": (8.0, 6.0, 35.0), "shapes3d_rendered": (32.0, 32.0, 7.0)}
    index = 0
    for base, strengths in tables.items():
        latents = LATENTS[base]
        settings = search_settings(*strengths, latents)
        for planned in grid(dataset_forms(base), settings, SEEDS, steps=STEPS, latents=latents):
            yield PlannedRun(index, planned.spec, planned.strength, planned.level)
            index += 1
