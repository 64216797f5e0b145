"""Hold out combinations of factor values from training, and view the training or the held-out side as a dataset."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unbraid.data.dataset import FactorData, factor_index
from unbraid.errors import UserError
from unbraid.noise import Noise

SIDES = ("training", "heldout")
SPLITS = ("element", "range", "extrapolation")
# The splits of Montero et al. (2021). The keys are the factors of a dataset with their numbers of values.
PUBLISHED: dict[tuple[tuple[str, int], ...], dict[str, str]] = {
    (("shape", 3), ("scale", 6), ("orientation", 40), ("x", 32), ("y", 32)): {
        "element": "shape:1+scale:2-5+orientation:14-25+x:21-31+y:21-31",
        "range": "shape:0+x:16-31",
        "extrapolation": "x:16-31",
    },
    (("floor_hue", 10), ("wall_hue", 10), ("object_hue", 10), ("scale", 8), ("shape", 4), ("orientation", 15)): {
        "element": "floor_hue:8-9+wall_hue:8-9+object_hue:8-9+scale:5-7+shape:1+orientation:12-14",
        "range": "object_hue:5-9+shape:3",
        "extrapolation": "floor_hue:5-9",
    },
    (("object_color", 6), ("object_shape", 6), ("object_size", 2), ("camera_height", 3), ("background_color", 3),
     ("horizontal", 40), ("vertical", 40)): {
        "element": "object_color:5+object_shape:2+object_size:1+camera_height:1+background_color:1+horizontal:36-39"
        "+vertical:36-39",
        "range": "object_shape:2+horizontal:0-19",
        "extrapolation": "horizontal:20-39",
    },
}  # fmt: skip


class Condition(NamedTuple):
    """The values from `first` to `last`, both included, of the factor in one column."""

    column: int
    first: int
    last: int


@dataclass(frozen=True)
class Holdout:
    """Which examples are held out from training: those that satisfy all conditions.

    Reference: Montero et al. (2021), "The role of disentanglement in generalisation", ICLR, and Schott et al. (2022),
    arXiv:2107.08221, for splits by combinations of factors.

    Attributes:
        conditions: Ranges of values, each of a different factor.
    """

    conditions: tuple[Condition, ...]

    @classmethod
    def parse(cls, data: FactorData, text: str) -> Holdout:
        """Parse the value of the option ``holdout`` in a dataset name, such as ``range`` in ``sprites?holdout=range``.

        Args:
            data: The whole dataset.
            text: The name of a split ("element", "range" or "extrapolation"), or conditions such as shape:0+x:16-31.

        Returns:
            A `Holdout` with the conditions.

        Raises:
            UserError: If the text is not valid, or if no example or every example would be held out.
        """
        written = split_conditions(data, text) if text in SPLITS else text
        conditions = tuple(_parse_condition(data, part) for part in written.split("+"))
        if len({condition.column for condition in conditions}) < len(conditions):
            raise UserError(f"Each factor may occur at most once in the option 'holdout'. Got {text!r} instead.")
        held = cls(conditions)
        count = int(held.mask(data.factors(slice(None))).sum())
        if not 0 < count < len(data):
            raise UserError(
                f"The option 'holdout' must leave examples on both sides. {text!r} holds out {count:,} of "
                f"{len(data):,} examples of {data.name}. Choose other values."
            )
        return held

    def mask(self, factors: Int[Tensor, "n k"]) -> Bool[Tensor, " n"]:
        """Return whether each row of factors is held out. A missing label satisfies no condition."""
        parts = [(factors[:, j] >= first) & (factors[:, j] <= last) for j, first, last in self.conditions]
        return torch.stack(parts).all(0)

    def rows(self, data: FactorData, side: str) -> Int[Tensor, " n"]:
        """Return the indices of the examples of one side, "training" or "heldout"."""
        held = self.mask(data.factors(slice(None)))
        return (held if side == "heldout" else ~held).nonzero()[:, 0]

    def view(self, data: FactorData, side: str) -> SideView:
        """Return the examples of one side as a dataset, with the factors that vary on both sides.

        Raises:
            UserError: If no factor varies on both sides.
        """
        parts = {name: self.rows(data, name) for name in SIDES}
        varying = [_varying_columns(data.factors_at(rows)) for rows in parts.values()]
        columns = [j for j in range(len(data.sizes)) if all(j in found for found in varying)]
        if not columns:
            raise UserError(
                f"At least one factor of {data.name} must vary on both sides of the split. Got none. Hold out a range "
                "of values, such as x:4-7."
            )
        return SideView(data, side, parts[side], columns)


def split_conditions(data: FactorData, split: str) -> str:
    """Return the conditions of a split by its name.

    For dSprites, Shapes3D and MPI3D, the conditions are those in the code of Montero et al. (2021), with one
    difference: in "extrapolation" on MPI3D, the authors use the horizontal position 20 on neither side, and here it is
    held out.

    For other datasets, "extrapolation" holds out the upper half of the values of the ordered factor with the most
    values. "range" holds out these values only in combination with the last value of a second factor. The second
    factor is the first categorical factor. If there is none, it is the factor with the fewest values among the other
    ordered factors. "element" holds out an example if every ordered factor is in the upper half of its values and every
    categorical factor has its last value.

    Args:
        data: The whole dataset.
        split: "element", "range" or "extrapolation".

    Returns:
        The conditions as text, such as shape:0+x:16-31.

    Raises:
        UserError: If the dataset has no ordered factor, or if the split needs a second factor and there is none.
    """
    published = PUBLISHED.get(tuple(zip(data.names, data.sizes, strict=True)))
    if published is not None:
        return published[split]
    sizes = {name: size for name, size in zip(data.names, data.sizes, strict=True) if size > 1}
    ordered = {name: size for name, size in sizes.items() if name not in data.categorical}
    if not ordered or (split != "extrapolation" and len(sizes) < 2):
        raise UserError(
            f"The split {split!r} needs an ordered factor. Every split except 'extrapolation' also needs a second "
            f"factor. {data.name} does not have these factors. Write the conditions, such as holdout=a:0+b:4-7."
        )
    ranges = {name: _upper_half(name, size) for name, size in ordered.items()}
    longest = max(ordered, key=lambda name: ordered[name])
    if split == "extrapolation":
        return ranges[longest]
    last = {name: f"{name}:{size - 1}" for name, size in sizes.items()}
    if split == "element":
        return "+".join(ranges.get(name, last[name]) for name in sizes)
    return f"{last[_other_factor(sizes, ordered, longest)]}+{ranges[longest]}"


def _upper_half(name: str, size: int) -> str:
    """Return the condition on the upper half of the values of a factor. A middle value belongs to the lower half."""
    first = (size + 1) // 2
    return f"{name}:{first}" if first == size - 1 else f"{name}:{first}-{size - 1}"


def _other_factor(sizes: Mapping[str, int], ordered: Mapping[str, int], longest: str) -> str:
    """Return the first categorical factor.

    If there is none, return the ordered factor with the fewest values, other than `longest`.
    """
    categorical = [name for name in sizes if name not in ordered]
    rest = [name for name in ordered if name != longest]
    return categorical[0] if categorical else min(rest, key=lambda name: ordered[name])


def _parse_condition(data: FactorData, text: str) -> Condition:
    """Read a condition such as x:3 or x:4-7."""
    name, _, values = text.partition(":")
    first, dash, last = values.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise UserError(
            f"Write holdout={'|'.join(SPLITS)}, or FACTOR:VALUE or FACTOR:FIRST-LAST for each factor, joined by +, "
            f"such as holdout=shape:0+x:4-7. Got {text!r} instead."
        )
    column, low, high = factor_index(data, name), int(first), int(last or first)
    if not low <= high < data.sizes[column]:
        raise UserError(
            f"The values of '{name}' in the option 'holdout' must be between 0 and {data.sizes[column] - 1}, in "
            f"ascending order. Got {values!r} instead."
        )
    return Condition(column, low, high)


def _varying_columns(factors: Int[Tensor, "n k"]) -> list[int]:
    """Return the columns with several values. Missing labels, which are -1, do not count."""
    columns = [column[column >= 0] for column in factors.unbind(1)]
    return [j for j, column in enumerate(columns) if len(column) and bool((column != column[0]).any())]


class SideView(FactorData):
    """The examples of one side of a split. They do not form a full grid.

    Attributes:
        base: The whole dataset.
        side: "training" or "heldout".
        rows: The index of each example in the whole dataset.
        columns: The columns of the factors that vary on both sides. Only these are factors of the view.
    """

    gridded = False
    successive = False

    def __init__(self, base: FactorData, side: str, rows: Int[Tensor, " n"], columns: list[int]) -> None:
        names, sizes = tuple(base.names[j] for j in columns), tuple(base.sizes[j] for j in columns)
        name = base.name if f"side={side}" in base.name else f"{base.name}&side={side}"
        super().__init__(name, names, sizes, base.shape, base.table)
        self.base, self.side, self.rows, self.columns, self.binary = base, side, rows, columns, base.binary
        self.categorical = tuple(name for name in base.categorical if name in names)
        self.continuous = tuple(name for name in base.continuous if name in names)

    @property
    def fingerprint(self) -> str | None:
        """A digest of the content of the whole dataset, or None if the name of the dataset identifies its content."""
        fingerprint: str | None = getattr(self.base, "fingerprint", None)
        return fingerprint

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b ..."]:
        """Return examples as input for a network, float32 of shape (b, *shape)."""
        return self.base.batch(self.rows[index], noise)

    def _examples(self, index: Tensor) -> Tensor:
        return self.base._examples(self.rows[index])

    def _draw_uniform(self, noise: Noise, n: int) -> Int[Tensor, " n"]:
        return noise.integers(len(self.rows), n)

    def factors_at(self, index: Int[Tensor, " n"]) -> Int[Tensor, "n k"]:
        """Return the factors of the view, without checking `index`."""
        return self.base.factors_at(self.rows[index])[:, self.columns]

    def factor_values_at(self, index: Int[Tensor, " n"]) -> Float[Tensor, "n k"]:
        """Return what `factor_values` returns, without checking `index`."""
        return self.base.factor_values_at(self.rows[index])[:, self.columns]

    @property
    def missing_labels(self) -> dict[str, int]:
        """The number of missing labels of each factor that has any."""
        if not self.base.missing_labels:
            return {}
        counts = self.factor_values(slice(None)).isnan().sum(0).tolist()
        return {name: count for name, count in zip(self.names, counts, strict=True) if count}

    def index_of(self, factors: Int[Tensor, "n k"]) -> Int[Tensor, " n"]:
        """Raise a UserError, because the factors do not identify a single example."""
        raise UserError(
            f"The examples of {self.name} do not form a full grid, so factor values do not identify a single example. "
            "Use the whole dataset."
        )

    def to(self, device: str | torch.device) -> SideView:
        """Return the same data on a different device."""
        moved = copy.copy(self)
        moved.base, moved.rows = self.base.to(device), self.rows.to(device)
        moved.table, moved.grid = moved.base.table, self.grid.to(device)
        moved.sampler = None if self.sampler is None else self.sampler.to(device)
        return moved
