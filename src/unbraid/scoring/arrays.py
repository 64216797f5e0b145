"""Score codes that are given as arrays, without a model. Importing this module does not import torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from unbraid.errors import UserError, warn_user
from unbraid.label_kinds import declared_kinds, find_continuous, label_columns
from unbraid.metrics.arrays import as_codes, check_table, fill_masked
from unbraid.metrics.labels import as_labels
from unbraid.metrics.protocol import (
    Array,
    Protocol,
    Rows,
    are_named,
    identity_digest,
    resolve_metric_names,
    sample_description,
)
from unbraid.runtime.progress import progress


def score_arrays(
    codes: Any,
    factors: Any,
    metrics: str | Iterable[str] | None = None,
    *,
    names: Sequence[str] | None = None,
    continuous: str | Sequence[str] | None = None,
    discrete: str | Sequence[str] | None = None,
    protocol: Protocol = Protocol(),
    label: str = "codes",
    quiet: bool = False,
) -> tuple[dict[str, Any], Rows]:
    """Compute metrics of codes.

    Args:
        codes: Codes, (n, d), as an array, a tensor or a data frame.
        factors: The factors of the same examples, (n, k) or (n,), as numbers or words in an array, a data frame or a
            dictionary of columns. NaN or None is a missing label.
        metrics: Names of metrics, or "all". By default those of `unbraid.metrics.DEFAULT_METRICS` that can be computed
            are used, and a warning names the others.
        names: Names of the k factors. The default is the names of the columns, or factor0, factor1 and so on.
        continuous: Names of continuous factors, as a list or separated by commas.
        discrete: Names of factors whose values are classes. A factor that is named in neither argument is continuous if
            it has many distinct values; see `unbraid.label_kinds.looks_continuous`. A warning announces this choice.
        protocol: Defines which rows the metrics use.
        label: The value of `label` in the returned dictionary.
        quiet: Whether to hide the progress bar.

    Returns:
        A dictionary and the rows that the metrics used. The dictionary has the scores, called ``metric.key``, and
        `label`, `rows`, `protocol`, `train_rows`, `test_rows` and `draws`.

    Raises:
        UserError: If the arrays are invalid, or if a metric in `metrics` cannot be computed.
    """
    codes, (factors, names, words) = _as_array(codes), _as_numbers(factors, names)
    as_codes(codes)
    if len(codes) != len(factors):
        raise UserError(
            f"Codes and factors must have the same number of rows. Got {len(codes)} and {len(factors)} instead. Row i "
            "of both arrays must belong to the same example."
        )
    values, is_continuous = prepare_factors(factors, names, continuous, discrete, words)
    rows, metric_names = protocol.rows(codes, values, is_continuous), resolve_metric_names(metrics)
    with progress("scoring", len(metric_names), quiet) as report:
        outcome = rows.score(metric_names, protocol.seed, lambda name: report(metric_names.index(name), name))
    scored = outcome.values if outcome.values and not are_named(metrics) else outcome.values_or_raise()
    for name, reason in outcome.errors.items():
        warn_user(f"left out: {name}: {reason}")
    scores = {f"{name}.{key}": value for name, own in scored.items() for key, value in own.items()}
    digest = identity_digest(rows.identity(name, protocol.seed) for name in metric_names)
    sample = sample_description(rows.sizes(), protocol)
    return {"label": label, "rows": len(codes), "protocol": digest, **sample, **scores}, rows


def _as_array(values: Any) -> Array:
    """Return a tensor, a data frame or nested lists as an array."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.double() if values.is_floating_point() else values  # numpy has no bfloat16
    return fill_masked(values)


def _as_numbers(factors: Any, names: Sequence[str] | None) -> tuple[Array, Sequence[str] | None, list[str]]:
    """Return factors as an array (n, k), the names of the k factors, and the names of those whose labels are words.

    Words are replaced by 0, 1, ... in alphabetical order. Missing labels become NaN.
    """
    columns = label_columns(factors)
    if columns is None:
        table = _as_array(factors)
        if table.dtype == object and table.ndim in (1, 2):
            with contextlib.suppress(TypeError, ValueError):  # other objects raise a UserError below
                table = np.array([np.nan if v is None else v for v in table.flat], np.float64).reshape(table.shape)
        if table.ndim == 0:
            check_table(table, "Factors")  # raises the error
        return (table[:, None] if table.ndim == 1 else table), names, []
    chosen = list(columns) if names is None else list(names)
    if len(chosen) != len(columns):
        raise UserError(f"There must be {len(columns)} different names, one per factor. Got {chosen} instead.")
    words = [name for name, column in zip(chosen, columns.values(), strict=True) if _has_words(column)]
    if len({len(column) for column in columns.values()}) > 1:
        counts = ", ".join(f"{name}: {len(column)}" for name, column in columns.items())
        raise UserError(f"The columns of the factors must have equally many labels. Got {counts} instead.")
    table = np.stack([_numbers(column) for column in columns.values()], 1)
    whole = not np.isnan(table).any() and not (table != np.rint(table)).any()
    return table.astype(np.int64) if whole else table, chosen, words


