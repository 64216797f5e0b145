"""The study of manipulated images: VAEs, and what is none, on originals, modified images and noise as strong."""

from __future__ import annotations

from collections.abc import Iterator

from unbraid.methods import AE, PCL, PMP, AdaGVAE, BetaTCVAE, BetaVAE, FactorVAE, SlowVAE
from unbraid.studies.planned import Planned, Setting, crossed, swept

SEARCH = (0.75, 1.0, 1.25, 1.5, 1.75, 2.0)  # of the primary strength, level by level
PRIMARY = SEARCH.index(1.0)  # the level of the tables, and the only one of methods without a primary strength
STEPS, SEEDS = 300_000, 10
NOISE = {"dsprites": "0.1", "shapes3d_rendered": "0.175"}  # as strong as the modification
LATENTS = {"dsprites": 5, "shapes3d_rendered": 6}  # one a factor


def forms(base: str) -> list[str]:
    """The names of a dataset as it is, modified, and with noise."""
    return [base, f"{base}?modified=default", f"{base}?noise={NOISE[base]}"]


def searched(beta: float, beta_tc: float, gamma: float, latents: int) -> list[Setting]:
    """33 settings: five methods at six strengths, three that have none; the arguments are those of table 1."""

    def scaled(primary: float) -> list[float]:
        return [primary * share for share in SEARCH]

    return [
        *swept(BetaVAE, "beta", scaled(beta)),
        *swept(BetaTCVAE, "beta", scaled(beta_tc)),
        *swept(FactorVAE, "gamma", scaled(gamma)),
        *swept(SlowVAE, "beta", scaled(1.0)),
        Setting(PCL(), 0.0, PRIMARY),
        Setting(AE(), 0.0, PRIMARY),
        *swept(AdaGVAE, "beta", scaled(1.0)),
        Setting(PMP(subspaces=latents, horizon=float(STEPS)), 0.0, PRIMARY, {"learning_rate": 5e-4}),
    ]


def demystifying2021() -> Iterator[Planned]:
    """1,980 models: 2 datasets in 3 forms x 33 settings x 10 seeds; at the primary strengths alone (level 1) 480.

    Primary strengths on dSprites and Shapes3D: beta 8 and 32 of the beta-VAE, 6 and 32 of the beta-TCVAE, gamma 35 and
    7 of FactorVAE, beta 1 of SlowVAE; levels 0 to 5 have .75, 1, 1.25, 1.5, 1.75 and 2 times as much. As many latents
    as factors, 5 and 6; noise of .1 and .175, the strength of the modification. From the paper, too: PCL and AE.
    Choices of ours, where it is silent: 300,000 steps of 64 at 1e-4 with the networks of the large study, other
    settings as each method has them by default, and for PCL the pairs of SlowVAE. Additions of ours: Ada-GVAE with
    beta 1, and PMP with a subspace a factor at its own learning rate of 5e-4. Deviations: dSprites is the regenerated
    one, Shapes3D the one that is ray-cast anew and needs no file; the modification is `unbraid data modify`'s, which
    must have been made before and lie where `modified=default` is looked for. The weakly supervised GAN is left out.
    Reference: Zietlow et al. (2021), arXiv:2102.06822, and its supplement, table 1 and section 4.
    """
    tables = {"dsprites": (8.0, 6.0, 35.0), "shapes3d_rendered": (32.0, 32.0, 7.0)}
    index = 0
    for base, strengths in tables.items():
        latents = LATENTS[base]
        for planned in crossed(forms(base), searched(*strengths, latents), SEEDS, steps=STEPS, latents=latents):
            yield Planned(index, planned.spec, planned.strength, planned.level)
            index += 1
