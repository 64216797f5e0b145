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


def input_error(rule: str, got: object, remedy: str) -> UserError:
    """Return an error that says what must hold, what was given and what to do."""
    return UserError(f"{rule} Got {got} instead. {remedy}")


def check_at_least(low: int, **parameters: int | float) -> None:
    """Raise a `UserError` if a named parameter is below `low` or NaN."""
    for name, value in parameters.items():
        if not value >= low:
            raise UserError(f"The '{name}' parameter must be >= {low}. Got {value} instead.")


def _check_table(values: ArrayLike, name: str) -> np.ndarray[Any, np.dtype[Any]]:
    """Return a 2-d array with its own dtype. Raise an error if it is empty or does not hold finite real numbers."""
    array = np.asarray(values)
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
    _check_finite(np.isfinite(array), name)
    return array


def _check_finite(finite: Bool[np.ndarray, "n d"], name: str) -> None:
    """Raise an error that says how many values are NaN or infinite and where the first one is."""
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        got = f"{(~finite).sum()} NaN or infinite values (first at row {row}, column {column})"
        raise input_error(f"{name} must be finite.", got, "Drop those rows or retrain the model.")


def as_codes(codes: Codes, name: str = "Codes", *, columns: int = 1) -> Float[np.ndarray, "n d"]:
    """Return the codes as float64, or raise a `UserError` if they are invalid or have fewer than `columns` columns.

    >>> as_codes([[1, 2], [3, 4]]).dtype
    dtype('float64')
    """
    table = _check_table(codes, name)
    if table.shape[1] < columns:
        raise input_error(f"{name} must have at least {columns} columns.", table.shape[1], "Pass all code dimensions.")
    return table.astype(np.float64)


def as_factors(factors: Factors, name: str = "Factors", *, columns: int = 1) -> Int[np.ndarray, "n k"]:
    """Return the factors as int64, or raise a `UserError` if they are invalid or have fewer than `columns` columns.

    Floating-point arrays are accepted if all their values are integers.

    >>> as_factors([[0.0, 1.0], [1.0, 0.0]]).dtype
    dtype('int64')
    """
    table = _check_table(factors, name)
    if table.shape[1] < columns:
        raise input_error(f"{name} must have at least {columns} columns.", table.shape[1], "Pass more factors.")
    if table.dtype.kind == "f" and not (integral := table == np.rint(table)).all():
        row, column = np.argwhere(~integral)[0]
        got = f"{table[row, column]} (row {row}, column {column})"
        raise input_error(
            f"{name} must be integers, one for each value.", got, "If they are continuous, discretise them first."
        )
    return table.astype(np.int64)


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
    constant = np.flatnonzero(factors.min(axis=0) == factors.max(axis=0))
    if constant.size:
        column = constant[0]
        got = f"only the value {factors[0, column]} in factor column {column}"
        raise input_error("Every factor must take at least 2 values.", got, "Drop that factor.")


def as_codes_and_factors(
    codes: Codes, factors: Factors, *, min_codes: int = 1, min_factors: int = 1
) -> tuple[Float[np.ndarray, "n d"], Int[np.ndarray, "n k"]]:
    """Return codes and factors after checking both arrays, their lengths, and that every factor varies.

    >>> codes, factors = as_codes_and_factors([[0.5], [1.5]], [[True], [False]])
    >>> factors.tolist()
    [[1], [0]]
    """
    checked_codes = as_codes(codes, columns=min_codes)
    checked_factors = as_factors(factors, columns=min_factors)
    check_same_rows(checked_codes, checked_factors)
    check_factors_vary(checked_factors)
    return checked_codes, checked_factors


def as_test_arrays(
    test_codes: Codes,
    test_factors: Factors,
    codes: Float[np.ndarray, "train _"],
    factors: Int[np.ndarray, "train _"],
) -> tuple[Float[np.ndarray, "m d"], Int[np.ndarray, "m k"]]:
    """Return test codes and factors after checking both arrays, their lengths, and that they match the training arrays.

    >>> train = np.zeros((2, 3)), np.array([[0], [1]])
    >>> as_test_arrays([[0, 0, 0], [1, 1, 1]], [[1], [1]], *train)[1].tolist()
    [[1], [1]]
    """
    checked_codes, checked_factors = as_codes(test_codes, "Test codes"), as_factors(test_factors, "Test factors")
    check_same_rows(checked_codes, checked_factors)
    check_same_columns(codes, checked_codes, "Codes")
    check_same_columns(factors, checked_factors, "Factors")
    return checked_codes, checked_factors
