"""Choose the examples of a dataset that can appear in reasoning puzzles. An image in a puzzle is called a panel.

Puzzles use only some values of each factor. There is one panel for each combination of these values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError, unknown_name_message

PUBLISHED = {
    ("shape", "scale", "orientation", "x", "y"): (3, 3, 1, 4, 4),
    ("floor_hue", "wall_hue", "object_hue", "scale", "shape", "orientation"): (10, 10, 10, 4, 4, 4),
}
"""The number of values of each factor that appear in puzzles on dSprites and Shapes3D.

The keys are the names of the factors. All values of a factor appear if it has fewer values than this number.
Reference: the code of van Steenkiste et al. (2019), arXiv:1905.12506.
"""
MAX_VALUES = 4  # maximum number of values of each factor that appear in puzzles on all other datasets
MAX_PANELS = 1_000_000


@dataclass(frozen=True)
class Panels:
    """The p examples that can be panels of a puzzle, one for each combination of the chosen values of k factors.

    In this class, the chosen values of a factor are numbered from 0.

    Attributes:
        sizes: The number of chosen values of each factor.
        index: The index of each of the p examples in the dataset. The value of the last factor changes fastest.
    """

    sizes: tuple[int, ...]
    index: Int[Tensor, " p"]

    def at(self, factors: Int[Tensor, "*b k"]) -> Int[Tensor, "*b"]:
        """Return the position in `index` of each given combination of factor values."""
        strides = [math.prod(self.sizes[i + 1 :]) for i in range(len(self.sizes))]
        return (factors * torch.tensor(strides)).sum(-1)

    def combinations(self) -> Int[Tensor, "p k"]:
        """Return the factor values of all panels, in the order of `index`."""
        return torch.cartesian_prod(*(torch.arange(size) for size in self.sizes)).view(-1, len(self.sizes))

    def one_hot(self) -> Float[Tensor, "p v"]:
        """Return the factor values of each panel as one-hot vectors, one per factor, joined to one vector."""
        columns = zip(self.combinations().unbind(1), self.sizes, strict=True)
        return torch.cat([torch.nn.functional.one_hot(column, size) for column, size in columns], 1).float()


def choose_panels(data: FactorData, values: Mapping[str, int] | None = None) -> Panels:
    """For each factor, choose the values that appear in puzzles. They are evenly spaced and begin with the first value.

    Args:
        data: A dataset with one example for each combination of factor values.
        values: The number of values to use, by the name of the factor. If it is 1, the factor always has its first
            value. For factors that are not listed, the numbers are those of the paper on dSprites and Shapes3D, and at
            most 4 on other datasets. As in the paper, the default number for the orientation of dSprites is 1.

    Returns:
        The panels.

    Raises:
        UserError: If the dataset is not a full grid, a factor is unknown, a number is out of range, or there are more
            than a million panels.
    """
    if not data.gridded:
        named = f" Use {data.grid_name!r} instead." if data.grid_name else " Choose another dataset."
        raise UserError(
            f"Puzzles need one example per combination of factor values. {data.name} is not a full grid.{named}"
        )
    most = dict(zip(data.names, PUBLISHED.get(data.names, (MAX_VALUES,) * len(data.names)), strict=True))
    for name, number in (values or {}).items():
        if name not in data.names:
            raise UserError(unknown_name_message("factor", name, data.names))
        if not 1 <= number <= data.sizes[data.names.index(name)]:
            limits = ", ".join(f"{name} {size}" for name, size in zip(data.names, data.sizes, strict=True))
            raise UserError(
                f"The number of values of each factor of {data.name} must be at least 1 and at most: {limits}. "
                f"Got {name} {number} instead."
            )
        most[name] = number
    sizes = tuple(min(size, most[name]) for name, size in zip(data.names, data.sizes, strict=True))
    if math.prod(sizes) > MAX_PANELS:
        raise UserError(f"There must be at most {MAX_PANELS:,} panels. Got {math.prod(sizes):,}. Use fewer values.")
    panels = Panels(sizes, torch.zeros(0).long())
    factors = panels.combinations() * torch.tensor(data.sizes) // torch.tensor(sizes)
    return Panels(sizes, data.index_of(factors.to(data.device)).cpu())
