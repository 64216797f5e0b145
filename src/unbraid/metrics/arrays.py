"""Checks at the boundary: what users pass becomes float64 codes and int64 factors, or a ValueError with a remedy."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int, Real
from numpy.typing import ArrayLike

from unbraid.errors import UserError

# What public functions take: the array is the documented form, ArrayLike lets everything else reach the checks below.
Codes: TypeAlias = Real[np.ndarray, "n d"] | ArrayLike
Factors: TypeAlias = Real[np.ndarray, "n k"] | ArrayLike


def refusal(rule: str, got: object, remedy: str) -> UserError:
    """The one form of error: what must hold, what came, what to do."""
    return UserError(f"{rule} Got {got} instead. {remedy}")


def at_least(low: int, **parameters: int | float) -> None:
    """Refuse a named parameter below `low` (NaN included)."""
    for name, value in parameters.items():
        if not value >= low:
            raise UserError(f"The '{name}' parameter must be >= {low}. Got {value} instead.")


def _table(values: ArrayLike, name: str) -> np.ndarray[Any, np.dtype[Any]]:
    """A non-empty 2-d array of finite real numbers, whatever its dtype."""
    array = np.asarray(values)
    if array.dtype.kind not in "buif":
        raise refusal(f"{name} must be real numbers.", f"dtype {array.dtype}", "Convert them to float or int first.")
    if array.ndim != 2:
        remedy = "One row a point, one column each; reshape(-1, 1) makes a column of a vector."
        raise refusal(f"{name} must be a 2-d array.", f"shape {array.shape}", remedy)
    if len(array) < 2 or array.shape[1] < 1:
        raise refusal(f"{name} must have at least 2 rows and 1 column.", f"shape {array.shape}", "Pass more points.")
    _finite(np.isfinite(array), name)
    return array


def _finite(finite: Bool[np.ndarray, "n d"], name: str) -> None:
    """Refuse NaN and infinities, saying how many and where the first one is."""
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        got = f"{(~finite).sum()} NaN or infinite values (first at row {row}, column {column})"
        raise refusal(f"{name} must be finite.", got, "Drop those rows or retrain.")


def as_codes(codes: Codes, name: str = "Codes", *, columns: int = 1) -> Float[np.ndarray, "n d"]:
    """Codes as float64, with at least `columns` columns.

    >>> as_codes([[1, 2], [3, 4]]).dtype
    dtype('float64')
    """
    table = _table(codes, name)
    if table.shape[1] < columns:
        raise refusal(f"{name} must have at least {columns} columns.", table.shape[1], "Pass all code dimensions.")
    return table.astype(np.float64)


def as_factors(factors: Factors, name: str = "Factors", *, columns: int = 1) -> Int[np.ndarray, "n k"]:
    """Factors as int64, with at least `columns` columns; floats are welcome as long as they hold integers.

    >>> as_factors([[0.0, 1.0], [1.0, 0.0]]).dtype
    dtype('int64')
    """
    table = _table(factors, name)
    if table.shape[1] < columns:
        raise refusal(f"{name} must have at least {columns} columns.", table.shape[1], "Pass more factors.")
    if table.dtype.kind == "f" and not (whole := table == np.rint(table)).all():
        row, column = np.argwhere(~whole)[0]
        got = f"{table[row, column]} (row {row}, column {column})"
        raise refusal(
            f"{name} must be integers, one for each value.", got, "If they are continuous, discretise them first."
        )
    return table.astype(np.int64)


def same_rows(codes: Real[np.ndarray, "n d"], factors: Real[np.ndarray, "m k"]) -> None:
    """Refuse tables of different length."""
    if len(codes) != len(factors):
        remedy = "Row i of both must be the same point; (columns, points) arrays need transposing."
        raise refusal(
            "Codes and factors must have the same number of rows.", f"{len(codes)} and {len(factors)}", remedy
        )


def same_columns(train: Real[np.ndarray, "n d"], test: Real[np.ndarray, "m e"], name: str) -> None:
    """Refuse train and test tables of different width."""
    if train.shape[1] != test.shape[1]:
        got, remedy = f"{train.shape[1]} and {test.shape[1]}", "Pass the same columns in the same order."
        raise refusal(f"{name} must have as many columns in train as in test.", got, remedy)


def varied(factors: Real[np.ndarray, "n k"]) -> None:
    """Refuse a factor that never varies: nothing can be learnt or told of it."""
    constant = np.flatnonzero(factors.min(axis=0) == factors.max(axis=0))
    if constant.size:
        column = constant[0]
        got = f"only the value {factors[0, column]} in factor column {column}"
        raise refusal("Every factor must take at least 2 values.", got, "Drop that factor.")


def labelled(
    codes: Codes, factors: Factors, *, min_codes: int = 1, min_factors: int = 1
) -> tuple[Float[np.ndarray, "n d"], Int[np.ndarray, "n k"]]:
    """Codes and the factors they belong to, checked together.

    >>> codes, factors = labelled([[0.5], [1.5]], [[True], [False]])
    >>> factors.tolist()
    [[1], [0]]
    """
    checked_codes = as_codes(codes, columns=min_codes)
    checked_factors = as_factors(factors, columns=min_factors)
    same_rows(checked_codes, checked_factors)
    varied(checked_factors)
    return checked_codes, checked_factors
