"""Labels of users' own data as integers, with their original values."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeAlias, TypeVar

import numpy as np
from jaxtyping import Float, Int, Real
from numpy.typing import ArrayLike
from torch import Tensor

from unbraid.data.own.examples import Array, numeric_array
from unbraid.errors import UserError
from unbraid.label_kinds import (
    DEFAULT_BINS,
    MANY_VALUES,
    announce,
    declared_kinds,
    equal_count_bins,
    find_continuous,
    label_columns,
    split_names,
)

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
Label: TypeAlias = int | float | str
T = TypeVar("T")
Column: TypeAlias = Sequence[Label | None]
"""The labels of one factor, one per example. None is a missing label."""
Factors: TypeAlias = Real[Tensor, "n ..."] | Real[np.ndarray, "n ..."] | ArrayLike | Mapping[str, Any]


@dataclass(frozen=True)
class LabelKinds:
    """Which factors are continuous, as declared by the user.

    Attributes:
        continuous: Names of continuous factors, as a list or separated by commas.
        discrete: Names of factors whose values are classes, in the same form. A numeric factor in neither list is
            treated as continuous if it has many distinct values; see `unbraid.label_kinds.looks_continuous`.
        bins: Number of bins of continuous factors. None means 10.
    """

    continuous: str | Sequence[str] | None = None
    discrete: str | Sequence[str] | None = None
    bins: int | None = None

    def __post_init__(self) -> None:
        if self.bins is not None and (not isinstance(self.bins, Integral) or self.bins < 2):
            raise UserError(f"The option 'bins' must be an integer and at least 2. Got {self.bins!r} instead.")

    def options(self) -> dict[str, tuple[str, ...] | int | None]:
        """Return the options that are part of the name of the data. Options that were not given are None."""
        names = {"continuous": split_names(self.continuous), "discrete": split_names(self.discrete)}
        return {**{key: given or None for key, given in names.items()}, "bins": self.bins}


@dataclass(frozen=True)
class Labels:
    """Labels as integers, and the original values that they stand for.

    Attributes:
        numbers: `numbers[i, j]` is the integer label of factor j in example i. It is the index of a class or of a bin,
            or -1 if the label is missing.
        values: `values[name][i]` is the original value of the factor `name` that the integer i stands for. For a
            continuous factor it is the median of bin i.
        continuous: Names of the continuous factors.
        exact: `exact[i, j]` is the original number if factor j is continuous, and equals `numbers[i, j]` otherwise.
            Missing labels are NaN. If no factor is continuous and no label is missing, `exact` is None.
    """

    numbers: Int[np.ndarray, "n k"]
    values: dict[str, list[Label]]
    continuous: tuple[str, ...] = ()
    exact: Float[np.ndarray, "n k"] | None = None

    @classmethod
    def from_columns(cls, columns: Mapping[str, Column], n: int, kinds: LabelKinds = LabelKinds()) -> Labels:
        """Convert columns of values to integer labels.

        The sorted values of a discrete factor, and the bins of a continuous factor, are numbered from 0.
        Columns with a single value are omitted. Columns of words that only identify the examples are omitted as well
        (see `_without_identifiers`).

        Args:
            columns: For each factor, the values of all n examples.
            n: Number of examples.
            kinds: Which factors are continuous.
        """
        declared = declared_kinds(list(columns), kinds.continuous, kinds.discrete)
        varying = {name: column for name, column in columns.items() if len(_distinct_values(column)) > 1}
        used = _without_identifiers(varying, declared)
        _announce_numbers_among_words({name: column for name, column in used.items() if name not in declared})
        is_continuous = _choose_kinds(used, declared)
        if kinds.bins is not None and not any(is_continuous.values()):
            raise UserError("The option 'bins' needs a continuous factor. Got none. Name one with continuous=NAME.")
        coded = {
            name: _bin_column(column, kinds.bins or DEFAULT_BINS) if is_continuous[name] else _class_column(column)
            for name, column in used.items()
        }
        numbers = np.stack([number for number, _ in coded.values()], 1) if coded else np.empty((n, 0), np.int64)
        continuous = tuple(name for name in used if is_continuous[name])
        exact = np.where(numbers < 0, np.nan, numbers) if continuous or (numbers < 0).any() else None
        for j, name in enumerate(used):
            if exact is not None and is_continuous[name]:
                exact[:, j] = _as_floats(used[name])
        return cls(numbers, {name: values for name, (_, values) in coded.items()}, continuous, exact)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of values of each factor, or the number of bins of a continuous factor."""
        return tuple(map(len, self.values.values()))

    @property
    def categorical(self) -> tuple[str, ...]:
        """The names of the factors whose values are words."""
        return tuple(name for name, values in self.values.items() if isinstance(values[0], str))

    def grid_order(self) -> Int[np.ndarray, " n"] | None:
        """Return the row indices that sort the rows into grid order (last factor fastest).

        Return None unless each combination of values occurs exactly once. Also return None if a factor is continuous or
        a label is missing.
        """
        n = len(self.numbers)
        if not self.sizes or math.prod(self.sizes) != n or self.exact is not None:
            return None
        index = np.ravel_multi_index(tuple(self.numbers.T), self.sizes)
        order = np.argsort(index)
        return order if np.array_equal(index[order], np.arange(n)) else None

    def select_rows(self, rows: Int[np.ndarray, " m"]) -> Labels:
        """Return the labels of the given rows."""
        exact = None if self.exact is None else self.exact[rows]
        return Labels(self.numbers[rows], self.values, self.continuous, exact)


