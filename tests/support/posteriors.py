"""Posteriors of pairs, as lists of means and variances and as `Gaussian`."""

from __future__ import annotations

import torch

from oracles.pairs import Row
from unbraid.distributions import Gaussian


def gaussian(rows: list[Row]) -> Gaussian:
    """Return the posteriors of a batch from lists of (mean, variance)."""
    table = torch.tensor(rows, dtype=torch.float64)
    return Gaussian(table[..., 0], table[..., 1].log())


def random_pairs(n: int, d: int) -> tuple[list[Row], list[Row]]:
    """Return the posteriors of the first and second examples of n random pairs, as lists of (mean, variance)."""
    g = torch.Generator().manual_seed(2)
    table = torch.stack([torch.randn(2, n, d, generator=g), torch.rand(2, n, d, generator=g) + 0.1], -1)
    first, second = ([[(float(m), float(v)) for m, v in row] for row in part] for part in table)
    return first, second
