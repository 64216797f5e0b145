"""Functions shared by several methods that train on pairs, and a baseline for these methods."""

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

MIN_SERIES_ROWS = 4  # minimum number of rows of a time series; 4 rows form three consecutive pairs


def check_pairs(method: Method, data: FactorData, batch: int, *, series: bool = False) -> None:
    """Raise a UserError if pairs cannot be drawn.

    The batch must be even, the data must be a full grid of factors, and a trial draw must succeed. If `series` is
    true, pairs are consecutive rows of the data, and no grid is needed.
    """
    name = type(method).__name__
    if batch % 2:
        raise UserError(
            f"The batch of {name} must be even, because it is the number of examples and they form pairs. "
            f"Got {batch} instead. Use {batch + 1}."
        )
    if series:
        check_series(method, data)
    elif not data.gridded:
        raise UserError(
            f"{name} draws pairs by changing factors, so the data must be a full grid of factors. "
            f"{data.name} is not a full grid. {grid_remedy(data)} Or use a method for single examples, such as "
            "BetaVAE. If the rows are a time series, use SlowVAE or PCL with pairs='consecutive'."
        )
    method.draw(data, Noise(torch.zeros((), dtype=torch.int64, device=data.device)), 2)


def grid_remedy(data: FactorData) -> str:
    """Return a sentence that recommends other data, for `data` that are not a full grid."""
    return f"Use {data.grid_name}." if data.grid_name else "Choose other data."


def check_series(method: Method, data: FactorData) -> None:
    """Raise a UserError if the data cannot be a time series.

    The data must have at least 4 rows, which are neither a selection of the rows of other data nor sorted by their
    labels, and no sampler of their own, so that all rows are drawn with equal probability.
    """
    name = type(method).__name__
    if not data.successive:
        raise UserError(
            f"{name} with consecutive pairs needs all rows of a time series, in the order of time. Got {data.name}, "
            "in which rows are left out or were sorted. Leave out validation= and side=, and labels that form a full "
            "grid. In a folder of images, write the numbers in file names with leading zeros."
        )
    if len(data) < MIN_SERIES_ROWS:
        raise UserError(
            f"{name} with consecutive pairs needs at least {MIN_SERIES_ROWS} rows. Got {data.name} with {len(data)} "
            "instead."
        )
    if data.sampler is not None:
        raise UserError(
            f"{name} with consecutive pairs draws all rows with equal probability, so the data must not have a "
            f"distribution of its own. Got {data.name} instead. Remove the options subset, holdout and correlate."
        )


def split_pairs(q: Gaussian) -> tuple[Gaussian, Gaussian]:
    """Return the posteriors of the first examples of all pairs, and the posteriors of their partners."""
    (mean_1, mean_2), (logvar_1, logvar_2) = q.mean.chunk(2), q.logvar.chunk(2)
    return Gaussian(mean_1, logvar_1), Gaussian(mean_2, logvar_2)


@dataclass(frozen=True)
class Paired(Method):
    """A beta-VAE that is trained on pairs but treats the two examples of a pair as independent.

    It is a baseline for methods that use pairs, because it is trained on the same examples in the same
    order as these methods.
    """

    beta: Hyper = setting(1.0, "weight of the KL term", low=0)
    weight: Hyper = setting(1.0, "weight of the reconstruction error", low=0)
    pairs: Literal["pairs", "uniform", "laplace", "walk"] = setting("pairs", "distribution of the pairs")

    def draw(self, data: FactorData, noise: Noise, batch: int) -> DrawnExamples:
        return DrawnExamples.from_pairs(PAIRS[self.pairs](data, noise, batch // 2))

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        check_pairs(self, data, batch)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, _, _ = elbo(net, batch, noise)
        return self.weight * rec + self.beta * kl, {"rec": rec, "kl": kl}