def labels_from_factors(
    factors: Factors | None, names: str | Sequence[str] | None, n: int, kinds: LabelKinds = LabelKinds()
) -> Labels:
    """Convert factors of n examples, in one of the forms that `from_arrays` accepts, to labels."""
    if factors is None:
        if names:
            raise UserError(
                f"`names` are the names of `factors`. Got the names {', '.join(names)} without factors. Pass `factors` "
                "too."
            )
        return Labels.from_columns({}, n, kinds)
    named = label_columns(factors)
    if named is not None:
        return Labels.from_columns(_rename(_checked_lengths(named, n), names), n, kinds)
    rows = _factor_array(factors)
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.ndim != 2 or len(rows) != n:
        raise UserError(f"Factors must have shape ({n}, k), one row per example. Got shape {rows.shape} instead.")
    if names is None:
        _announce_one_hot(rows)
    numbered = dict(zip(default_names(rows.shape[1]), rows.T, strict=True))
    columns = {name: _number_column(column, name) for name, column in _rename(numbered, names).items()}
    return Labels.from_columns(columns, n, kinds)


def _rename(columns: Mapping[str, T], names: str | Sequence[str] | None) -> dict[str, T]:
    """Return columns under the given names. If `names` is None, the columns keep their names."""
    given = split_names(names) if isinstance(names, str) else names
    chosen = tuple(columns) if given is None else tuple(given)
    if len(set(chosen)) != len(columns) or len(chosen) != len(columns):
        raise UserError(f"There must be {len(columns)} different names, one per factor. Got {chosen} instead.")
    return dict(zip(chosen, columns.values(), strict=True))


def _checked_lengths(columns: Mapping[str, Column], n: int) -> Mapping[str, Column]:
    """Return columns, or raise a UserError if one of them does not have n labels."""
    for name, column in columns.items():
        if len(column) != n:
            raise UserError(f"Factors must have one label per example, {n}. Got {len(column)} in {name} instead.")
    return columns


def _factor_array(factors: object) -> Array:
    """Convert factors to an array of numbers. None and masked entries become NaN."""
    if isinstance(factors, np.ma.MaskedArray):
        return np.where(factors.mask, np.nan, factors.data) if factors.mask.any() else np.asarray(factors)
    if not isinstance(factors, Tensor | np.ndarray):
        with contextlib.suppress(ValueError):  # for rows of unequal length, numeric_array raises a UserError below
            factors = np.asarray(factors)
    if isinstance(factors, np.ndarray) and factors.dtype == object:
        with contextlib.suppress(TypeError, ValueError):  # for words, numeric_array raises a UserError below
            factors = np.array([math.nan if value is None else value for value in factors.flat], np.float64).reshape(
                factors.shape
            )
    return numeric_array(factors, "Factors")


def _number_column(column: Array, name: str) -> Column:
    """Return a column as Python integers if all its values are whole, or else as floats. A missing label is None."""
    if column.dtype.kind != "f":
        return list(map(int, column.tolist()))
    if np.isinf(column).any():
        raise UserError(f"Factors must be finite, or NaN if a label is missing. Got an infinite value in {name}.")
    whole = (np.isnan(column) | (column == np.rint(column))).all()
    return [None if math.isnan(value) else int(value) if whole else value for value in column.astype(float).tolist()]


def _distinct_values(column: Column) -> set[Label]:
    return {value for value in column if value is not None}


def _is_numeric(column: Column) -> bool:
    return not any(isinstance(value, str) for value in column)


