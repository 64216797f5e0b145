"""The places of the parameters of a module in the flat row that kernels read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

ALIGN = 8  # elements: 16 bytes of bfloat16, the widest load
ROW = 64  # the length of a row is a multiple of this, so that the row of every run begins aligned


def round_up(n: int, multiple: int = 16) -> int:
    """The smallest multiple that is at least n."""
    return -(-n // multiple) * multiple


@dataclass(frozen=True)
class Slot:
    """A part of the row, and the shape of the parameter in it."""

    start: int
    shape: tuple[int, ...]

    @property
    def stop(self) -> int:
        return self.start + math.prod(self.shape)

    def flat(self, rows: Tensor) -> Tensor:
        """This part of every row, (r, size)."""
        return rows[:, self.start : self.stop]

    def of(self, rows: Tensor) -> Tensor:
        """This part of every row, (r, *shape)."""
        shaped: Tensor = self.flat(rows).unflatten(1, self.shape)
        return shaped


class Packing:
    """The parameters of a module in their order, each rearranged and padded for its kernel.

    Element i of the concatenated parameters is element `where[i]` of the row.
    """

    def __init__(self) -> None:
        self.used = 0
        self.where = torch.zeros(0, dtype=torch.int64)
        self.gaps: list[tuple[int, int]] = []

    def add(self, shape: torch.Size, arrange: Callable[[Tensor], Tensor]) -> Slot:
        """Reserve a place for a parameter.

        `arrange` permutes and pads it. It is called with the indices of the elements, and pads with -1.
        """
        placed = arrange(torch.arange(shape.numel()).view(shape)).contiguous()
        source = placed.flatten()
        where = torch.empty(shape.numel(), dtype=torch.int64)
        at = (source >= 0).nonzero().flatten()
        where[source[at]] = at + self.used
        slot = Slot(self.used, tuple(placed.shape))
        self.where = torch.cat([self.where, where])
        self.used = round_up(slot.stop, ALIGN)
        self.gaps.append((slot.stop, self.used))
        return slot

    @property
    def size(self) -> int:
        """The length of the row."""
        return round_up(self.used, ROW)

    def gradient(self, like: Tensor) -> Tensor:
        """Allocate gradients for every run, (r, size), with zeros where no kernel writes."""
        gradient = torch.empty(len(like), self.size, device=like.device)
        for start, stop in [*self.gaps, (self.used, self.size)]:
            if stop > start:
                gradient[:, start:stop].zero_()
        return gradient


def arrange_4x4(channels: int) -> Callable[[Tensor], Tensor]:
    """Arrange a 4x4 weight (O, C, 4, 4) as (dy, dx, py, px, C, O), with C padded to `channels`."""

    def arrange(w: Tensor) -> Tensor:
        o, c = w.shape[:2]
        parts = w.view(o, c, 2, 2, 2, 2).permute(2, 4, 3, 5, 1, 0)
        return F.pad(parts, (0, 0, 0, channels - c), value=-1)

    return arrange


def arrange_2x2(w: Tensor) -> Tensor:
    """Arrange a 2x2 weight (O, C, 2, 2) as (py, px, C, O)."""
    return w.permute(2, 3, 1, 0)


def arrange_vector(size: int) -> Callable[[Tensor], Tensor]:
    """Pad a bias to `size`."""
    return lambda b: F.pad(b, (0, size - len(b)), value=-1)


def arrange_matrix(
    inputs: int, outputs: int, before: tuple[int, ...] = (), after: tuple[int, ...] = ()
) -> Callable[[Tensor], Tensor]:
    """Arrange a dense weight (out, in) as (in, out), padded.

    If the input (`before`) or output (`after`) is a flattened image (c, h, w), its order becomes (h, w, c).
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
