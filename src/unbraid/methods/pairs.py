"""What methods that train on pairs share."""

from __future__ import annotations

import torch

from unbraid.data.base import FactorData
from unbraid.dists import Gaussian
from unbraid.methods.base import Method
from unbraid.noise import Noise


def check_pairs(method: Method, data: FactorData, batch: int) -> None:
    """Refuse what no pairs can be drawn of: an odd batch, data that fills no grid, or what the sampler refuses."""
    name = type(method).__name__
    if batch % 2:
        raise ValueError(
            f"The batch of {name} counts images and must be even, because they come in pairs. "
            f"Got {batch} instead. Use {batch + 1}."
        )
    if not data.gridded:
        raise ValueError(
            f"{name} draws pairs that differ in known factors, so the data must be a full grid of factors. "
            f"Got {data.name}, which is none. Use a method of single examples, such as BetaVAE."
        )
    method.draw(data, Noise(torch.zeros((), dtype=torch.int64, device=data.device)), 2)


def members(q: Gaussian) -> tuple[Gaussian, Gaussian]:
    """The posteriors of the first examples and those of their partners."""
    (mean_1, mean_2), (logvar_1, logvar_2) = q.mean.chunk(2), q.logvar.chunk(2)
    return Gaussian(mean_1, logvar_1), Gaussian(mean_2, logvar_2)
