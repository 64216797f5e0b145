"""Where the parameters of a module lie in the flat row that kernels read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

ALIGN = 8  # elements: 16 bytes of bfloat16, the widest load
ROW = 64  # a row's length is a multiple of it, so that every run's begins aligned


def padded(n: int, multiple: int = 16) -> int:
    """The next multiple, for matrix products on whole tiles."""
    return -(-n // multiple) * multiple


@dataclass(frozen=True)
class Slot:
    """A stretch of the row and the shape it is read in."""

    start: int
    shape: tuple[int, ...]

    @property
    def stop(self) -> int:
        return self.start + math.prod(self.shape)

    def flat(self, rows: Tensor) -> Tensor:
        """This stretch of every row."""
        return rows[:, self.start : self.stop]

    def of(self, rows: Tensor) -> Tensor:
        """The same in its shape."""
        shaped: Tensor = self.flat(rows).unflatten(1, self.shape)
        return shaped


class Packing:
    """Parameters in the order of the module that owns them, each rearranged and padded as its kernel wants it."""

    def __init__(self) -> None:
        self.used = 0
        self.where = torch.zeros(0, dtype=torch.int64)
        self.gaps: list[tuple[int, int]] = []

    def add(self, shape: torch.Size, arrange: Callable[[Tensor], Tensor]) -> Slot:
        """Room for a parameter; `arrange` permutes and pads it (with -1, as it is shown where elements come from)."""
        placed = arrange(torch.arange(shape.numel()).view(shape)).contiguous()
        source = placed.flatten()
        found = torch.empty(shape.numel(), dtype=torch.int64)
        at = (source >= 0).nonzero().flatten()
        found[source[at]] = at + self.used
        slot = Slot(self.used, tuple(placed.shape))
        self.where = torch.cat([self.where, found])
        self.used = padded(slot.stop, ALIGN)
        self.gaps.append((slot.stop, self.used))
        return slot

    @property
    def size(self) -> int:
        """The length of the row."""
        return padded(self.used, ROW)

    def gradient(self, like: Tensor) -> Tensor:
        """Room for gradients of every run, (r, size), zero where no kernel writes."""
        room = torch.empty(len(like), self.size, device=like.device)
        for start, stop in [*self.gaps, (self.used, self.size)]:
            if stop > start:
                room[:, start:stop].zero_()
        return room


def taps4(channels: int) -> Callable[[Tensor], Tensor]:
    """A 4x4 weight (O, C, 4, 4) as (dy, dx, py, px, C, O), C padded to `channels`."""

    def arrange(w: Tensor) -> Tensor:
        o, c = w.shape[:2]
        parts = w.view(o, c, 2, 2, 2, 2).permute(2, 4, 3, 5, 1, 0)
        return F.pad(parts, (0, 0, 0, channels - c), value=-1)

    return arrange


def taps2(w: Tensor) -> Tensor:
    """A 2x2 weight (O, C, 2, 2) as (py, px, C, O)."""
    return w.permute(2, 3, 1, 0)


def vector(size: int) -> Callable[[Tensor], Tensor]:
    """A bias padded to `size`."""
    return lambda b: F.pad(b, (0, size - len(b)), value=-1)


def matrix(
    inputs: int, outputs: int, before: tuple[int, ...] = (), after: tuple[int, ...] = ()
) -> Callable[[Tensor], Tensor]:
    """A dense weight (out, in) as (in, out), padded; images (c, h, w) on either side become (h, w, c)."""

    def arrange(w: Tensor) -> Tensor:
        out, into = w.shape
        rows = torch.arange(into) if not before else last(torch.arange(into), before)
        columns = torch.arange(out) if not after else last(torch.arange(out), after)
        return F.pad(w.T[rows][:, columns], (0, outputs - out, 0, inputs - into), value=-1)

    return arrange


def last(flat: Tensor, image: tuple[int, ...]) -> Tensor:
    """Flattened (c, h, w) as flattened (h, w, c)."""
    return flat.view(image).permute(1, 2, 0).reshape(-1)
