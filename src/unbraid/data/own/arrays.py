"""Users' own arrays as data: the form of the examples, the numbering of the labels, the grid where they fill one."""

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

# What public functions take: the arrays are the documented form, the rest reaches the checks below.
Examples: TypeAlias = Real[Tensor, "n ..."] | Real[np.ndarray, "n ..."] | ArrayLike
Factors: TypeAlias = Real[Tensor, "n ..."] | Real[np.ndarray, "n ..."] | ArrayLike

LAYOUTS = ("hw", "hwc", "chw")
CHANNELS = (1, 3)
CHUNK = 1024  # images checked and scaled at once


@dataclass(frozen=True)
class Labels:
    """Factors as numbers 0, 1, ... (n, k), and what the numbers of each stand for, in order."""

    numbers: Int[np.ndarray, "n k"]
    values: dict[str, list[Label]]

    @classmethod
    def of(cls, names: Sequence[str], columns: Sequence[Sequence[Label]], n: int) -> Labels:
        """Labels numbered in the order of their values; a factor of a single value tells nothing and is left out."""
        values = {name: _ordered(set(column)) for name, column in zip(names, columns, strict=True)}
        numbers = np.empty((n, 0), np.int64)
        for name, column in zip(names, columns, strict=True):
            place = {value: i for i, value in enumerate(values[name])}
            if len(place) > 1:
                numbers = np.column_stack([numbers, np.array([place[value] for value in column], np.int64)])
        return cls(numbers, {name: found for name, found in values.items() if len(found) > 1})

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many values each factor has."""
        return tuple(map(len, self.values.values()))

    @property
    def categorical(self) -> tuple[str, ...]:
        """The factors whose values are words."""
        return tuple(name for name, values in self.values.items() if isinstance(values[0], str))

    def order(self) -> Int[np.ndarray, " n"] | None:
        """The rows in C order if they fill a grid exactly once, else None."""
        n = len(self.numbers)
        if not self.sizes or math.prod(self.sizes) != n:
            return None
        place = np.ravel_multi_index(tuple(self.numbers.T), self.sizes)
        order = np.argsort(place)
        return order if np.array_equal(place[order], np.arange(n)) else None

    def at(self, rows: Int[np.ndarray, " m"]) -> Labels:
        """The labels of some rows."""
        return Labels(self.numbers[rows], self.values)


class OwnData(FactorData):
    """Data from outside the library.

    `values[name][i]` is what was given for the number i of a factor. `source` is a digest of the files that the data
    were made from, empty for what was given in memory.
    """

    values: dict[str, list[Label]]
    source: str = ""

    @functools.cached_property
    def fingerprint(self) -> str:
        """What changes when the data do: the digest of their files, or of their content where there are none."""
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
    """Images of the user's, one for each point of a grid."""


class OwnVectors(OwnData):
    """Vectors of the user's, one for each point of a grid: float32 (n, d)."""

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b d"]:
        """The vectors at `index`."""
        return self.table[index]

    def _examples(self, index: Tensor) -> Tensor:
        return self.table[index]


class OwnExamples(OwnData, Labelled):
    """Images or vectors of the user's whose labels do not fill a grid, or that have none."""


def from_arrays(
    images: Examples,
    factors: Factors | None = None,
    *,
    names: Sequence[str] | None = None,
    name: str = "arrays",
    layout: str | None = None,
    device: str | torch.device = "cpu",
) -> OwnData:
    """Arrays or tensors as data: images of 1 or 3 channels or vectors, and a row of whole numbers for each.

    Images are (n, h, w), (n, h, w, c) or (n, c, h, w), told apart by which axis is 1 or 3 unless `layout` is "hw",
    "hwc" or "chw"; bytes, or floats in [0, 1], which are kept as bytes (steps of 1/255). Whole numbers of which none
    exceeds 1 are black and white. Vectors are floats (n, d). Factors (n, k) may be any whole numbers; those with a
    single value are left out. Rows that fill a grid exactly once are put in its order, others stay as they are. Bytes
    that already lie as (n, c, h, w) in memory are shared, not copied.

    >>> import numpy as np
    >>> from_arrays(np.zeros((6, 8, 8), np.uint8), [[i % 3, i // 3] for i in range(6)], names=["x", "y"])
    arrays: 6 examples of shape (1, 8, 8), factors x 3, y 2
    """
    array = as_numbers(images, "Examples")
    if array.ndim == 0 or 0 in array.shape:
        raise UserError(f"There must be at least one example. Got an array of shape {array.shape} instead.")
    table = _vectors(array) if array.ndim == 2 and layout is None else _bytes(_channels_first(array, layout))
    return assembled(name, torch.from_numpy(table), as_labels(factors, names, len(table)), device)


def assembled(
    name: str,
    table: UInt8[Tensor, "n c h w"] | Float[Tensor, "n d"],
    labels: Labels,
    device: str | torch.device = "cpu",
    source: str = "",
) -> OwnData:
    """Examples and their labels as data, put in the order of the grid where they fill one."""
    names, sizes, order = tuple(labels.values), labels.sizes, labels.order()
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


