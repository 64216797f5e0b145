"""What methods that train on pairs share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.sampling import PAIRS, Drawn
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.vae import elbo
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

ROWS = 4  # of a series, at least: three different pairs


def check_pairs(method: Method, data: FactorData, batch: int, *, series: bool = False) -> None:
    """Refuse what no pairs can be drawn of: an odd batch, data that fills no grid, or what the sampler refuses.

    Pairs of a `series` are its rows and need no grid.
    """
    name = type(method).__name__
    if batch % 2:
        raise UserError(
            f"The batch of {name} counts images and must be even, because they come in pairs. "
            f"Got {batch} instead. Use {batch + 1}."
        )
    if series:
        check_series(method, data)
    elif not data.gridded:
        raise UserError(
            f"{name} draws pairs that differ in known factors, so the data must be a full grid of factors. "
            f"Got {data.name}, which is none. Use a method of single examples, such as BetaVAE, or "
            "pairs='consecutive' of SlowVAE or PCL if its rows are a series."
        )
    method.draw(data, Noise(torch.zeros((), dtype=torch.int64, device=data.device)), 2)


def check_series(method: Method, data: FactorData) -> None:
    """Refuse data that are no series: of too few rows, or not drawn in the order of all their rows."""
    name = type(method).__name__
    if len(data) < ROWS:
        raise UserError(f"{name} with consecutive pairs needs at least {ROWS} rows. Got {data.name} with {len(data)}.")
    if data.law is not None:
        raise UserError(
            f"{name} with consecutive pairs draws from all rows, so data must have no law of its own. Got {data.name}. "
            "Leave out subset and correlate."
        )


def members(q: Gaussian) -> tuple[Gaussian, Gaussian]:
    """The posteriors of the first examples and those of their partners."""
    (mean_1, mean_2), (logvar_1, logvar_2) = q.mean.chunk(2), q.logvar.chunk(2)
    return Gaussian(mean_1, logvar_1), Gaussian(mean_2, logvar_2)


@dataclass(frozen=True)
class Paired(Method):
    """A weighted beta-VAE that sees the images of pairs and does not know that they are pairs.

    What methods of pairs are compared with: the same examples in the same order, without what pairs tell.
    """

    beta: Hyper = setting(1.0, "weight of the KL term", low=0)
    weight: Hyper = setting(1.0, "weight of the reconstruction", low=0)
    pairs: Literal["pairs", "uniform", "laplace", "walk"] = setting("pairs", "how pairs are drawn")

    def draw(self, data: FactorData, noise: Noise, batch: int) -> Drawn:
        return Drawn.of(PAIRS[self.pairs](data, noise, batch // 2))

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        check_pairs(self, data, batch)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, _, _ = elbo(net, batch, noise)
        return self.weight * rec + self.beta * kl, {"rec": rec, "kl": kl}
