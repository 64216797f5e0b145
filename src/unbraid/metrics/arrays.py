"""Conversion and validation of the arrays that users pass. Codes become float64 and factors become int64."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int, Real
from numpy.typing import ArrayLike

from unbraid.errors import UserError

# Parameter types of public functions. The array is the documented type. ArrayLike is allowed too, because the checks
# below convert any other input or raise an error that says what to do.
Codes: TypeAlias = Real[np.ndarray, "n d"] | ArrayLike
Factors: TypeAlias = Real[np.ndarray, "n k"] | ArrayLike

CONTINUOUS_REMEDY = (
    "If factors are continuous, pass continuous=[...] with one bool per factor, or discretise them first into bins of "
    "equal counts: np.searchsorted(np.quantile(x, np.arange(1, 10) / 10), x) for a factor x."
)
LARGEST_INTEGER = 2**53  # larger integers are not exact in float64


def input_error(rule: str, got: object, remedy: str) -> UserError:
    """Return an error that says what must hold, what was given and what to do."""
    return UserError(f"{rule} Got {got} instead. {remedy}")


def check_at_least(low: int, **parameters: int | float) -> None:
    """Raise a `UserError` if a named parameter is below `low` or NaN."""
    for name, value in parameters.items():
        if not value >= low:
            raise UserError(f"The '{name}' parameter must be >= {low}. Got {value} instead.")


def check_table(values: ArrayLike, name: str, *, allow_nan: bool = False) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the values as a 2-d array without converting their dtype.

    Raise an error if the values are not finite real numbers, or if there are fewer than 2 rows or no columns. NaN is
    accepted if `allow_nan` is true.
    """
    array = fill_masked(values)
    if array.dtype.kind not in "buif":
        raise input_error(
            f"{name} must be real numbers.", f"dtype {array.dtype}", "Convert them to float or int first."
        )
    if array.ndim != 2:
        remedy = "Pass one row per example and one column per dimension. reshape(-1, 1) turns a vector into one column."
        raise input_error(f"{name} must be a 2-d array.", f"shape {array.shape}", remedy)
    if len(array) < 2 or array.shape[1] < 1:
        raise input_error(
            f"{name} must have at least 2 rows and 1 column.", f"shape {array.shape}", "Pass more examples."
        )
    _check_finite(np.isfinite(array) | (np.isnan(array) if allow_nan else False), name)
    return array


def fill_masked(values: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the values as an array. Masked entries of a masked array of numbers become NaN.

    >>> fill_masked(np.ma.masked_equal([[1, 2], [3, 2]], 2)).tolist()
    [[1.0, nan], [3.0, nan]]
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values) and values.dtype.kind in "buif":
        return np.where(np.ma.getmaskarray(values), np.nan, values.data)
    return np.asarray(values)


def _check_finite(finite: Bool[np.ndarray, "n d"], name: str) -> None:
    """If a value is not finite, raise an error with the number of such values and the position of the first one."""
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        got = f"{(~finite).sum()} NaN or infinite values (first at row {row}, column {column})"
        raise input_error(f"{name} must be finite.", got, "Drop those rows or retrain the model.")


def as_codes(codes: Codes, name: str = "Codes", *, columns: int = 1) -> Float[np.ndarray, "n d"]:
    """Return the codes as float64, or raise a `UserError` if they are invalid or have fewer than `columns` columns.

    >>> as_codes([[1, 2], [3, 4]]).dtype
    dtype('float64')
    """
    table = check_table(codes, name)
    if table.shape[1] < columns:
        raise input_error(f"{name} must have at least {columns} columns.", table.shape[1], "Pass all code dimensions.")
    return table.astype(np.float64)


def as_factors(factors: Factors, name: str) -> Int[np.ndarray, "n k"]:
    """Return the factors as int64. If they are invalid, raise a `UserError` that refers to them as `name`.

    Floating-point arrays are accepted if all their values are integers.

    >>> as_factors([[0.0, 1.0], [1.0, 0.0]], "Labels").dtype
    dtype('int64')
    """
    table = check_table(factors, name)
    check_integers(table, name)
    return table.astype(np.int64)


def check_integers(
    table: np.ndarray[Any, np.dtype[Any]], name: str, discrete: Bool[np.ndarray, " k"] | bool = True
) -> None:
    """Raise a `UserError` if a label of a discrete factor is neither an integer nor NaN.

    `discrete` says which columns are discrete factors.
    """
    if table.dtype.kind != "f":
        return
    check_exact(table, name, discrete)
    wrong = (table != np.rint(table)) & ~np.isnan(table) & discrete
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        rule = f"{name} must be integers, a different one for each distinct value."
        raise input_error(rule, f"{table[row, column]} (row {row}, column {column})", CONTINUOUS_REMEDY)


def check_exact(
    table: np.ndarray[Any, np.dtype[Any]], name: str, discrete: Bool[np.ndarray, " k"] | bool = True
) -> None:
    """Raise a `UserError` if a label of a discrete factor is too large to be exact in float64."""
    large = ((table > LARGEST_INTEGER) | (table < -LARGEST_INTEGER)) & discrete
    if large.any():
        row, column = np.argwhere(large)[0]
        rule = f"{name} must not exceed 2^53 if they are floating-point numbers, or if another factor is continuous."
        remedy = "Number the values: np.unique(x, return_inverse=True)[1] for a factor x."
        raise input_error(rule, f"{table[row, column]} (row {row}, column {column})", remedy)


def check_same_rows(codes: Real[np.ndarray, "n d"], factors: Real[np.ndarray, "m k"]) -> None:
    """Raise a `UserError` if two tables have different numbers of rows."""
    if len(codes) != len(factors):
        remedy = "Row i of both must belong to the same example. Transpose arrays of shape (columns, examples)."
        raise input_error(
            "Codes and factors must have the same number of rows.", f"{len(codes)} and {len(factors)}", remedy
        )


def check_same_columns(train: Real[np.ndarray, "n d"], test: Real[np.ndarray, "m e"], name: str) -> None:
    """Raise a `UserError` if the training table and the test table have different numbers of columns."""
    if train.shape[1] != test.shape[1]:
        got, remedy = f"{train.shape[1]} and {test.shape[1]}", "Pass the same columns in the same order."
        raise input_error(f"{name} must have as many columns in train as in test.", got, remedy)


def check_factors_vary(factors: Real[np.ndarray, "n k"]) -> None:
    """Raise a `UserError` if a factor is constant, because no metric can measure it."""
    constant = np.flatnonzero(np.fmin.reduce(factors) == np.fmax.reduce(factors))
    if constant.size:
        column = constant[0]
        got = f"only the value {np.fmin.reduce(factors[:, column])} in factor column {column}"
        raise input_error("Every factor must take at least 2 values.", got, "Drop that factor.")