def _as_floats(column: Column) -> Float[np.ndarray, " n"]:
    return np.array([math.nan if value is None else value for value in column], np.float64)


def _is_grid(columns: Mapping[str, Column]) -> bool:
    """Return whether at least two factors vary, each combination of values occurs once, and no label is missing."""
    if sum(len(_distinct_values(column)) > 1 for column in columns.values()) < 2:
        return False
    coded = {name: _class_column(column) for name, column in columns.items()}
    numbers = np.stack([number for number, _ in coded.values()], 1)
    labels = Labels(numbers, {name: values for name, (_, values) in coded.items()})
    return bool((numbers >= 0).all()) and labels.grid_order() is not None


def _class_column(column: Column) -> tuple[Int[np.ndarray, " n"], list[Label]]:
    """Return the integer label of each row and the sorted distinct values."""
    values = _sort_values(_distinct_values(column))
    number: dict[Label | None, int] = {value: i for i, value in enumerate(values)}
    number[None] = -1
    return np.array([number[value] for value in column], np.int64), values


def _bin_column(column: Column, bins: int) -> tuple[Int[np.ndarray, " n"], list[Label]]:
    """Return the bin of each row and the medians of the bins."""
    values = _as_floats(column)
    number = equal_count_bins(values, bins)
    return number, [float(np.median(values[number == i])) for i in range(number.max() + 1)]


def _choose_kinds(columns: Mapping[str, Column], declared: Mapping[str, bool]) -> dict[str, bool]:
    """Return for each factor whether it is continuous."""
    for name, column in columns.items():
        if declared.get(name) and not _is_numeric(column):
            word = next(value for value in column if isinstance(value, str))
            raise UserError(f"A continuous factor must have numbers. Got {word!r} in {name}. Use discrete={name}.")
    numeric = {name: _as_floats(column) for name, column in columns.items() if _is_numeric(column)}
    found = find_continuous(numeric, declared, lambda: _is_grid(columns))
    return {name: name in found for name in columns}


def _without_identifiers(columns: Mapping[str, Column], declared: Mapping[str, bool]) -> dict[str, Column]:
    """Return all columns except columns of more than 50 words in which no word occurs twice.

    Such words identify the examples and do not describe them. Columns whose kind the user has declared are kept.
    """
    kept = {}
    for name, column in columns.items():
        count = len(_distinct_values(column))
        if _is_numeric(column) or name in declared or count <= MANY_VALUES or count < len(column):
            kept[name] = column
        else:
            announce(
                f"{name}: a different word in each of {count:,} rows, left out of the factors. Use the option "
                f"discrete={name} to treat them as classes."
            )
    return kept


def _announce_one_hot(rows: Array) -> None:
    """Announce that an array of labels looks like the one-hot code of a single factor with at least three classes."""
    k = rows.shape[1]
    if k > 2 and len(rows) > k and ((rows == 0) | (rows == 1)).all() and (rows.sum(1) == 1).all() and rows.any(0).all():
        announce(
            f"The {k} columns of the factors are treated as {k} factors, but each row has a single 1, as in a one-hot "
            "code of one factor. If they are such a code, pass factors.argmax(1). To confirm, pass names."
        )


def _announce_numbers_among_words(columns: Mapping[str, Column]) -> None:
    """Announce columns that are treated as words only because of a few labels, or of commas before decimals."""
    for name, column in columns.items():
        words = [value for value in column if isinstance(value, str)]
        others = [word for word in words if not NUMBER.fullmatch(word)]
        if others and 2 * len(others) < sum(value is not None for value in column):
            announce(
                f"{name}: numbers, and words such as {others[0]!r} in {len(others):,} rows, so all are treated as "
                "classes. If these words mean missing labels, leave them out. To confirm, use the option "
                f"discrete={name}."
            )
        elif others and all(NUMBER.fullmatch(word.replace(",", ".", 1)) for word in words):
            announce(
                f"{name}: words such as {others[0]!r}, treated as classes. Write numbers with a decimal point. Use the "
                f"option discrete={name} to confirm."
            )


def _sort_values(values: set[Label]) -> list[Label]:
    """Sort numbers by size and words alphabetically, with numbers before words."""
    numbers = sorted(value for value in values if not isinstance(value, str))
    return [*numbers, *sorted(value for value in values if isinstance(value, str))]


def default_names(k: int) -> tuple[str, ...]:
    return ("label",) if k == 1 else tuple(f"factor{j}" for j in range(k))
