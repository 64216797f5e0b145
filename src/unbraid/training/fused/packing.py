"""The arrangement of the parameters of a module in the flat row that kernels read.

A *slot* is the part of the row that contains one parameter. Within its slot, a parameter is permuted and padded as its
kernel requires, and slots begin at aligned addresses. Padding elements are always zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

ALIGN = 8  # in elements; 8 bfloat16 numbers are 16 bytes, which is the widest load of a GPU
ROW_MULTIPLE = 64  # the length of a row is a multiple of this, so the row of every run is aligned


def round_up(n: int, multiple: int = 16) -> int:
    """Round n up to a multiple of `multiple`."""
    return -(-n // multiple) * multiple


@dataclass(frozen=True)
class Slot:
    """A part of the row that contains one parameter. It begins at index `start`, and `shape` includes the padding."""

    start: int
    shape: tuple[int, ...]

    @property
    def stop(self) -> int:
        """Index after the last element."""
        return self.start + math.prod(self.shape)

    def flat_view(self, rows: Tensor) -> Tensor:
        """Return this part of every row, (r, size)."""
        return rows[:, self.start : self.stop]

    def view(self, rows: Tensor) -> Tensor:
        """Return this part of every row as parameters, (r, *shape)."""
        shaped: Tensor = self.flat_view(rows).unflatten(1, self.shape)
        return shaped


class Packing:
    """The slots of the parameters of a module, in the order of the parameters.

    Attributes:
        used: Index after the last slot so far, rounded up to an aligned address.
        positions: Element i of the concatenated parameters is element `positions[i]` of the row.
        gaps: Start and stop of the unused elements after each slot.
    """

    def __init__(self) -> None:
        self.used = 0
        self.positions = torch.zeros(0, dtype=torch.int64)
        self.gaps: list[tuple[int, int]] = []

    def add(self, shape: torch.Size, arrange: Callable[[Tensor], Tensor]) -> Slot:
        """Reserve a slot for a parameter.

        Args:
            shape: Shape of the parameter.
            arrange: Function that permutes a parameter and pads it with -1. It is called with the indices of the
                elements instead of their values.
        """
        arranged = arrange(torch.arange(shape.numel()).view(shape)).contiguous()
        source = arranged.flatten()
        positions = torch.empty(shape.numel(), dtype=torch.int64)
        real = (source >= 0).nonzero().flatten()
        positions[source[real]] = real + self.used
        slot = Slot(self.used, tuple(arranged.shape))
        self.positions = torch.cat([self.positions, positions])
        self.used = round_up(slot.stop, ALIGN)
        self.gaps.append((slot.stop, self.used))
        return slot

    @property
    def size(self) -> int:
        """The number of elements of the row."""
        return round_up(self.used, ROW_MULTIPLE)

    def empty_gradient(self, like: Tensor) -> Tensor:
        """Allocate a row of gradients per run, (r, size), with zeros between the slots, where no kernel writes."""
        gradient = torch.empty(len(like), self.size, device=like.device)
        for start, stop in [*self.gaps, (self.used, self.size)]:
            if stop > start:
                gradient[:, start:stop].zero_()
        return gradient


def arrange_4x4(channels: int) -> Callable[[Tensor], Tensor]:
    """Return a function that arranges a 4x4 weight (O, C, 4, 4) as (dy, dx, py, px, C, O), with C padded to `channels`.

    Element (y, x) of the kernel has y = 2 dy + py and x = 2 dx + px.
    """

    def arrange(w: Tensor) -> Tensor:
        o, c = w.shape[:2]
        parts = w.view(o, c, 2, 2, 2, 2).permute(2, 4, 3, 5, 1, 0)
        return F.pad(parts, (0, 0, 0, channels - c), value=-1)

    return arrange


def arrange_2x2(w: Tensor) -> Tensor:
    """Arrange a 2x2 weight (O, C, 2, 2) as (py, px, C, O)."""
    return w.permute(2, 3, 1, 0)


def arrange_vector(size: int) -> Callable[[Tensor], Tensor]:
    """Return a function that pads a bias to `size`."""
    return lambda b: F.pad(b, (0, size - len(b)), value=-1)


def arrange_matrix(
    inputs: int, outputs: int, before: tuple[int, ...] = (), after: tuple[int, ...] = ()
) -> Callable[[Tensor], Tensor]:
    """Return a function that arranges a dense weight (out, in) as (in, out), padded to (inputs, outputs).

    If `before` = (c, h, w) is given, the input is a flattened image of this shape, and its elements are reordered to
    (h, w, c). The same holds for `after` and the output.
    """

    def arrange(w: Tensor) -> Tensor:
        out, into = w.shape
        rows = torch.arange(into) if not before else channels_last_order(torch.arange(into), before)
        columns = torch.arange(out) if not after else channels_last_order(torch.arange(out), after)
        return F.pad(w.T[rows][:, columns], (0, outputs - out, 0, inputs - into), value=-1)

    return arrange


def channels_last_order(flat: Tensor, image: tuple[int, ...]) -> Tensor:
    """Reorder a flattened image (c, h, w) to a flattened image (h, w, c)."""
    return flat.view(image).permute(1, 2, 0).reshape(-1)
