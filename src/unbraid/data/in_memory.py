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

    There may be no labels at all (k = 0). Data without labels can be used for training, traversals, comparisons, and
    metrics that need no labels.

    Args:
        name: Name of the dataset.
        names: Names of the k factors.
        sizes: Number of values of each factor.
        table: Images, uint8 of shape (n, c, h, w), or vectors, float32 of shape (n, d).
        labels: Integers of shape (n, k). The values in column j must be in 0 .. sizes[j] - 1, or -1 if the label is
            missing.
        label_values: What `factor_values` returns for all examples, float64 of shape (n, k). If it is None,
            `labels` are returned as float64.
        continuous: Names of the continuous factors.

    Raises:
        UserError: If `labels` does not have shape (n, k).
    """

    gridded = False
    label_values: Float[Tensor, "n k"] | None

    def __init__(
        self,
        name: str,
        names: Sequence[str],
        sizes: Sequence[int],
        table: UInt8[Tensor, "n c h w"] | Float[Tensor, "n d"],
        labels: Int[Tensor, "n k"],
        label_values: Float[Tensor, "n k"] | None = None,
        continuous: tuple[str, ...] = (),
    ) -> None:
        super().__init__(name, tuple(names), tuple(sizes), tuple(table.shape[1:]), table)
        if labels.shape != (len(table), len(self.sizes)):
            raise UserError(
                f"The labels of {name} must have shape ({len(table)}, {len(self.sizes)}), with one row per example "
                f"and one column per factor. Got {tuple(labels.shape)} instead."
            )
        self.labels, self.continuous = labels.to(table.device), continuous
        self.label_values = None if label_values is None else label_values.to(table.device)

    def __len__(self) -> int:
        return len(self.table)

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b ..."]:
        """Return examples, float32 of shape (b, *shape). The pixels of images are in [0, 1]."""
        rows = self.table[index]
        return rows / 255 if rows.dtype == torch.uint8 else rows

    def _examples(self, index: Tensor) -> Tensor:
        return self.table[index]

    @property
    def missing_labels(self) -> dict[str, int]:
        """The number of missing labels of each factor that has any."""
        if self.label_values is None:
            return {}
        counts = self.label_values.isnan().sum(0).tolist()
        return {name: count for name, count in zip(self.names, counts, strict=True) if count}

    def _draw_uniform(self, noise: Noise, n: int) -> Int[Tensor, " n"]:
        return noise.integers(len(self.table), n)

    def to(self, device: str | torch.device) -> Labelled:
        """Return the same data on a different device."""
        moved = super().to(device)
        assert isinstance(moved, Labelled)
        moved.labels = self.labels.to(device)
        moved.label_values = None if self.label_values is None else self.label_values.to(device)
        return moved

    def select_rows(self, part: slice) -> Labelled:
        """Return a dataset of the same class that contains only the examples in `part`."""
        chosen = copy.copy(self)
        chosen.table, chosen.labels = self.table[part], self.labels[part]
        chosen.label_values = None if self.label_values is None else self.label_values[part]
        return chosen

    def factors_at(self, index: Int[Tensor, " n"]) -> Int[Tensor, "n k"]:
        """Return the labels of examples, without checking `index`."""
        return self.labels[index]

    def factor_values_at(self, index: Int[Tensor, " n"]) -> Float[Tensor, "n k"]:
        """Return what `factor_values` returns, without checking `index`."""
        return super().factor_values_at(index) if self.label_values is None else self.label_values[index]

    def index_of(self, factors: Int[Tensor, "n k"]) -> Int[Tensor, " n"]:
        """Raise a UserError, because labels do not identify a single example."""
        raise UserError(
            f"The examples of {self.name} do not form a full grid, so factor values do not identify a single example. "
            "Select rows of `labels` instead."
        )