def as_labels(factors: Factors | None, names: Sequence[str] | None, n: int) -> Labels:
    """Whole numbers (n, k), or (n,) for a single factor, as labels of n examples."""
    if factors is None:
        if names:
            raise UserError(f"Names are those of factors. Got {', '.join(names)} without any. Pass factors=, too.")
        return Labels(np.empty((n, 0), np.int64), {})
    rows = as_numbers(factors, "Factors")
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.ndim != 2 or len(rows) != n:
        raise UserError(f"Factors must have shape ({n}, k), a row an example. Got shape {rows.shape} instead.")
    if rows.dtype.kind == "f" and not (whole := rows == np.rint(rows)).all():
        raise UserError(
            f"Factors must be whole numbers. Got {rows[~whole][0]} instead. Cut continuous ones into steps, "
            "as in np.digitize(v, np.linspace(v.min(), v.max(), 10))."
        )
    chosen = tuple(names) if names is not None else _names(rows.shape[1])
    if len(set(chosen)) != rows.shape[1] or len(chosen) != rows.shape[1]:
        raise UserError(f"There must be {rows.shape[1]} different names, one a factor. Got {chosen} instead.")
    return Labels.of(chosen, rows.astype(np.int64).T.tolist(), n)


def _ordered(values: set[Label]) -> list[Label]:
    """Numbers by size, words by letter."""
    numbers = sorted(value for value in values if not isinstance(value, str))
    return [*numbers, *sorted(value for value in values if isinstance(value, str))]


def _names(k: int) -> tuple[str, ...]:
    return ("label",) if k == 1 else tuple(f"factor{j}" for j in range(k))


def as_numbers(values: object, what: str) -> Array:
    """Anything like an array as numbers in numpy."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = values.float() if values.dtype == torch.bfloat16 else values
    try:
        array = np.asarray(values)
    except ValueError:
        raise UserError(f"{what} must be a rectangular array. Got rows of unequal length instead.") from None
    if array.dtype.kind not in "buif":
        hint = (
            "Number words with np.unique(words, return_inverse=True)." if what == "Factors" else "Convert them first."
        )
        raise UserError(f"{what} must be real numbers. Got {array.dtype} instead. {hint}")
    return array


def _vectors(array: Array) -> Array:
    if array.dtype.kind != "f":
        raise UserError(
            f"Vectors (n, d) must be floats. Got {array.dtype} instead. Reshape flattened images to (n, h, w), or say "
            "that these are vectors with .astype('float32')."
        )
    with np.errstate(over="ignore"):
        vectors = np.array(array, np.float32, order="C")
    if not np.isfinite(vectors).all():
        row = int(np.argwhere(~np.isfinite(vectors))[0, 0])
        raise UserError(f"Vectors must be finite in float32. Got {array[row]} in row {row} instead. Drop such rows.")
    return vectors


def _channels_first(array: Array, layout: str | None) -> Array:
    """Images in any layout as (n, c, h, w), without a copy."""
    layout = layout or _layout(array.shape)
    if layout not in LAYOUTS or len(layout) != array.ndim - 1:
        raise UserError(
            f"The 'layout' must be one of {', '.join(LAYOUTS)} and name the axes after the first. "
            f"Got {layout!r} for shape {array.shape} instead."
        )
    turned = array[:, None] if layout == "hw" else array.transpose(0, 3, 1, 2) if layout == "hwc" else array
    if turned.shape[1] not in CHANNELS:
        raise UserError(f"Images must have 1 or 3 channels. Got {turned.shape[1]} in layout {layout!r} instead.")
    return turned


def _layout(shape: tuple[int, ...]) -> str:
    if len(shape) == 3 and shape[2] not in CHANNELS:
        return "hw"
    if len(shape) == 4 and (shape[1] in CHANNELS) != (shape[3] in CHANNELS):
        return "chw" if shape[1] in CHANNELS else "hwc"
    if len(shape) == 3:
        remedy = f"For one image say images[None]; for images {shape[2]} pixels wide say layout='hw'."
    elif len(shape) == 4 and shape[1] in CHANNELS:
        remedy = "Both axes 1 and 3 could be channels: say layout='chw' or layout='hwc'."
    else:
        remedy = "Leave an alpha channel out with images[..., :3]." if len(shape) == 4 else "Reshape them."
    raise UserError(
        "Images must be (n, h, w), (n, h, w, c) or (n, c, h, w) with c 1 or 3, and vectors (n, d). "
        f"Got shape {shape} instead. {remedy}"
    )


def _bytes(images: Array) -> Array:
    """Images (n, c, h, w) of any numbers as contiguous bytes."""
    if images.dtype == np.uint8:
        table = np.require(images, requirements=["C", "W"])
    else:
        table = np.empty(images.shape, np.uint8)
        for start in range(0, len(images), CHUNK):
            table[start : start + CHUNK] = scaled(images[start : start + CHUNK])
    return table * np.uint8(255) if images.dtype.kind != "f" and table.max() <= 1 else table


def scaled(images: Array, what: str = "Pixels") -> Array:
    """Numbers as bytes: floats from 0 to 1 times 255, whole numbers up to 255 as they are."""
    high = 1 if images.dtype.kind == "f" else 255
    low, top = images.min(), images.max()
    if not (low >= 0 and top <= high):
        raise UserError(
            f"{what} must lie in 0..{high} where they are {images.dtype}. Got {low:g} to {top:g} instead. "
            "Undo a normalisation, divide by 255, or convert to uint8."
        )
    return (np.rint(images.astype(np.float32) * 255) if high == 1 else images).astype(np.uint8)
