"""Examples kept as bytes, on a full grid of factors or with labels of their own."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int, Real, UInt8
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.noise import Noise


class ByteImages(FactorData):
    """Images as uint8 (n, c, h, w), one for each point of the grid; the table may be a memory-mapped file."""

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b c h w"]:
        """The images at `index`, pixels in [0, 1]."""
        return self.table[index] / 255

    def _examples(self, index: Tensor) -> Tensor:
        return self.table[index]


class Labelled(FactorData):
    """Examples that need not fill a grid: uint8 images (n, c, h, w) or float32 vectors (n, d), with labels (n, k).

    `sizes` are the numbers of values of the labels, 0 to size - 1 in each column. Labels may be none at all (k = 0):
    such data can be trained on, traversed and compared, and scored by what needs no labels.
    """

    gridded = False

    def __init__(
        self,
        name: str,
        names: Sequence[str],
        sizes: Sequence[int],
        table: UInt8[Tensor, "n c h w"] | Float[Tensor, "n d"],
        labels: Int[Tensor, "n k"],
    ) -> None:
        super().__init__(name, tuple(names), tuple(sizes), tuple(table.shape[1:]), table)
        if labels.shape != (len(table), len(self.sizes)):
            raise UserError(
                f"The labels of {name} must have shape ({len(table)}, {len(self.sizes)}), a row an example and a "
                f"column a factor. Got {tuple(labels.shape)} instead."
            )
        self.labels = labels.to(table.device)

    def __len__(self) -> int:
        return len(self.table)

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b ..."]:
        """The examples at `index`: pixels in [0, 1], or vectors."""
        rows = self.table[index]
        return rows / 255 if rows.dtype == torch.uint8 else rows

    def _examples(self, index: Tensor) -> Tensor:
        return self.table[index]

    def _uniform(self, noise: Noise, n: int) -> Int[Tensor, " n"]:
        return noise.integers(len(self.table), n)

    def to(self, device: str | torch.device) -> Labelled:
        """The same data on another device."""
        moved = super().to(device)
        assert isinstance(moved, Labelled)
        moved.labels = self.labels.to(device)
        return moved

    def rows(self, part: slice) -> Labelled:
        """The same kind of data with some of its examples only."""
        chosen = copy.copy(self)
        chosen.table, chosen.labels = self.table[part], self.labels[part]
        return chosen

    def unplace(self, index: Int[Tensor, " n"]) -> Int[Tensor, "n k"]:
        """The labels of the examples at `index`."""
        return self.labels[index]

    def place(self, factors: Int[Tensor, "n k"]) -> Int[Tensor, " n"]:
        """Refused: labels do not name one example."""
        raise UserError(f"{self.name} is not a full grid, so factors do not name one example. Select rows by `labels`.")


def numbered(values: Real[Tensor, " n"]) -> tuple[Int[Tensor, " n"], int]:
    """Any labels as 0, 1, ... in their order, and how many there are.

    >>> numbered(torch.tensor([30, 10, 30]))
    (tensor([1, 0, 1]), 2)
    """
    found, place = torch.unique(values, return_inverse=True)
    return place, len(found)
