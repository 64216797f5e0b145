"""Helpers that methods of pairs share, and the baseline they are compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.sampling import PAIRS, DrawnExamples
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.vae import elbo
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

MIN_SERIES_ROWS = 4  # rows of a time series, for three different pairs


def check_pairs(method: Method, data: FactorData, batch: int, *, series: bool = False) -> None:
    """Raise a UserError if no pairs can be drawn: an odd batch, data without a full grid, or an error of the sampler.

    With `series`, pairs are consecutive rows of the data, which need no grid.
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
            f"{data.name} is not a full grid. Use a method of single examples, such as BetaVAE, or, if the rows are a "
            "time series, SlowVAE or PCL with pairs='consecutive'."
        )
    method.draw(data, Noise(torch.zeros((), dtype=torch.int64, device=data.device)), 2)


def check_series(method: Method, data: FactorData) -> None:
    """Raise a UserError if the data cannot be a time series: too few rows, or not all rows drawn equally often."""
    name = type(method).__name__
    if len(data) < MIN_SERIES_ROWS:
        raise UserError(
            f"{name} with consecutive pairs needs at least {MIN_SERIES_ROWS} rows. Got {data.name} with {len(data)}."
        )
    if data.sampler is not None:
        raise UserError(
            f"{name} with consecutive pairs draws from all rows, so the data must not have its own distribution. Got "
            f"{data.name}. Remove the options subset and correlate."
        )


def split_pairs(q: Gaussian) -> tuple[Gaussian, Gaussian]:
    """Return the posteriors of the first examples and those of their partners."""
    (mean_1, mean_2), (logvar_1, logvar_2) = q.mean.chunk(2), q.logvar.chunk(2)
    return Gaussian(mean_1, logvar_1), Gaussian(mean_2, logvar_2)


@dataclass(frozen=True)
class Paired(Method):
    """A beta-VAE that is trained on the images of pairs but does not use that they are pairs.

    It is the baseline of methods of pairs: it sees the same examples in the same order.
    """

    beta: Hyper = setting(1.0, "weight of the KL term", low=0)
    weight: Hyper = setting(1.0, "weight of the reconstruction error", low=0)
    pairs: Literal["pairs", "uniform", "laplace", "walk"] = setting("pairs", "how pairs are drawn")

    def draw(self, data: FactorData, noise: Noise, batch: int) -> DrawnExamples:
        return DrawnExamples.from_pairs(PAIRS[self.pairs](data, noise, batch // 2))

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        check_pairs(self, data, batch)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, _, _ = elbo(net, batch, noise)
        return self.weight * rec + self.beta * kl, {"rec": rec, "kl": kl}
