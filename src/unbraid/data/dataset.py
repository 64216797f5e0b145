"""What every dataset is: a full grid of factors, and one image or vector for each point of the grid."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from numpy.typing import ArrayLike
from torch import Tensor

from unbraid.accel.capture import kernels_on
from unbraid.errors import UserError
from unbraid.noise import Noise

Progress: TypeAlias = Callable[[float], None]

# What public methods take: the tensor is the documented form, the rest reaches the checks below.
Rows: TypeAlias = Int[Tensor, " n"] | ArrayLike | Sequence[int] | slice | int
Values: TypeAlias = Int[Tensor, "n k"] | ArrayLike | Sequence[Sequence[int]]


class Law(Protocol):
    """Another way to draw examples than uniformly."""

    def draw(self, data: FactorData, noise: Noise, n: int) -> Int[Tensor, " n"]: ...

    def to(self, device: str | torch.device) -> Law: ...


class FactorData(ABC):
    """Examples indexed by a full grid of factors in C order, the last factor fastest.

    `shape` is that of one example: (c, h, w) for images, (d,) for vectors. `table` has one row an example, in whatever
    form the subclass keeps it, and lives on `device`. `binary` says that every pixel is 0 or 1, `categorical` names the
    factors whose values have no order, `gridded` says that there is one example for each combination of values.
    """

    binary: bool = False
    gridded: bool = True
    categorical: tuple[str, ...] = ()
    law: Law | None = None

    def __init__(
        self, name: str, names: tuple[str, ...], sizes: tuple[int, ...], shape: tuple[int, ...], table: Tensor
    ) -> None:
        self.name, self.names, self.sizes, self.shape, self.table = name, names, sizes, shape, table
        self.grid = torch.tensor([self.sizes, self.strides], device=table.device)

    @property
    def device(self) -> torch.device:
        """Where the examples are kept and returned."""
        return self.table.device

    @property
    def strides(self) -> tuple[int, ...]:
        """How far the index moves when a factor moves by one."""
        return tuple(math.prod(self.sizes[i + 1 :]) for i in range(len(self.sizes)))

    def __len__(self) -> int:
        return math.prod(self.sizes)

    def __repr__(self) -> str:
        grid = ", ".join(f"{name} {size}" for name, size in zip(self.names, self.sizes, strict=True))
        return f"{self.name}: {len(self):,} examples of shape {self.shape}, factors {grid}"

    def factors(self, index: Rows) -> Int[Tensor, "n k"]:
        """The factor values of the examples at `index`."""
        return self.unplace(self._checked_index(index))

    def index(self, factors: Values) -> Int[Tensor, " n"]:
        """Where in the grid the rows of `factors` lie."""
        return self.place(self._checked_factors(factors))

    def images(self, index: Rows) -> UInt8[Tensor, "n c h w"] | Float[Tensor, "n d"]:
        """The examples at `index`: pixels from 0 to 255, or vectors."""
        return self._examples(self._checked_index(index))

    @abstractmethod
    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b ..."]:
        """The examples at `index` as a network takes them, float32, images in [0, 1].

        Nothing is checked and the host never waits for the device, so `index` is int64 on `device` and in range.
        Data with chance of its own (colours, backgrounds) takes it from the `noise` of the run that draws, and without
        it from the index, so that an example is always the same.
        """

    @abstractmethod
    def _examples(self, index: Tensor) -> Tensor:
        """`images` without the checks."""

    def draw(self, noise: Noise, n: int) -> Int[Tensor, " n"]:
        """The indices of n examples drawn independently: uniformly, factor by factor, or by a law of the user's."""
        return self._uniform(noise, n) if self.law is None else self.law.draw(self, noise, n)

    def _uniform(self, noise: Noise, n: int) -> Int[Tensor, " n"]:
        return (noise.integers(self.grid[0], n, len(self.sizes)) * self.grid[1]).sum(-1)

    def to(self, device: str | torch.device) -> FactorData:
        """The same data on another device; a table that is already there is shared, not copied."""
        moved = copy.copy(self)
        moved.table, moved.grid = self.table.to(device), self.grid.to(device)
        moved.law = None if self.law is None else self.law.to(device)
        return moved

    def unplace(self, index: Int[Tensor, " n"]) -> Int[Tensor, "n k"]:
        """`factors` without the checks."""
        grid = zip(self.strides, self.sizes, strict=True)
        return torch.stack([index // stride % size for stride, size in grid], -1)

    def place(self, factors: Int[Tensor, "n k"]) -> Int[Tensor, " n"]:
        """`index` without the checks."""
        columns = zip(factors.unbind(-1), self.strides, strict=True)
        return torch.stack([column * stride for column, stride in columns], -1).sum(-1)

    def _checked_index(self, index: Rows) -> Int[Tensor, " n"]:
        if isinstance(index, slice):
            index = np.arange(*index.indices(len(self)))
        what = f"The 'index' of {self.name}"
        rows = _integers(index, what).to(self.device)
        if rows.ndim != 1:
            raise UserError(
                f"{what} must have shape (n,). Got {tuple(rows.shape)} instead. Put a single index in a list."
            )
        _check_range(rows, len(self), what)
        return rows

    def _checked_factors(self, factors: Values) -> Int[Tensor, "n k"]:
        what, k = f"The 'factors' of {self.name}", len(self.sizes)
        rows = _integers(factors, what).to(self.device)
        if rows.ndim != 2 or rows.shape[1] != k:
            order = ", ".join(self.names)
            raise UserError(f"{what} must have shape (n, {k}). Got {tuple(rows.shape)} instead. Columns are {order}.")
        for column, name, size in zip(rows.unbind(1), self.names, self.sizes, strict=True):
            _check_range(column, size, f"The factor '{name}' of {self.name}")
        return rows


class BinaryImages(FactorData):
    """Black and white images as bits: uint8 (n, c * h * w / 8), pixel j of an image being bit j % 8 of byte j // 8."""

    binary = True

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b c h w"]:
        """The images at `index`, every pixel 0 or 1."""
        if kernels_on(self.device):
            from unbraid.accel.kernels.bits import Unpack

            return cast(Tensor, Unpack.apply(self.table, index, self.shape))  # type: ignore[no-untyped-call]
        return self._pixels(index).float()

    def _examples(self, index: Tensor) -> Tensor:
        return self._pixels(index) * 255

    def _pixels(self, index: Tensor) -> Tensor:
        bit = torch.arange(8, dtype=torch.uint8, device=self.device)
        return (self.table[index].unsqueeze(-1) >> bit & 1).view(*index.shape, *self.shape)


def _integers(values: object, what: str) -> Tensor:
    """`values` as an int64 tensor; an empty list has no type of its own and passes."""
    rows = values.detach() if isinstance(values, Tensor) else _array(values, what)
    kind = str(rows.dtype).removeprefix("torch.")
    if rows.shape != (0,) and not kind.startswith(("int", "uint")):
        hint = " Use mask.nonzero() to select by mask." if kind == "bool" else ""
        raise UserError(f"{what} must be integers. Got {kind} instead.{hint}")
    return rows.long() if isinstance(rows, Tensor) else torch.from_numpy(rows.astype(np.int64))


def _array(values: object, what: str) -> np.ndarray[Any, np.dtype[Any]]:
    try:
        return np.asarray(values)
    except ValueError:
        raise UserError(
            f"{what} must be a rectangular array of integers. Got rows of unequal length instead."
        ) from None


def _check_range(values: Tensor, size: int, what: str) -> None:
    outside = values[(values < 0) | (values >= size)]
    if len(outside):
        raise UserError(f"{what} must lie in 0..{size - 1}. Got {int(outside[0])} instead.")
