"""The base class of all datasets, and a dataset of black and white images that are stored as bits."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import Dataset

from unbraid.accel.capture import supports_kernels
from unbraid.errors import UserError, unknown_name_message
from unbraid.noise import Noise

if TYPE_CHECKING:
    from unbraid.data.holdout import Holdout

Progress: TypeAlias = Callable[[float], None]

# Types that the public methods accept. Everything except tensors is converted to a tensor first.
IndexLike: TypeAlias = Int[Tensor, " n"] | ArrayLike | Sequence[int] | slice | int
FactorsLike: TypeAlias = Int[Tensor, "n k"] | ArrayLike | Sequence[Sequence[int]]


class ExampleSampler(Protocol):
    """A distribution over the examples of a dataset, other than the uniform distribution."""

    def draw(self, data: FactorData, noise: Noise, n: int) -> Int[Tensor, " n"]:
        """Return the indices of `n` examples of `data`."""
        ...

    def to(self, device: str | torch.device) -> ExampleSampler:
        """Return the same sampler on a different device."""
        ...


class FactorData(Dataset[tuple[Tensor, Tensor]], ABC):
    """Examples with factors. Unless a subclass says otherwise, there is one example per combination of factor values.

    This class is a torch `Dataset` with items (example, factors), so a `DataLoader` accepts it.

    Examples are ordered so that the last factor varies fastest (C order). The subclass `Labelled` is for data whose
    labels do not form a full grid.

    Attributes:
        name: Name of the dataset, including its options.
        names: Names of the k factors.
        sizes: Number of values of each factor. The values of a factor are 0 to size - 1. The values of a continuous
            factor are the indices of its bins.
        shape: Shape of one example, which is (c, h, w) for images and (d,) for vectors.
        table: Stored examples on `device`. The subclass defines the format.
        grid: The sizes and strides of the factors, int64 of shape (2, k), on `device`.
        binary: Whether every pixel is 0 or 1.
        gridded: Whether there is exactly one example for each combination of factor values.
        grid_name: Name under which the same examples can be loaded as a full grid, or None.
        categorical: Names of the factors whose values have no order.
        continuous: Names of the factors that are continuous; `factor_values` returns their original numbers.
        cyclic: A mapping from each factor that is an angle or a hue to its period, which is the difference of two
            values that are a full turn apart. If the values 0 to size - 1 divide a full turn into equal steps, the
            period is size.
        sampler: Distribution from which `draw` chooses examples. None means the uniform distribution.
        holdout: Which examples are held out from training (see `unbraid.data.holdout`), or None if none are.
        successive: Whether successive examples may be successive in time. It is False for a selection of examples, for
            own data that were sorted into grid order, and for images whose file names have numbers in another order.
    """

    binary: bool = False
    gridded: bool = True
    grid_name: str | None = None
    categorical: tuple[str, ...] = ()
    continuous: tuple[str, ...] = ()
    cyclic: Mapping[str, float] = MappingProxyType({})
    sampler: ExampleSampler | None = None
    holdout: Holdout | None = None
    successive: bool = True

    def __init__(
        self, name: str, names: tuple[str, ...], sizes: tuple[int, ...], shape: tuple[int, ...], table: Tensor
    ) -> None:
        self.name, self.names, self.sizes, self.shape, self.table = name, names, sizes, shape, table
        self.grid = torch.tensor([self.sizes, self.strides], device=table.device)

    @property
    def device(self) -> torch.device:
        """The device on which examples are stored and returned."""
        return self.table.device

    @property
    def strides(self) -> tuple[int, ...]:
        """For each factor, the amount by which the index of an example increases when the factor increases by one."""
        return tuple(math.prod(self.sizes[i + 1 :]) for i in range(len(self.sizes)))

    def __len__(self) -> int:
        return math.prod(self.sizes)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return one example and its factors, as a torch `DataLoader` expects.

        Args:
            index: Index of the example. Negative indices count from the end.

        Returns:
            The example as input for a network, float32 of shape `shape` with pixels in [0, 1], and its k factors. The
            factors are int64, as from `factors`. If a factor is continuous, they are float64, as from `factor_values`.

        Raises:
            IndexError: If there is no such example.

        >>> import unbraid as ub
        >>> x, factors = ub.data.load("toy")[-1]
        >>> x.shape, factors.tolist()
        (torch.Size([16]), [7, 5, 4, 3])
        """
        if not -len(self) <= index < len(self):
            raise IndexError(f"The index of {self.name} must lie in 0..{len(self) - 1}. Got {index} instead.")
        return self.__getitems__([int(index) % len(self)])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
        """Return several items. A `DataLoader` calls this once per batch."""
        index = torch.as_tensor(indices, dtype=torch.int64, device=self.device)
        factors = self.factor_values_at(index) if self.continuous else self.factors_at(index)
        return list(zip(self.batch(index), factors, strict=True))

    def __repr__(self) -> str:
        grid = ", ".join(f"{name} {size}" for name, size in zip(self.names, self.sizes, strict=True))
        return f"{self.name}: {len(self):,} examples of shape {self.shape}, factors {grid}"

    def factors(self, index: IndexLike) -> Int[Tensor, "n k"]:
        """Return the factor values of examples.

        Args:
            index: Integers in 0 .. len(data) - 1 as a tensor, array or list of shape (n,), or a slice.

        Returns:
            Factor values, int64 of shape (n, k). The value of a continuous factor is the index of its bin, and a
            missing label is -1.

        Raises:
            UserError: If `index` has the wrong type or shape, or is out of range.
        """
        return self.factors_at(self._check_index(index))

    def factor_values(self, index: IndexLike) -> Float[Tensor, "n k"]:
        """Return the factor values of examples, with the original numbers of continuous factors.

        Args:
            index: Integers in 0 .. len(data) - 1 as a tensor, array or list of shape (n,), or a slice.

        Returns:
            Factor values, float64 of shape (n, k). A missing label is NaN. If no factor is continuous and no label is
            missing, the values are those of `factors`.

        Raises:
            UserError: If `index` has the wrong type or shape, or is out of range.
        """
        return self.factor_values_at(self._check_index(index))

    @property
    def missing_labels(self) -> dict[str, int]:
        """The number of missing labels of each factor that has any."""
        return {}

    def index(self, factors: FactorsLike) -> Int[Tensor, " n"]:
        """Return, for each row of factor values, the index of the example with these values.

        Args:
            factors: Integers of shape (n, k). The values in column j must be in 0 .. sizes[j] - 1.

        Returns:
            Indices, int64 of shape (n,).

        Raises:
            UserError: If `factors` has the wrong type or shape, if a value is out of range, or if the labels of the
                data do not form a full grid.
        """
        return self.index_of(self._check_factors(factors))

    def images(self, index: IndexLike) -> UInt8[Tensor, "n c h w"] | Float[Tensor, "n d"]:
        """Return examples as bytes (images) or as floats (vectors).

        Args:
            index: Integers in 0 .. len(data) - 1 as a tensor, array or list of shape (n,), or a slice.

        Returns:
            Images, uint8 of shape (n, c, h, w) with pixels from 0 to 255, or vectors, float32 of shape (n, d).

        Raises:
            UserError: If `index` has the wrong type or shape, or is out of range.
        """
        return self._examples(self._check_index(index))

    @abstractmethod
    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b ..."]:
        """Return examples as input for a network.

        `index` is not checked, because a check would force the host to wait for the device.

        Args:
            index: Indices, int64 of shape (b,), on `device` and in range.
            noise: Source of randomness for data with random parts, such as colours or backgrounds. If it is None, the
                random parts depend only on the index, so an example is always the same.

        Returns:
            Examples, float32 of shape (b, *shape). The pixels of images are in [0, 1].
        """

    @abstractmethod
    def _examples(self, index: Tensor) -> Tensor:
        """Return what `images` returns, without checking `index`."""

    def draw(self, noise: Noise, n: int) -> Int[Tensor, " n"]:
        """Draw examples independently, from `sampler` if there is one and uniformly otherwise.

        Args:
            noise: Source of randomness.
            n: Number of examples.

        Returns:
            Indices, int64 of shape (n,).
        """
        return self._draw_uniform(noise, n) if self.sampler is None else self.sampler.draw(self, noise, n)

    def _draw_uniform(self, noise: Noise, n: int) -> Int[Tensor, " n"]:
        return (noise.integers(self.grid[0], n, len(self.sizes)) * self.grid[1]).sum(-1)

    def draw_consecutive(self, noise: Noise, n: int) -> Int[Tensor, "n 2"]:
        """Draw pairs of examples that are successive in time. By default, a pair is a row of the data and the next row.

        Args:
            noise: Source of randomness.
            n: Number of pairs.

        Returns:
            Indices of the two examples of each pair, the earlier one first, int64 of shape (n, 2).
        """
        row = noise.integers(len(self) - 1, n)
        return torch.stack([row, row + 1], 1)

    def to(self, device: str | torch.device) -> FactorData:
        """Return the same data on a different device. If the data are already there, they are not copied.

        Args:
            device: A device, such as "cuda".

        Returns:
            A dataset of the same class.
        """
        moved = copy.copy(self)
        moved.table, moved.grid = self.table.to(device), self.grid.to(device)
        moved.sampler = None if self.sampler is None else self.sampler.to(device)
        return moved

    def factors_at(self, index: Int[Tensor, " n"]) -> Int[Tensor, "n k"]:
        """Return what `factors` returns, without checking `index`."""
        grid = zip(self.strides, self.sizes, strict=True)
        return torch.stack([index // stride % size for stride, size in grid], -1)

    def factor_values_at(self, index: Int[Tensor, " n"]) -> Float[Tensor, "n k"]:
        """Return what `factor_values` returns, without checking `index`."""
        return self.factors_at(index).double()

    def index_of(self, factors: Int[Tensor, "n k"]) -> Int[Tensor, " n"]:
        """Return what `index` returns, without checking `factors`."""
        columns = zip(factors.unbind(-1), self.strides, strict=True)
        return torch.stack([column * stride for column, stride in columns], -1).sum(-1)

    def _check_index(self, index: IndexLike) -> Int[Tensor, " n"]:
        """Convert `index` to an int64 tensor on `device`, or raise a UserError if it is not valid."""
        if isinstance(index, slice):
            index = np.arange(*index.indices(len(self)))
        what = f"The 'index' of {self.name}"
        rows = _integer_tensor(index, what).to(self.device)
        if rows.ndim != 1:
            raise UserError(
                f"{what} must have shape (n,). Got {tuple(rows.shape)} instead. Put a single index in a list."
            )
        _check_range(rows, len(self), what)
        return rows

    def _check_factors(self, factors: FactorsLike) -> Int[Tensor, "n k"]:
        """Convert `factors` to an int64 tensor on `device`, or raise a UserError if they are not valid."""
        what, k = f"The 'factors' of {self.name}", len(self.sizes)
        rows = _integer_tensor(factors, what).to(self.device)
        if rows.ndim != 2 or rows.shape[1] != k:
            order = ", ".join(self.names)
            raise UserError(
                f"{what} must have shape (n, {k}). Got {tuple(rows.shape)} instead. The columns are {order}."
            )
        for column, name, size in zip(rows.unbind(1), self.names, self.sizes, strict=True):
            _check_range(column, size, f"The factor '{name}' of {self.name}")
        return rows


class BinaryImages(FactorData):
    """Black and white images stored as bits.

    `table` is uint8 of shape (n, c * h * w / 8). Pixel j of a flattened image is bit j % 8 of byte j // 8.
    """

    binary = True

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b c h w"]:
        """Return images, float32 of shape (b, c, h, w), in which every pixel is 0 or 1."""
        if supports_kernels(self.device):
            from unbraid.accel.kernels.bits import Unpack

            return cast(Tensor, Unpack.apply(self.table, index, self.shape))  # type: ignore[no-untyped-call]
        return self._pixels(index).float()

    def _examples(self, index: Tensor) -> Tensor:
        return self._pixels(index) * 255

    def _pixels(self, index: Tensor) -> Tensor:
        bit = torch.arange(8, dtype=torch.uint8, device=self.device)
        return (self.table[index].unsqueeze(-1) >> bit & 1).view(*index.shape, *self.shape)


def factor_index(data: FactorData, name: str) -> int:
    """Return the column of a factor, or raise a UserError if the dataset has no factor of this name."""
    if name not in data.names:
        raise UserError(unknown_name_message(f"factor of {data.name}", name, list(data.names)))
    return data.names.index(name)


def _integer_tensor(values: object, what: str) -> Tensor:
    """Convert `values` to an int64 tensor, or raise a UserError if they are not integers.

    An empty list is accepted, although numpy converts it to floats.
    """
    rows = values.detach() if isinstance(values, Tensor) else _rectangular_array(values, what)
    kind = str(rows.dtype).removeprefix("torch.")
    if rows.shape != (0,) and not kind.startswith(("int", "uint")):
        hint = " Use mask.nonzero() to select by mask." if kind == "bool" else ""
        raise UserError(f"{what} must be integers. Got {kind} instead.{hint}")
    return rows.long() if isinstance(rows, Tensor) else torch.from_numpy(rows.astype(np.int64))


def _rectangular_array(values: object, what: str) -> np.ndarray[Any, np.dtype[Any]]:
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
