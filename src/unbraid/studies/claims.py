"""Studies of two claims: 100 labels help VAEs, and a factorised support helps on data with correlated factors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from unbraid.methods import HFS, BetaTCVAE, BetaVAE, SemiVAE
from unbraid.methods.semi_vae import FAMILIES
from unbraid.studies.planned import PlannedRun, Setting, grid, sweep

SEEDS = 5
LABELS = 100
FACTOR_VAE_STEPS = 150_000  # the code of Locatello et al. counts each update of FactorVAE as two steps
STRENGTHS = {  # the third of the six strengths of `locatello2019`
    "beta_vae": 4.0, "annealed_vae": 25.0, "factor_vae": 30.0, "beta_tcvae": 4.0, "dip_vae_i": 5.0, "dip_vae_ii": 5.0,
}  # fmt: skip
LEVEL = 2
CORRELATED = "dsprites?correlate=x:y:0.1"
BETAS = (2.0, 4.0, 8.0)
GAMMAS = (10.0, 100.0, 1000.0)
HFS_BETA = 4.0


def family_steps(family: str) -> dict[str, int]:
    """Return the field `steps` of `RunSpec` for a family of VAEs, or an empty dictionary to use the default."""
    return {"steps": FACTOR_VAE_STEPS} if family == "factor_vae" else {}


def with_labels(family: str) -> SemiVAE:
    """Return the semi-supervised method of a family of VAEs, with 100 labelled examples."""
    chosen: dict[str, Any] = {"family": family}
    return SemiVAE(regularisation=STRENGTHS[family], labels=LABELS, **chosen)


def locatello2020_labels() -> Iterator[PlannedRun]:
    """Yield 60 runs on dSprites: 6 VAEs x 2 (without labels, and with 100 labelled examples) x 5 seeds.

    Each method has the third of the six strengths of `locatello2019`. A supervised run differs from its unsupervised
    counterpart only in the supervised term, the cross-entropy of 100 labelled examples with weight 10. Runs have 10
    latents and 300,000 steps with batches of 64. FactorVAE has only 150,000 steps, because the authors' code counts
    each of its updates as two steps. The unsupervised runs are also runs of `locatello2019`.

    Deviations: The paper sweeps strengths, the weight of the supervised term and the number of labels. It uses some of
    the labels to select models, whereas here all labels are used for training and no model is selected.
    Reference: Locatello et al. (2020), "Disentangling factors of variations using few labels", arXiv:1905.01258.
    """
    settings = [
        Setting(method, STRENGTHS[family], LEVEL, family_steps(family), variant)
        for family, make in FAMILIES.items()
        for method, variant in ((make(STRENGTHS[family]), ""), (with_labels(family), family))
    ]
    yield from grid(["dsprites"], settings, SEEDS)


def roth2023() -> Iterator[PlannedRun]:
    """Yield 45 runs on dSprites with correlated positions: beta-VAE, beta-TCVAE and HFS x 3 strengths x 5 seeds.

    In training, x and y are correlated with the spread 0.1 (the smaller the spread, the stronger the correlation).
    Metrics draw from the whole grid, where the factors are independent. Beta-VAE and beta-TCVAE have beta 2, 4 and 8.
    HFS has beta 4. Its gamma, the weight of the distance from a factorised support, is 10, 100 or 1,000. Each run has
    10 latents and 300,000 steps with batches of 64, at learning rate 1e-4.

    Deviations: The paper trains on eleven correlations of one or more pairs of factors and sweeps more strengths. It
    selects the best strength of each method.
    Reference: Roth et al. (2023), arXiv:2210.07347. Among the correlations of a single pair of factors in the authors'
    code for dSprites, this is the second. The strengths are some of those that the authors sweep.
    """
    settings = [
        *sweep(BetaVAE, "beta", BETAS),
        *sweep(BetaTCVAE, "beta", BETAS),
        *sweep(HFS, "gamma", GAMMAS, beta=HFS_BETA),
    ]
    yield from grid([CORRELATED], settings, SEEDS)