def _has_words(column: Sequence[Any]) -> bool:
    return any(isinstance(label, str) for label in column)


def _numbers(column: Sequence[Any]) -> Array:
    """Return labels as numbers. If there are words, each distinct label is replaced by its position in sorted order."""
    if _has_words(column):
        order = sorted({label for label in column if label is not None}, key=lambda label: (str(type(label)), label))
        position = {label: i for i, label in enumerate(order)}
        column = [None if label is None else position[label] for label in column]
    return np.array([np.nan if label is None else label for label in column], np.float64)


def prepare_factors(
    factors: Array,
    names: Sequence[str] | None = None,
    continuous: str | Sequence[str] | None = None,
    discrete: str | Sequence[str] | None = None,
    words: Sequence[str] = (),
) -> tuple[Array, tuple[bool, ...]]:
    """Decide which factors are continuous, and number the classes of the others.

    Args:
        factors: Numbers of shape (n, k). NaN is a missing label.
        names: Names of the k factors, as in `score_arrays`.
        continuous: Names of continuous factors.
        discrete: Names of discrete factors.
        words: Names of factors whose numbers stand for words. These factors are never continuous.

    Returns:
        The factors in the form that metrics take, and whether each factor is continuous. A discrete factor does not
        change if all its values are whole numbers. Otherwise all its values are replaced by 0, 1, ... in sorted order.

    >>> prepare_factors(np.array([[0.5], [2.5], [0.5], [np.nan]]))[0].T.tolist()
    [[0.0, 1.0, 0.0, nan]]
    """
    table = np.asarray(factors)
    if table.dtype.kind not in "buif" or table.ndim != 2 or not table.size or np.isinf(table).any():
        as_labels(table)  # raises the error
    chosen = factor_names(table.shape[1]) if names is None else list(names)
    if len(set(chosen)) != table.shape[1] or len(chosen) != table.shape[1]:
        raise UserError(f"There must be {table.shape[1]} different names, one per factor. Got {chosen} instead.")
    declared = dict.fromkeys(words, False) | declared_kinds(chosen, continuous, discrete)
    if wrong := [name for name in words if declared[name]]:
        raise UserError(
            f"A continuous factor must have numbers. Got words in {wrong[0]}. Leave it out of 'continuous'."
        )
    columns = dict(zip(chosen, table.T.astype(np.float64), strict=True))
    found = find_continuous(columns, declared, lambda: _is_grid(table))
    flags = tuple(name in found for name in chosen)
    if table.dtype.kind != "f" and not any(flags):
        return as_labels(table).values, flags
    numbered = [values if name in found else _number_classes(values) for name, values in columns.items()]
    return as_labels(np.stack(numbered, 1), flags).values, flags


def factor_names(k: int) -> list[str]:
    """Return default names of k factors."""
    return [f"factor{j}" for j in range(k)]


def _is_grid(table: Array) -> bool:
    """Return whether at least two factors vary, every combination of labels occurs once, and no label is missing."""
    sizes = [len(np.unique(column)) for column in table.T]
    if sum(size > 1 for size in sizes) < 2:
        return False
    complete = table.dtype.kind != "f" or not np.isnan(table).any()
    return complete and int(np.prod(sizes)) == len(table) == len(np.unique(table, axis=0))


def _number_classes(column: Array) -> Array:
    """Return a column of whole numbers unchanged. Otherwise replace each value by its position in sorted order."""
    present = ~np.isnan(column)
    if (column[present] == np.rint(column[present])).all():
        return column
    numbers = np.full(len(column), np.nan)
    numbers[present] = np.unique(column[present], return_inverse=True)[1]
    return numbers
