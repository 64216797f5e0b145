"""The study of quantised autoencoders: QLAE, Tripod and the methods that their papers compare with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from unbraid.methods import AE, AEICA, QLAE, BetaTCVAE, BetaVAE, Tripod
from unbraid.studies.planned import PlannedRun, Setting, grid

LATENTS = 12  # twice as many as Shapes3D has factors
SEEDS = 5
QLAE_STEPS, TRIPOD_STEPS = 200_000, 250_000
WEIGHT_DECAY = 0.1
TRIPOD_WEIGHT = 1e-2  # the default weight of the Hessian penalty of Tripod
BETA = 3.0  # of beta-VAE and beta-TCVAE, in the authors' code for Shapes3D


def hsu2024() -> Iterator[PlannedRun]:
    """Yield 30 runs on rendered shapes: AE, beta-VAE, beta-TCVAE, AE + ICA, QLAE and Tripod x 5 seeds.

    Each run has 12 latents. Tripod has 250,000 steps with batches of 64 and the learning rate 2e-4, and its latents
    have 12 values each. All other methods have 200,000 steps with batches of 128 and the learning rate 1e-3. QLAE has a
    weight decay of 0.1, and its latents have 10 values each. Beta-VAE and beta-TCVAE have beta 3, as in the authors'
    code for Shapes3D. The other settings are the defaults of the methods, which are those of the papers.

    Deviations: The images are those that unbraid renders (`shapes3d_rendered`). The networks are those of
    `locatello2019`, whereas the authors use residual networks, and for QLAE a decoder with style layers. Gradients are
    not clipped, whereas the authors clip each element to an absolute value of 1 (see `QLAE`). The authors' code for
    Shapes3D trains AE with a weight decay of 0.001, and AE has none here. The published table includes AE + ICA without
    its settings, so it is trained like AE. For continuous codes, the authors estimate the information in InfoM and
    InfoC from nearest neighbours (`infomec` with 10 neighbours), whereas runs are scored with bins. The difference is
    large: with neighbours, the InfoM of VAEs is lower by about 0.15 and that of AE + ICA is higher. The code of Hsu et
    al. (2024) also prunes latents by their interquartile range instead of their range, and computes InfoE from one-hot
    codes if codes are quantised.
    Reference: Hsu et al. (2023), arXiv:2305.18378, and Hsu et al. (2024), arXiv:2404.10282. Steps, batches and weights
    are those of the authors' code.
    """
    other: dict[str, Any] = {"steps": QLAE_STEPS, "batch": 128, "learning_rate": 1e-3}
    settings = [
        Setting(AE(), 0.0, 0, other),
        Setting(BetaVAE(beta=BETA), BETA, 0, other),
        Setting(BetaTCVAE(beta=BETA), BETA, 0, other),
        Setting(AEICA(), 0.0, 0, other),
        Setting(QLAE(), 0.0, 0, {**other, "weight_decay": WEIGHT_DECAY}),
        Setting(Tripod(), TRIPOD_WEIGHT, 0, {"steps": TRIPOD_STEPS, "learning_rate": 2e-4}),
    ]
    yield from grid(["shapes3d_rendered"], settings, SEEDS, latents=LATENTS)
