"""Datasets that are stored in memory or in a memory-mapped file."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.noise import Noise


class ByteImages(FactorData):
    """Images on a full grid of factors, stored as uint8 of shape (n, c, h, w), possibly in a memory-mapped file."""

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b c h w"]:
        """Return images, float32 of shape (b, c, h, w), with pixels in [0, 1]."""
        return self.table[index] / 255

    def _examples(self, index: Tensor) -> Tensor:
        return self.table[index]


class Labelled(FactorData):
    """Examples with one row of labels per example. The labels need not form a full grid.

    There may be no labels at all (k = 0). Such data can be used for training, traversals and comparisons, and with
    all metrics that need no labels.

    Args:
        name: Name of the dataset.
        names: Names of the k factors.
        sizes: Number of values of each factor.
        table: Images, uint8 of shape (n, c, h, w), or vectors, float32 of shape (n, d).
        labels: Integers of shape (n, k). The values in column j must be in 0 .. sizes[j] - 1.

    Raises:
        UserError: If `labels` does not have shape (n, k).
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
                f"The labels of {name} must have shape ({len(table)}, {len(self.sizes)}), with one row per example "
                f"and one column per factor. Got {tuple(labels.shape)} instead."
            )
        self.labels = labels.to(table.device)

    def __len__(self) -> int:
        return len(self.table)

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b ..."]:
        """Return examples, float32 of shape (b, *shape). The pixels of images are in [0, 1]."""
        rows = self.table[index]
        return rows / 255 if rows.dtype == torch.uint8 else rows

    def _examples(self, index: Tensor) -> Tensor:
        return self.table[index]

    def _draw_uniform(self, noise: Noise, n: int) -> Int[Tensor, " n"]:
        return noise.integers(len(self.table), n)

    def to(self, device: str | torch.device) -> Labelled:
        """Return the same data on a different device."""
        moved = super().to(device)
        assert isinstance(moved, Labelled)
        moved.labels = self.labels.to(device)
        return moved

    def select_rows(self, part: slice) -> Labelled:
        """Return a dataset of the same class that contains only the examples in `part`."""
        chosen = copy.copy(self)
        chosen.table, chosen.labels = self.table[part], self.labels[part]
        return chosen

    def factors_at(self, index: Int[Tensor, " n"]) -> Int[Tensor, "n k"]:
        """Return the labels of examples, without checking `index`."""
        return self.labels[index]

    def index_of(self, factors: Int[Tensor, "n k"]) -> Int[Tensor, " n"]:
        """Raise a UserError, because labels do not identify a single example."""
        raise UserError(
            f"The examples of {self.name} do not form a full grid, so factor values do not identify a single example. "
            "Select rows of `labels` instead."
        )
