"""Validation of codes and factors. Factors may be discrete or continuous, and labels may be missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Real

from unbraid.errors import UserError
from unbraid.label_kinds import equal_count_bins
from unbraid.metrics.arrays import (
    Codes,
    Factors,
    as_codes,
    check_exact,
    check_factors_vary,
    check_integers,
    check_same_columns,
    check_same_rows,
    check_table,
    input_error,
)

MISSING = int(np.iinfo(np.int64).min)  # the bin number of a missing label
Continuous = Sequence[bool] | bool | None


class Column(NamedTuple):
    """The labels of one factor, and the rows that have a label.

    Attributes:
        rows: The numbers of the rows that have a label, or a slice of all rows if no label is missing.
        values: The labels. They are int64 if the factor is discrete, and float64 if it is continuous.
        continuous: Whether the factor is continuous.
    """

    rows: Any
    values: Real[np.ndarray, " m"]
    continuous: bool


class Labels(NamedTuple):
    """Checked factors.

    Attributes:
        values: Labels of shape (n, k). They are int64, or float64 if a factor is continuous or a label is missing. A
            missing label is NaN.
        continuous: Whether each factor is continuous.
    """

    values: Real[np.ndarray, "n k"]
    continuous: tuple[bool, ...]

    @property
    def plain(self) -> bool:
        """Whether all factors are discrete and no label is missing."""
        return self.values.dtype.kind == "i"

    def columns(self) -> Iterator[Column]:
        """Yield the labels of each factor without the missing ones.

        >>> labels = as_labels([[0.5, 1], [0.7, np.nan], [0.1, 4]], [True, False])
        >>> [column.values.tolist() for column in labels.columns()]
        [[0.5, 0.7, 0.1], [1, 4]]
        """
        for values, continuous in zip(self.values.T, self.continuous, strict=True):
            present = ~np.isnan(values)
            rows = slice(None) if present.all() else np.flatnonzero(present)
            yield Column(rows, values[rows] if continuous else values[rows].astype(np.int64), continuous)

    def binned(self) -> Int[np.ndarray, "n k"]:
        """Return integers: the labels of discrete factors, and the bin numbers of continuous factors.

        Bins have nearly equal counts. A missing label becomes `MISSING`.
        """
        table = np.full(self.values.shape, MISSING)
        for j, column in enumerate(self.columns()):
            values = equal_count_bins(column.values, merge_small=False) if column.continuous else column.values
            table[column.rows, j] = values
        return table

    def complete_rows(self) -> Bool[np.ndarray, " n"]:
        """Return whether each row has a label for every factor."""
        return np.asarray(~np.isnan(self.values).any(axis=1))

    def require_complete_rows(self) -> Bool[np.ndarray, " n"]:
        """Return whether each row has a label for every factor, or raise a `UserError` if fewer than 2 rows do.

        >>> as_labels([[0, 1], [1, np.nan], [1, 0]]).require_complete_rows().tolist()
        [True, False, True]
        """
        complete = self.complete_rows()
        if complete.sum() < 2:
            remedy = "Label more examples, or drop factors that have few labels."
            raise input_error("At least 2 rows must have a label for every factor.", int(complete.sum()), remedy)
        return complete


def as_labels(factors: Factors, continuous: Continuous = None, name: str = "Factors", *, columns: int = 1) -> Labels:
    """Return checked factors, or raise a `UserError` if they are invalid or have fewer than `columns` columns.

    Args:
        factors: Array of shape (n, k). NaN is a missing label.
        continuous: Whether each factor is continuous. By default all factors are discrete, and their labels must be
            integers.
        name: Name of the array in error messages.
        columns: Minimum number of factors.

    Returns:
        The labels. They are int64 if all factors are discrete and no label is missing, and float64 otherwise.

    Example:
        >>> as_labels([[0.0, 1.0], [1.0, 0.0]]).values.dtype
        dtype('int64')
    """
    table = check_table(factors, name, allow_nan=True)
    if table.shape[1] < columns:
        raise input_error(f"{name} must have at least {columns} columns.", table.shape[1], "Pass more factors.")
    flags = as_flags(continuous, table.shape[1])
    check_integers(table, name, ~np.array(flags))
    if not any(flags) and not np.isnan(table).any():
        return Labels(table.astype(np.int64), flags)
    if (few := np.flatnonzero((~np.isnan(table)).sum(axis=0) < 2)).size:
        remedy = "Drop that factor, or label more examples."
        raise input_error(f"{name} must have at least 2 labels each.", f"fewer in column {few[0]}", remedy)
    check_exact(table, name, ~np.array(flags))
    return Labels(table.astype(np.float64), flags)


def as_flags(continuous: Continuous, k: int) -> tuple[bool, ...]:
    """Return one bool per factor, or raise a `UserError` if their number is not k. A single bool holds for all factors.

    >>> as_flags(None, 2), as_flags(True, 1)
    ((False, False), (True,))
    """
    as_list = getattr(continuous, "tolist", None)  # of an array or a tensor
    flat: Any = continuous if as_list is None else as_list()
    if flat is None or isinstance(flat, bool):
        return (bool(flat),) * k
    given: list[Any] = [flat] if isinstance(flat, str) or not isinstance(flat, Iterable) else list(flat)
    if wrong := [flag for flag in given if not isinstance(flag, bool | np.bool_)]:
        raise UserError(
            f"'continuous' must hold one bool per factor, such as [True, False]. Got {wrong[0]!r} instead. Names of "
            "factors can be passed to ub.score."
        )
    flags = tuple(bool(flag) for flag in given)
    if len(flags) != k:
        raise UserError(
            f"'continuous' must hold one bool per factor. Got {len(flags)} for {k} factors instead. Pass {k} values."
        )
    return flags


def as_codes_and_labels(
    codes: Codes, factors: Factors, continuous: Continuous = None, *, min_codes: int = 1, min_factors: int = 1
) -> tuple[Float[np.ndarray, "n d"], Labels]:
    """Return codes and factors after checking both arrays, their lengths, and that every factor varies.

    >>> codes, labels = as_codes_and_labels([[0.5], [1.5]], [[True], [False]])
    >>> labels.values.tolist()
    [[1], [0]]
    """
    checked_codes = as_codes(codes, columns=min_codes)
    labels = as_labels(factors, continuous, columns=min_factors)
    check_same_rows(checked_codes, labels.values)
    check_factors_vary(labels.values)
    return checked_codes, labels


def as_test_arrays(
    test_codes: Codes, test_factors: Factors, codes: Float[np.ndarray, "train _"], labels: Labels
) -> tuple[Float[np.ndarray, "m d"], Labels]:
    """Return test codes and factors after checking both arrays, their lengths, and that they match the training arrays.

    >>> train = np.zeros((2, 3)), as_labels([[0], [1]])
    >>> as_test_arrays([[0, 0, 0], [1, 1, 1]], [[1], [1]], *train)[1].values.tolist()
    [[1], [1]]
    """
    checked_codes = as_codes(test_codes, "Test codes")
    table = check_table(test_factors, "Test factors", allow_nan=True)
    check_same_columns(labels.values, table.astype(np.float64), "Factors")
    test_labels = as_labels(test_factors, labels.continuous, "Test factors")
    check_same_rows(checked_codes, test_labels.values)
    check_same_columns(codes, checked_codes, "Codes")
    return checked_codes, test_labels
