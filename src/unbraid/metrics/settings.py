"""Rows that have the same values of all factors but one. Comparing their codes shows what this factor changes.

A setting is a combination of values of all other factors.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int

from unbraid.metrics.arrays import input_error
from unbraid.metrics.information import consecutive_labels


def intervention_rows(
    factors: Int[np.ndarray, "n k"],
    j: int,
    count: int,
    rng: np.random.Generator,
    *,
    max_rows: float | None = None,
    option: str = "test",
) -> Int[np.ndarray, "count m"]:
    """Draw `count` random settings of the other factors, and return one row number per setting and value of factor j.

    The first axis of the result is the setting, and the second axis is the value of factor j. Only settings that occur
    with every value of factor j are drawn. If `max_rows` is given, the number of different settings is limited, so that
    these settings have about `max_rows` rows in total. At least one setting is used. Error messages refer to `count` by
    the name `option`.

    >>> grid = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [2, 0]])
    >>> intervention_rows(grid, 0, 2, np.random.default_rng(0)).tolist()  # value 2 does not occur in setting 1
    [[0, 2, 4], [0, 2, 4]]
    """
    value_index = consecutive_labels(factors[:, j])
    m = int(value_index.max()) + 1
    setting = setting_numbers(np.delete(factors, j, axis=1))
    cell = setting * m + value_index
    order = np.argsort(cell, kind="stable")
    cells, starts, counts = np.unique(cell[order], return_index=True, return_counts=True)
    complete = np.bincount(cells // m) == m
    _check_enough_settings(complete, count, j, option)
    if max_rows is not None:
        settings = np.flatnonzero(complete)
        limit = max(1, int(max_rows / (m * len(factors) / len(cells))))
        complete = np.isin(np.arange(len(complete)), rng.permutation(settings)[:limit])
    possible = np.flatnonzero(complete[setting])
    wanted = setting[rng.choice(possible, size=count)][:, None] * m + np.arange(m)
    index = np.searchsorted(cells, wanted)
    return np.asarray(order[starts[index] + rng.integers(counts[index])])


def _check_enough_settings(complete: Bool[np.ndarray, " s"], count: int, j: int, option: str) -> None:
    """Raise a `UserError` if too few settings of the other factors occur with every value of factor j."""
    possible, settings = int(complete.sum()), len(complete)
    needed = -(-min(count, settings) // 2)
    if possible < needed:
        rule = f"To change factor column {j} alone, at least {needed} settings of the other factors must occur with"
        rule += " every value of this factor."
        remedy = f"Pass the whole table of factor combinations, lower '{option}', or drop that factor."
        raise input_error(rule, f"{possible} among {settings} settings", remedy)


def setting_numbers(factors: Int[np.ndarray, "n k"]) -> Int[np.ndarray, " n"]:
    """Number the distinct rows from 0 without gaps, and return the number of each row."""
    setting = np.zeros(len(factors), dtype=np.int64)
    for column in factors.T:
        value_index = consecutive_labels(column)
        setting = setting * (int(value_index.max()) + 1) + value_index
        if setting.max() > 2**31:  # renumber, because the next product could overflow
            setting = consecutive_labels(setting)
    return consecutive_labels(setting)


def count_values_by_setting(
    factors: Int[np.ndarray, "n k"], j: int
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " s"]]:
    """Return the setting number of each row, and how many values of factor j occur in each setting.

    A setting is a combination of values of all factors but factor j.

    >>> setting, counts = count_values_by_setting(np.array([[0, 0], [1, 0], [2, 0], [2, 0], [0, 5]]), 0)
    >>> setting.tolist(), counts.tolist()
    ([0, 0, 0, 0, 1], [3, 1])
    """
    value_index = consecutive_labels(factors[:, j])
    m = int(value_index.max()) + 1
    setting = setting_numbers(np.delete(factors, j, axis=1))
    return setting, np.bincount(np.unique(setting * m + value_index) // m)
