"""Read tables of labels, decide whether numbers are classes or continuous, and divide continuous labels into bins."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float, Int

from unbraid.errors import UserError, unknown_name_message

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

DEFAULT_BINS = 10  # number of bins of a continuous factor
MANY_VALUES = 50  # numbers with more distinct values than this may be continuous
FEW_VALUES = 10  # numbers with at most this many distinct values are treated as continuous only if the user says so
MISSING_WORDS = ("", "nan")  # words that mean a missing label, in lower case
ROWS_PER_CLASS = 10  # integers with fewer rows per distinct value than this are probably not classes


def label_columns(table: Any) -> dict[str, list[Any]] | None:
    """Return the columns of a table that has column names or words, or None for a plain array of numbers.

    Args:
        table: A data frame, a series, a dictionary of columns, or an array of shape (n, k) or (n,).

    Returns:
        The labels of each column by its name. Each label is an integer, a float, a word, or None if it is missing. The
        columns of an array without names are called "factor0", "factor1" and so on, or "label" if there is only one.

    Raises:
        UserError: If a label is neither a number nor a word, or if two columns have the same name.

    >>> label_columns({"shape": ["square", "heart", None], "size": np.array([1.0, 0.5, np.nan])})
    {'shape': ['square', 'heart', None], 'size': [1.0, 0.5, None]}
    >>> label_columns(np.zeros((3, 2)))
    """
    if hasattr(table, "columns") and hasattr(table, "dtypes"):
        names = [str(name) for name in table.columns]
        columns = [np.asarray(table.iloc[:, j] if hasattr(table, "iloc") else table[:, j]) for j in range(len(names))]
    elif isinstance(table, Mapping):
        names, columns = [str(name) for name in table], [_unmasked(column) for column in table.values()]
    elif hasattr(table, "dtype") and hasattr(table, "name") and hasattr(table, "to_numpy"):
        names, columns = ["label" if table.name in (None, "") else str(table.name)], [np.asarray(table)]
    else:
        array = _word_array(table)
        if array is None:
            return None
        columns = [array] if array.ndim == 1 else [_numbers_if_possible(column) for column in array.T]
        names = ["label"] if len(columns) == 1 else [f"factor{j}" for j in range(len(columns))]
    if len(set(names)) < len(names):
        raise UserError(f"The columns of the factors must have different names. Got {', '.join(names)} instead.")
    return {name: _column_labels(name, column) for name, column in zip(names, columns, strict=True)}


def _word_array(table: Any) -> Array | None:
    """Return an array (n,) or (n, k) that contains words, or None if the table contains no words."""
    if hasattr(table, "detach"):  # a tensor has no words
        return None
    try:
        array = _unmasked(table) if isinstance(table, np.ndarray) else np.array(table, dtype=object)
    except ValueError:  # rows of unequal length, for which the caller raises an error
        return None
    words = array.dtype.kind in "UO" and array.ndim in (1, 2) and any(isinstance(value, str) for value in array.flat)
    return array if words else None


def _unmasked(column: Any) -> Array:
    """Return a column as an array in which masked entries are None."""
    if not np.ma.is_masked(column):
        return np.asarray(column)
    filled = np.array(column.data, dtype=object)
    filled[np.ma.getmaskarray(column)] = None
    return filled


def _numbers_if_possible(column: Array) -> Array:
    """Return a column of an array of text as numbers, if all of its entries are numbers."""
    try:
        return column.astype(np.float64) if column.dtype.kind == "U" else column
    except ValueError:
        return column


def _column_labels(name: str, column: Array) -> list[Any]:
    """Return one column as integers, floats, words and None."""
    if column.ndim != 1:
        raise UserError(f"The column {name!r} must have one label per example. Got shape {column.shape} instead.")
    if column.dtype.kind in "mM":
        _label(name, column[0])  # raises a UserError, because dates and times are not labels
    labels = [_label(name, value) for value in column.tolist()]
    numbers = [value for value in labels if value is not None]
    if numbers and all(isinstance(value, float) and value.is_integer() for value in numbers):
        return [None if value is None else int(value) for value in labels]
    return labels


def _label(name: str, value: Any) -> int | float | str | None:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, np.generic) and value.dtype.kind not in "mM":
        value = value.item()
    if isinstance(value, str):
        return None if value.lower() in MISSING_WORDS else value
    if isinstance(value, bool | int):
        return int(value)
    if not isinstance(value, float):
        raise UserError(
            f"Labels must be numbers or words. Got {type(value).__name__} in the column {name!r}. Leave it out, or "
            "convert it."
        )
    if np.isinf(value):
        raise UserError(f"Labels must be finite, or NaN if a label is missing. Got an infinite value in {name}.")
    return None if np.isnan(value) else value


def looks_continuous(values: Array) -> bool:
    """Return whether numbers look like a continuous quantity and not like classes. NaN values are ignored.

    Numbers that are not all whole look continuous if they have more than 50 distinct values. With 11 to 50 distinct
    values, they look continuous if there are fewer than 2 rows per distinct value on average. Whole numbers look
    continuous if they have more than 50 distinct values and fewer than 10 rows per distinct value on average. This is
    often the case for identifiers and pixel positions.

    >>> rng = np.random.default_rng(0)
    >>> looks_continuous(rng.random(2_000)), looks_continuous(rng.integers(40, size=2_000) / 40)
    (True, False)
    >>> looks_continuous(np.arange(2_000)), looks_continuous(np.arange(2_000) % 100)
    (True, False)
    """
    present = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    count, n = len(np.unique(present)), len(present)
    if (present == np.rint(present)).all():
        return count > MANY_VALUES and n < ROWS_PER_CLASS * count
    return count > MANY_VALUES or (count > FEW_VALUES and 2 * count > n)


def equal_count_bins(
    values: Float[np.ndarray, " n"], bins: int = DEFAULT_BINS, *, merge_small: bool = True
) -> Int[np.ndarray, " n"]:
    """Divide numbers into bins with nearly equal counts, and return the bin number of each row.

    Equal numbers are in the same bin. There are at most `bins` bins, and at most half as many bins as rows. If
    `merge_small` is true, small bins are merged with the smaller of their neighbours. A bin is small if it has fewer
    than 2 rows, or fewer than half of the rows that it would have if all bins had the same number of rows. If
    `merge_small` is false, numbers that vary always have at least 2 bins. A missing number (NaN) has the bin number -1.

    >>> np.bincount(equal_count_bins(np.linspace(0, 1, 101))).tolist()
    [10, 10, 10, 10, 10, 11, 10, 10, 10, 10]
    >>> equal_count_bins(np.array([0.0, 0.0, np.nan, 0.0, 0.1, 7.0, 7.5]), 3).tolist()
    [0, 0, -1, 0, 1, 1, 1]
    """
    present = ~np.isnan(values)
    _, inverse, counts = np.unique(values[present], return_inverse=True, return_counts=True)
    n = int(present.sum())
    bins = min(bins, max(2, n // 2))
    middle_rank = np.cumsum(counts) - counts / 2
    number = np.unique((bins * middle_rank / n).astype(np.int64), return_inverse=True)[1]
    if merge_small:
        number = _merge_small_bins(number, counts, max(2, n / (2 * bins)))
    result = np.full(len(values), -1, np.int64)
    result[present] = number[inverse]
    return result


def _merge_small_bins(
    number: Int[np.ndarray, " v"], counts: Int[np.ndarray, " v"], least: float
) -> Int[np.ndarray, " v"]:
    """Merge bins with fewer than `least` rows, and return the new bin of each distinct value.

    `number` has the bin of each distinct value, and `counts` has the number of rows with this value.
    """
    while (sizes := np.bincount(number, weights=counts)).size > 1 and sizes.min() < least:
        smallest = int(sizes.argmin())
        above = smallest == 0 or (smallest + 1 < len(sizes) and sizes[smallest + 1] < sizes[smallest - 1])
        number = number - (number > (smallest if above else smallest - 1))
    return number


def split_names(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return the names in an option such as "angle,size" or ["angle", "size"].

    >>> split_names("angle, size"), split_names(None)
    (('angle', 'size'), ())
    """
    single = isinstance(given, str) or not isinstance(given, Iterable | None)
    entries: list[Any] = [given] if single else list(given or ())
    if wrong := [entry for entry in entries if not isinstance(entry, str)]:
        raise UserError(f"Names must be text, such as 'angle,size' or ['angle', 'size']. Got {wrong[0]!r} instead.")
    return tuple(dict.fromkeys(part.strip() for entry in entries for part in entry.split(",") if part.strip()))


