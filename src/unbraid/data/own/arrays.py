"""Make datasets from users' own arrays."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int, Real, UInt8
from numpy.typing import ArrayLike
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.in_memory import ByteImages, Labelled
from unbraid.errors import UserError
from unbraid.noise import Noise

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Label: TypeAlias = int | float | str

# Types that the public functions accept. Everything except arrays is converted to an array first.
Examples: TypeAlias = Real[Tensor, "n ..."] | Real[np.ndarray, "n ..."] | ArrayLike
Factors: TypeAlias = Real[Tensor, "n ..."] | Real[np.ndarray, "n ..."] | ArrayLike

LAYOUTS = ("hw", "hwc", "chw")
CHANNELS = (1, 3)
CHUNK = 1024  # number of images that are checked and scaled at once


@dataclass(frozen=True)
class Labels:
    """Labels as integers, and the original values that they stand for.

    Attributes:
        numbers: `numbers[i, j]` is the integer label of factor j in example i.
        values: `values[name][i]` is the original value of the factor `name` that the integer i stands for.
    """

    numbers: Int[np.ndarray, "n k"]
    values: dict[str, list[Label]]

    @classmethod
    def from_columns(cls, names: Sequence[str], columns: Sequence[Sequence[Label]], n: int) -> Labels:
        """Convert the values in each column to integers, in sorted order. Columns with a single value are omitted.

        Args:
            names: Names of the factors.
            columns: For each factor, the values of all n examples.
            n: Number of examples.
        """
        values = {name: _sort_values(set(column)) for name, column in zip(names, columns, strict=True)}
        numbers = np.empty((n, 0), np.int64)
        for name, column in zip(names, columns, strict=True):
            number = {value: i for i, value in enumerate(values[name])}
            if len(number) > 1:
                numbers = np.column_stack([numbers, np.array([number[value] for value in column], np.int64)])
        return cls(numbers, {name: distinct for name, distinct in values.items() if len(distinct) > 1})

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of values of each factor."""
        return tuple(map(len, self.values.values()))

    @property
    def categorical(self) -> tuple[str, ...]:
        """The names of the factors whose values are words."""
        return tuple(name for name, values in self.values.items() if isinstance(values[0], str))

    def grid_order(self) -> Int[np.ndarray, " n"] | None:
        """Return the row indices that sort the rows into grid order (last factor fastest).

        Return None unless each combination of values occurs exactly once.
        """
        n = len(self.numbers)
        if not self.sizes or math.prod(self.sizes) != n:
            return None
        index = np.ravel_multi_index(tuple(self.numbers.T), self.sizes)
        order = np.argsort(index)
        return order if np.array_equal(index[order], np.arange(n)) else None

    def select_rows(self, rows: Int[np.ndarray, " m"]) -> Labels:
        """Return the labels of the given rows."""
        return Labels(self.numbers[rows], self.values)


class OwnData(FactorData):
    """A dataset made from a user's own data.

    Attributes:
        values: `values[name][i]` is the original value of the factor `name` that the label i stands for.
        source: Digest of the files that the data were read from. Empty for data that were passed as arrays.
    """

    values: dict[str, list[Label]]
    source: str = ""

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest that changes when the data change. It is `source`, or else a digest of the arrays."""
        if self.source:
            return self.source
        digest = hashlib.sha256(f"{self.shape} {self.sizes} {self.values}".encode())
        digest.update(self.table.cpu().contiguous().numpy().data)
        digest.update(self.factors(slice(None)).cpu().contiguous().numpy().data)
        return digest.hexdigest()[:16]

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {size}" for name, size in zip(self.names, self.sizes, strict=True))
        factors = f"factors {sizes}{'' if self.gridded else ' (not a full grid)'}" if sizes else "no factors"
        return f"{self.name}: {len(self):,} examples of shape {self.shape}, {factors}"


class OwnImages(OwnData, ByteImages):
    """A user's own images, with one image for each combination of factor values."""


class OwnVectors(OwnData):
    """A user's own vectors, float32 of shape (n, d), with one vector for each combination of factor values."""

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b d"]:
        """Return vectors, float32 of shape (b, d)."""
        return self.table[index]

    def _examples(self, index: Tensor) -> Tensor:
        return self.table[index]


class OwnExamples(OwnData, Labelled):
    """A user's own images or vectors that have no labels, or whose labels do not form a full grid."""


