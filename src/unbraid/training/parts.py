"""A part of the batch of a step, for several processes that compute the gradient of one batch together.

Every process draws the same whole batch and the same noise as a single process does, and keeps its part of them. The
examples of a batch may belong together: the first half of a batch of pairs contains the first example of each pair. A
*group* is a set of examples that were drawn together, such as a pair, and a *block* contains one row for each group. A
batch of pairs has two blocks. Every part contains the same groups of all blocks.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unbraid.methods.method import Batch
from unbraid.noise import Noise, as_bytes, noise_kernels


@dataclass
class NoiseOfPart(Noise):
    """The random numbers that one part of a batch has in the draws for the whole batch.

    A draw whose first dimension has one row for each group of the part, for at most `blocks` blocks, is drawn for the
    whole batch, and the rows of the part are returned. Any other draw is the same in all parts.

    Attributes:
        index: The index of the part.
        count: The number of parts.
        groups: The number of groups of the whole batch.
        blocks: The number of blocks of the batch.
    """

    index: int = 0
    count: int = 1
    groups: int = 1
    blocks: int = 1

    def bytes(self, *shape: int) -> Tensor:
        if noise_kernels(self.key.device) is not None:
            return super().bytes(*shape)
        whole = self._whole(shape)
        return self._rows(as_bytes(super()._words((math.prod(whole) // 8,))).view(whole), shape)

    def _words(self, shape: tuple[int, ...]) -> Tensor:
        if noise_kernels(self.key.device) is not None:
            return super()._words(shape)  # it calls `_draw_in_kernel`
        return self._rows(super()._words(self._whole(shape)), shape)

    def _draw_in_kernel(self, kernels: Any, kind: int, shape: tuple[int, ...], draw: int | None = None) -> Tensor:
        return self._rows(super()._draw_in_kernel(kernels, kind, self._whole(shape), draw), shape)

    def _whole(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the draw for the whole batch, or `shape` if the draw is the same in all parts."""
        part = self.groups // self.count
        per_group = bool(shape) and shape[0] % part == 0 and 0 < shape[0] // part <= self.blocks
        return (shape[0] * self.count, *shape[1:]) if per_group else shape

    def _rows(self, drawn: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return the rows of the part, of shape `shape`, of a draw for the whole batch."""
        return drawn if drawn.shape == shape else rows_of_part(drawn, self.groups, self.index, self.count)


def rows_of_part(rows: Tensor, groups: int, index: int, count: int) -> Tensor:
    """Return the rows of part `index` of `count` parts: the same groups of every block.

    >>> rows_of_part(torch.arange(8), groups=4, index=1, count=2)
    tensor([2, 3, 6, 7])
    """
    part = groups // count
    blocks: Tensor = rows.unflatten(0, (-1, groups))
    return blocks[:, index * part : (index + 1) * part].flatten(0, 1)


@dataclass(frozen=True)
class BatchPart:
    """The part of each batch that one process computes. A subclass connects the processes.

    Attributes:
        index: The index of the part.
        count: The number of parts, and of processes.
    """

    index: int
    count: int

    def take(self, batch: Batch, noise: Sequence[Noise], groups: int) -> tuple[Batch, list[Noise]]:
        """Return the part of a batch with this number of groups, and the noise of the part."""
        x, changed, labels = (self._rows(rows, groups) for rows in (batch.x, batch.changed, batch.labels))
        assert x is not None
        blocks = len(batch.x) // groups
        parts: list[Noise] = [
            NoiseOfPart(stream.key, stream.draws, self.index, self.count, groups, blocks) for stream in noise
        ]
        return dataclasses.replace(batch, x=x, changed=changed, labels=labels), parts

    def _rows(self, rows: Tensor | None, groups: int) -> Tensor | None:
        """Return the rows of the part. A tensor without one row per group in each block is the same in all parts."""
        if rows is None or rows.dim() == 0 or len(rows) % groups:
            return rows
        return rows_of_part(rows, groups, self.index, self.count)

    def begin_step(self) -> None:
        """Tell the other processes that a step begins. By default there are none."""

    def add_up(self, numbers: Tensor) -> None:
        """Replace the numbers of every process by their sums over all processes. By default there are no others."""

    def average(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the means of tensors over all processes. Every process gets the same bits."""
        numbers = torch.cat([tensor.reshape(-1) for tensor in tensors])
        self.add_up(numbers)
        parts = (numbers / self.count).split([tensor.numel() for tensor in tensors])
        return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]