def declared_kinds(
    names: Sequence[str], continuous: str | Iterable[str] | None, discrete: str | Iterable[str] | None
) -> dict[str, bool]:
    """Return whether each factor that the user named is continuous.

    Args:
        names: Names of all factors.
        continuous: Names of continuous factors, as a list or separated by commas.
        discrete: Names of factors whose values are classes, in the same form.

    Raises:
        UserError: If a name is unknown or is in both lists.

    >>> declared_kinds(["angle", "shape"], "angle", None)
    {'angle': True}
    """
    declared: dict[str, bool] = {}
    for kind, given in (("continuous", continuous), ("discrete", discrete)):
        for name in split_names(given):
            if not names:
                raise UserError(f"The option '{kind}' needs data with factors. Got {name!r} for data without factors.")
            if name not in names:
                raise UserError(unknown_name_message(f"factor in the option '{kind}'", name, names))
            if name in declared:
                raise UserError(f"A factor must be either continuous or discrete. Got {name} as both. Remove one.")
            declared[name] = kind == "continuous"
    return declared


def find_continuous(
    columns: Mapping[str, Array], declared: Mapping[str, bool], is_grid: Callable[[], bool]
) -> tuple[str, ...]:
    """Return the names of the continuous factors. A warning announces each decision that the user did not make.

    Args:
        columns: The labels of each numeric factor, with NaN for missing labels.
        declared: Whether each factor that the user named is continuous; see `declared_kinds`.
        is_grid: A function that returns whether there is one example for each combination of labels. Factors on such a
            grid are classes, unless the user says otherwise.

    >>> columns = {"angle": np.linspace(0, 1, 100), "shape": np.arange(100) % 3}
    >>> find_continuous(columns, {"angle": True}, lambda: False)
    ('angle',)
    """
    found = [name for name, values in columns.items() if name not in declared and looks_continuous(values)]
    gridded = bool(found) and is_grid()
    for name in found:
        announce(_describe_guess(name, columns[name], gridded))
    return tuple(name for name in columns if declared.get(name, name in found and not gridded))


def _describe_guess(name: str, values: Array, gridded: bool) -> str:
    present = values[~np.isnan(values)]
    count = len(np.unique(present))
    if gridded:
        return (
            f"{name}: {count:,} distinct values on a full grid, treated as classes. Use the option continuous={name} "
            f"to treat them as continuous, or discrete={name} to confirm."
        )
    numbers = count == len(present) and (present == np.rint(present)).all()
    hint = " If they only number the examples, remove them from the labels." if numbers else ""
    return (
        f"{name}: {count:,} distinct values in {len(present):,} rows, treated as continuous. Use the option "
        f"discrete={name} to treat them as classes, or continuous={name} to confirm.{hint}"
    )


class LabelWarning(UserWarning):
    """A warning that says how labels are treated if the user has not declared them as classes or as continuous."""


def announce(message: str) -> None:
    """Tell the user how labels are treated, by a `LabelWarning`."""
    warnings.warn(message, LabelWarning, stacklevel=1)


@contextmanager
def without_announcements() -> Iterator[None]:
    """Suppress every `LabelWarning` inside the block. The user has seen them when the data were first used."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelWarning)
        yield