def from_arrays(
    images: Examples,
    factors: Factors | None = None,
    *,
    names: Sequence[str] | None = None,
    name: str = "arrays",
    layout: str | None = None,
    device: str | torch.device = "cpu",
) -> OwnData:
    """Make a dataset from arrays or tensors.

    If there is exactly one example for each combination of factor values, the examples are sorted so that the last
    factor varies fastest. Otherwise their order does not change. Uint8 images that are already contiguous with shape
    (n, c, h, w) are not copied.

    Args:
        images: Images of shape (n, h, w), (n, h, w, c) or (n, c, h, w) with c = 1 or 3, or vectors of shape (n, d).
            Pixels are integers from 0 to 255, or floats in [0, 1], which are rounded to multiples of 1/255. If all
            pixels are the integers 0 or 1, they stand for black and white. Vectors must be floats.
        factors: Integers of shape (n, k), or (n,) for a single factor. None means no labels. Factors with a single
            value are omitted.
        names: Names of the k factors. The default is "factor0", "factor1" and so on, or "label" for a single factor.
        name: Name of the dataset.
        layout: Order of the axes of one image, which is "hw", "hwc" or "chw". By default, it is inferred from the axis
            that has length 1 or 3.
        device: Device on which to store the examples.

    Returns:
        The dataset. Its attribute `gridded` is true if there is exactly one example for each combination of factor
        values. Its attribute `values` contains the original values of each factor.

    Raises:
        UserError: If an array has the wrong shape, type or range, or if the layout is ambiguous.

    >>> import numpy as np
    >>> from_arrays(np.zeros((6, 8, 8), np.uint8), [[i % 3, i // 3] for i in range(6)], names=["x", "y"])
    arrays: 6 examples of shape (1, 8, 8), factors x 3, y 2
    """
    array = numeric_array(images, "Examples")
    if array.ndim == 0 or 0 in array.shape:
        raise UserError(f"There must be at least one example. Got an array of shape {array.shape} instead.")
    table = (
        _float_vectors(array) if array.ndim == 2 and layout is None else _byte_images(_channels_first(array, layout))
    )
    return assemble_data(name, torch.from_numpy(table), labels_from_factors(factors, names, len(table)), device)


def assemble_data(
    name: str,
    table: UInt8[Tensor, "n c h w"] | Float[Tensor, "n d"],
    labels: Labels,
    device: str | torch.device = "cpu",
    source: str = "",
) -> OwnData:
    """Make a dataset from examples and labels. If the labels form a full grid, sort the examples into grid order."""
    names, sizes, order = tuple(labels.values), labels.sizes, labels.grid_order()
    if order is not None and not np.array_equal(order, np.arange(len(order))):
        table = table[torch.from_numpy(order)]
    data: OwnData
    if order is None:
        data = OwnExamples(name, names, sizes, table.to(device), torch.from_numpy(labels.numbers))
    else:
        kind = OwnImages if table.dtype == torch.uint8 else OwnVectors
        data = kind(name, names, sizes, tuple(table.shape[1:]), table.to(device))
    data.values, data.categorical, data.source = labels.values, labels.categorical, source
    return data


def labels_from_factors(factors: Factors | None, names: Sequence[str] | None, n: int) -> Labels:
    """Convert factors of n examples, of shape (n, k) or (n,), to labels. None means no factors."""
    if factors is None:
        if names:
            raise UserError(
                f"Names of factors need factors. Got the names {', '.join(names)} without factors. Pass `factors`, too."
            )
        return Labels(np.empty((n, 0), np.int64), {})
    rows = numeric_array(factors, "Factors")
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.ndim != 2 or len(rows) != n:
        raise UserError(f"Factors must have shape ({n}, k), one row per example. Got shape {rows.shape} instead.")
    if rows.dtype.kind == "f" and not (whole := rows == np.rint(rows)).all():
        raise UserError(
            f"Factors must be whole numbers. Got {rows[~whole][0]} instead. Divide continuous factors into bins, "
            "for example with np.digitize(v, np.linspace(v.min(), v.max(), 10))."
        )
    chosen = tuple(names) if names is not None else _default_names(rows.shape[1])
    if len(set(chosen)) != rows.shape[1] or len(chosen) != rows.shape[1]:
        raise UserError(f"There must be {rows.shape[1]} different names, one per factor. Got {chosen} instead.")
    return Labels.from_columns(chosen, rows.astype(np.int64).T.tolist(), n)


def _sort_values(values: set[Label]) -> list[Label]:
    """Sort numbers by size and words alphabetically, with numbers before words."""
    numbers = sorted(value for value in values if not isinstance(value, str))
    return [*numbers, *sorted(value for value in values if isinstance(value, str))]


