"""Distributions over the examples of a dataset: one with two correlated factors, and one over a subset of examples."""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unbraid.data.dataset import FactorData, factor_index
from unbraid.errors import UserError
from unbraid.noise import Noise


class CorrelatedSampler:
    """A sampler that draws two factors from a joint distribution and all other factors uniformly."""

    def __init__(self, data: FactorData, first: int, second: int, spread: float) -> None:
        self.first, self.second, self.width = first, second, data.sizes[second]
        self.table = joint_distribution((data.sizes[first], self.width), spread, torch.device("cpu"))
        self.cumulative = self.table.flatten().cumsum(0).float().to(data.device)

    @classmethod
    def parse(cls, data: FactorData, text: str) -> CorrelatedSampler:
        """Create the sampler from the text ``factor:factor:spread``."""
        parts = text.split(":")
        if len(parts) != 3:
            raise UserError(f"Write correlate=FACTOR:FACTOR:SPREAD, such as correlate=x:y:0.2. Got {text!r} instead.")
        if not data.gridded:
            raise UserError(
                f"To correlate factors, a dataset must have one example for each combination of factor values. "
                f"{data.name} does not."
            )
        first, second = factor_index(data, parts[0]), factor_index(data, parts[1])
        if parts[0] == parts[1]:
            raise UserError(f"The option 'correlate' must name two different factors. Got {parts[0]} twice instead.")
        try:
            spread = float(parts[2])
        except ValueError:
            spread = math.nan
        if not 0 < spread < math.inf:
            raise UserError(f"The spread of a correlation must be finite and > 0. Got {parts[2]!r} instead.")
        return cls(data, first, second, spread)

    def probabilities(self, factors: Int[Tensor, "n k"]) -> Float[Tensor, " n"]:
        """Return the joint probability of the two correlated factors in each row, float64 of shape (n,)."""
        return self.table[factors[:, self.first], factors[:, self.second]]

    def draw(self, data: FactorData, noise: Noise, n: int) -> Int[Tensor, " n"]:
        """Return the indices of `n` examples, int64 of shape (n,)."""
        factors = list(noise.integers(data.grid[0], n, len(data.sizes)).unbind(1))
        cell = torch.searchsorted(self.cumulative[:-1], noise.uniform(n))
        factors[self.first], factors[self.second] = cell // self.width, cell % self.width
        return data.index_of(torch.stack(factors, 1))

    def to(self, device: str | torch.device) -> CorrelatedSampler:
        """Return the same sampler on a different device."""
        moved = copy.copy(self)
        moved.cumulative = self.cumulative.to(device)
        return moved


class SubsetSampler:
    """A sampler that draws from a fixed random subset of the examples.

    Args:
        data: The dataset.
        size: Number of examples in the subset. None means all of `allowed`.
        seed: Random seed for the choice of the subset. All subsets of this size are equally likely.
        correlated: A sampler that defines the joint distribution of two factors. If it is given, the probability of an
            example of the subset is proportional to the joint probability of its values of these factors. By default
            all examples of the subset are equally likely.
        allowed: Indices of the examples from which the subset is chosen. The default is all examples.

    Raises:
        UserError: If `size` is too large, or if `correlated` gives every example of the subset a probability of 0.
    """

    def __init__(
        self,
        data: FactorData,
        size: int | None,
        seed: int,
        correlated: CorrelatedSampler | None = None,
        allowed: Int[Tensor, " m"] | None = None,
    ) -> None:
        every = np.arange(len(data)) if allowed is None else allowed.cpu().numpy()
        if size is not None and size > len(every):
            raise UserError(f"A subset of {data.name} can have at most {len(every):,} examples. Got {size:,} instead.")
        rng = np.random.default_rng(seed)
        chosen = every if size is None else every[np.sort(rng.choice(len(every), size, replace=False))]
        self.rows = torch.from_numpy(chosen).to(data.device)
        self.cumulative: Tensor | None = None
        if correlated is not None:
            weights = correlated.probabilities(data.factors(chosen).cpu())
            if not weights.sum() > 0:
                raise UserError(
                    f"The examples of a subset must be possible under the correlation. Got {len(chosen)} examples of "
                    f"{data.name}, none of which is possible. Use a larger subset or a larger spread."
                )
            self.cumulative = (weights / weights.sum()).cumsum(0).to(data.device)

    def draw(self, data: FactorData, noise: Noise, n: int) -> Int[Tensor, " n"]:
        """Return the indices of `n` examples of the subset, int64 of shape (n,)."""
        if self.cumulative is None:
            return self.rows[noise.integers(len(self.rows), n)]
        return self.rows[torch.searchsorted(self.cumulative[:-1], noise.uniform(n).double(), right=True)]

    def to(self, device: str | torch.device) -> SubsetSampler:
        """Return the same sampler on a different device."""
        moved = copy.copy(self)
        moved.rows = self.rows.to(device)
        moved.cumulative = None if self.cumulative is None else self.cumulative.to(device)
        return moved


def joint_distribution(sizes: tuple[int, int], spread: int | float, device: torch.device) -> Float[Tensor, "a b"]:
    r"""Return the joint distribution of two correlated factors, float64 of shape `sizes`.

    .. math:: p(a, b) \propto \exp(-(a - b)^2 / (2 \, \text{spread}^2))

    Here a and b are the two factors, both scaled to [0, 1]. A spread of 0.2 gives a strong correlation, and a spread
    of 10 gives almost none.
    Reference: Traeuble et al. (2021), arXiv:2006.07886, eq. 1.
    """
    a, b = (torch.linspace(0, 1, size, dtype=torch.float64, device=device) for size in sizes)
    weights = (-((a[:, None] - b) ** 2) / (2 * spread**2)).exp()
    return weights / weights.sum()
