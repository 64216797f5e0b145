"""Make datasets from users' own arrays."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int, Real, UInt8
from numpy.typing import ArrayLike
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.in_memory import ByteImages, Labelled
from unbraid.data.own.examples import example_table, warn_of_dark_images
from unbraid.data.own.label_table import Factors, Label, LabelKinds, Labels, labels_from_factors
from unbraid.noise import Noise
from unbraid.runtime.arguments import explain_unknown_arguments

# Types that the public functions accept. Everything except arrays is converted to an array first.
Examples: TypeAlias = Real[Tensor, "n ..."] | Real[np.ndarray, "n ..."] | ArrayLike


class OwnData(FactorData):
    """A dataset made from a user's own data.

    Attributes:
        values: `values[name][i]` is the original value of the factor `name` that the label i stands for. For a
            continuous factor it is the median of bin i.
        source: Digest of the files that the data were read from. Empty for data that were passed as arrays or as
            a torch dataset.
    """

    values: dict[str, list[Label]]
    source: str = ""

    @property
    def in_memory(self) -> bool:
        """Whether the data were passed as arrays or as a torch dataset. Such data cannot be loaded again by name."""
        return not self.source

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest that changes when the data change. It is `source`, or else a digest of the arrays."""
        if self.source:
            return self.source
        digest = hashlib.sha256(f"{self.shape} {self.sizes} {self.values}".encode())
        digest.update(self.table.cpu().contiguous().numpy().data)
        digest.update(self.factors(slice(None)).cpu().contiguous().numpy().data)
        if self.continuous or self.missing_labels:
            digest.update(f"{self.continuous}".encode())
            digest.update(self.factor_values(slice(None)).cpu().contiguous().numpy().data)
        return digest.hexdigest()[:16]

    def __repr__(self) -> str:
        sizes = ", ".join(map(self._describe_factor, self.names, self.sizes))
        factors = f"factors {sizes}{'' if self.gridded else ' (not a full grid)'}" if sizes else "no factors"
        return f"{self.name}: {len(self):,} examples of shape {self.shape}, {factors}"

    def _describe_factor(self, name: str, size: int) -> str:
        missing = self.missing_labels.get(name)
        kind = f"{size} bins of a continuous factor" if name in self.continuous else f"{size}"
        return f"{name} {kind}{f' ({missing:,} missing)' if missing else ''}"


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


@explain_unknown_arguments()
def from_arrays(
    images: Examples,
    factors: Factors | None = None,
    *,
    names: str | Sequence[str] | None = None,
    name: str = "arrays",
    layout: str | None = None,
    continuous: str | Sequence[str] | None = None,
    discrete: str | Sequence[str] | None = None,
    bins: int | None = None,
    device: str | torch.device = "cpu",
) -> OwnData:
    """Make a dataset from arrays or tensors.

    If there is exactly one example for each combination of factor values, the examples are sorted so that the last
    factor varies fastest. Otherwise their order does not change. Contiguous uint8 images of shape (n, c, h, w) are not
    copied, unless they must be sorted or moved to another device.

    Args:
        images: Images of shape (n, h, w), (n, h, w, c) or (n, c, h, w) with c = 1 or 3, or vectors of shape (n, d).
            Pixels are integers from 0 to 255, or floats in [0, 1], which are rounded to multiples of 1/255. If all
            pixels are the integers 0 or 1, they stand for black and white. Vectors must be floats.
        factors: Numbers or words of shape (n, k), or (n,) for a single factor. A pandas data frame or a dictionary of
            columns also gives the names of the factors. An entry NaN or None is a missing label. If `factors` itself is
            None, there are no labels. Factors with a single value are omitted.
        names: Names of the k factors, as a list or separated by commas. The default is the names of the columns. If
            the columns have no names, the default is "factor0", "factor1" and so on, or "label" for a single factor.
        name: Name of the dataset.
        layout: Order of the axes of one image, which is "hw", "hwc" or "chw". By default, it is inferred from the axis
            that has length 1 or 3.
        continuous: Names of continuous factors, as a list or separated by commas. The labels of a continuous factor are
            bins with nearly equal counts, and `factor_values` returns the original numbers.
        discrete: Names of factors whose values are classes. A factor that is named in neither `continuous` nor
            `discrete` is treated as continuous, with a warning, if it has many distinct values; see
            `unbraid.label_kinds.looks_continuous`.
        bins: Number of bins of continuous factors. The default is 10.
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
    table = example_table(images, layout)
    warn_of_dark_images(table, name)
    labels = labels_from_factors(factors, names, len(table), LabelKinds(continuous, discrete, bins))
    return assemble_data(name, torch.from_numpy(table), labels, device)


def assemble_data(
    name: str,
    table: UInt8[Tensor, "n c h w"] | Float[Tensor, "n d"],
    labels: Labels,
    device: str | torch.device = "cpu",
    source: str = "",
) -> OwnData:
    """Make a dataset from examples and labels. If the labels form a full grid, sort the examples into grid order."""
    names, sizes, order = tuple(labels.values), labels.sizes, labels.grid_order()
    moved = order is not None and not np.array_equal(order, np.arange(len(order)))
    if moved:
        table = table[torch.from_numpy(order)]
    data: OwnData
    if order is None:
        exact = None if labels.exact is None else torch.from_numpy(labels.exact)
        numbers = torch.from_numpy(labels.numbers)
        data = OwnExamples(name, names, sizes, table.to(device), numbers, exact, labels.continuous)
    else:
        kind = OwnImages if table.dtype == torch.uint8 else OwnVectors
        data = kind(name, names, sizes, tuple(table.shape[1:]), table.to(device))
    data.values, data.categorical, data.source = labels.values, labels.categorical, source
    data.successive = not moved
    return data