def _default_names(k: int) -> tuple[str, ...]:
    return ("label",) if k == 1 else tuple(f"factor{j}" for j in range(k))


def numeric_array(values: object, what: str) -> Array:
    """Convert a tensor, an array or nested lists to a numpy array, or raise a UserError if it is not numeric."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = values.float() if values.dtype == torch.bfloat16 else values
    try:
        array = np.asarray(values)
    except ValueError:
        raise UserError(f"{what} must be a rectangular array. Got rows of unequal length instead.") from None
    if array.dtype.kind not in "buif":
        advice = "Convert words to integers with np.unique(words, return_inverse=True)."
        hint = advice if what == "Factors" else "Convert them to numbers first."
        raise UserError(f"{what} must be real numbers. Got {array.dtype} instead. {hint}")
    return array


def _float_vectors(array: Array) -> Array:
    if array.dtype.kind != "f":
        raise UserError(
            f"Vectors (n, d) must be floats. Got {array.dtype} instead. Reshape flattened images to (n, h, w), or "
            "convert vectors with .astype('float32')."
        )
    with np.errstate(over="ignore"):
        vectors = np.array(array, np.float32, order="C")
    if not np.isfinite(vectors).all():
        row = int(np.argwhere(~np.isfinite(vectors))[0, 0])
        raise UserError(
            f"Vectors must be finite in float32. Got {array[row]} in row {row} instead. Remove rows that are not."
        )
    return vectors


def _channels_first(array: Array, layout: str | None) -> Array:
    """Return images in any layout as a view of shape (n, c, h, w)."""
    layout = layout or _guess_layout(array.shape)
    if layout not in LAYOUTS or len(layout) != array.ndim - 1:
        raise UserError(
            f"The 'layout' must be one of {', '.join(LAYOUTS)}, with one letter for each axis after the first. "
            f"Got {layout!r} for shape {array.shape} instead."
        )
    images = array[:, None] if layout == "hw" else array.transpose(0, 3, 1, 2) if layout == "hwc" else array
    if images.shape[1] not in CHANNELS:
        raise UserError(f"Images must have 1 or 3 channels. Got {images.shape[1]} in layout {layout!r} instead.")
    return images


def _guess_layout(shape: tuple[int, ...]) -> str:
    """Infer the layout of images of `shape`, or raise a UserError if it is ambiguous."""
    if len(shape) == 3 and shape[2] not in CHANNELS:
        return "hw"
    if len(shape) == 4 and (shape[1] in CHANNELS) != (shape[3] in CHANNELS):
        return "chw" if shape[1] in CHANNELS else "hwc"
    if len(shape) == 3:
        remedy = f"For a single image, pass images[None]. For images that are {shape[2]} wide, pass layout='hw'."
    elif len(shape) == 4 and shape[1] in CHANNELS:
        remedy = "Both axis 1 and axis 3 could be channels. Pass layout='chw' or layout='hwc'."
    else:
        remedy = "Remove an alpha channel with images[..., :3]." if len(shape) == 4 else "Reshape them."
    raise UserError(
        "Images must have shape (n, h, w), (n, h, w, c) or (n, c, h, w) with c = 1 or 3, and vectors must have shape "
        f"(n, d). Got shape {shape} instead. {remedy}"
    )


def _byte_images(images: Array) -> Array:
    """Convert images (n, c, h, w) of any numeric type to a contiguous uint8 array."""
    if images.dtype == np.uint8:
        table = np.require(images, requirements=["C", "W"])
    else:
        table = np.empty(images.shape, np.uint8)
        for start in range(0, len(images), CHUNK):
            table[start : start + CHUNK] = scale_to_bytes(images[start : start + CHUNK])
    return table * np.uint8(255) if images.dtype.kind != "f" and table.max() <= 1 else table


def scale_to_bytes(images: Array, what: str = "Pixels") -> Array:
    """Convert pixels to uint8. Floats from 0 to 1 are multiplied by 255, and integers from 0 to 255 do not change."""
    high = 1 if images.dtype.kind == "f" else 255
    low, top = images.min(), images.max()
    if not (low >= 0 and top <= high):
        raise UserError(
            f"{what} of type {images.dtype} must be in 0..{high}. Got {low:g} to {top:g} instead. "
            "Remove a normalisation, divide by 255, or convert to uint8."
        )
    return (np.rint(images.astype(np.float32) * 255) if high == 1 else images).astype(np.uint8)
