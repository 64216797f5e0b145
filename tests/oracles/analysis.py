"""Slow versions of the analyses, with loops over runs, and results tables with known answers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pandas import DataFrame

Row = dict[str, Any]


def results_grid(
    score: Callable[..., float],
    *,
    data: Sequence[str] = ("a",),
    methods: Sequence[str] = ("m",),
    levels: int = 1,
    seeds: int = 1,
    columns: Sequence[str] = ("mig.discrete_mig",),
) -> DataFrame:
    """Return a results table of a full grid. `score` gets the indices (data, method, level, seed, column)."""
    rows = []
    for d, m, level, seed in itertools.product(range(len(data)), range(len(methods)), range(levels), range(seeds)):
        row: Row = {"run": f"{d}-{m}-{level}-{seed}", "data": data[d], "method": methods[m], "strength": float(level)}
        row |= {"level": level, "seed": seed, "steps": 10}
        rows.append(row | {column: score(d, m, level, seed, c) for c, column in enumerate(columns)})
    return DataFrame(rows)


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def explained_share(scores: Sequence[float], groups: Sequence[Any]) -> float:
    """Return R squared of a least-squares fit on one indicator per group, by solving for the coefficients."""
    kinds = sorted(set(groups))
    design = np.array([[float(group == kind) for kind in kinds] for group in groups])
    target = np.array(scores)
    fitted = design @ np.linalg.lstsq(design, target, rcond=None)[0]
    return float(1 - ((target - fitted) ** 2).sum() / ((target - target.mean()) ** 2).sum())


def ranks(values: Sequence[float]) -> list[float]:
    """Return the ranks: one plus the number of smaller values and half the number of other equal values."""
    return [1 + sum(y < x for y in values) + (sum(y == x for y in values) - 1) / 2 for x in values]


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    pairs = [(x, y) for x, y in zip(first, second, strict=True) if not (math.isnan(x) or math.isnan(y))]
    a, b = ranks([x for x, _ in pairs]), ranks([y for _, y in pairs])
    x, y = [v - mean(a) for v in a], [v - mean(b) for v in b]
    top = math.fsum(p * q for p, q in zip(x, y, strict=True))
    return top / math.sqrt(math.fsum(p * p for p in x) * math.fsum(q * q for q in y))


def known_scores(rows: list[Row], setting: Any, seeds: Sequence[int], column: str) -> list[float]:
    """Return the scores of a setting at these seeds that are not NaN."""
    scores = [r[column] for r in rows if (r["method"], r["level"]) == setting and r["seed"] in seeds]
    return [value for value in scores if not math.isnan(value)]


def best_settings(rows: list[Row], settings: Sequence[Any], seeds: Sequence[int], column: str) -> list[Any]:
    """Return the settings with the best mean over these seeds."""
    means = {s: mean(values) for s in settings if (values := known_scores(rows, s, seeds, column))}
    return [s for s, value in means.items() if value == max(means.values())]


def win_rate(table: DataFrame, source: tuple[str, str], target: tuple[str, str], by: str) -> float:
    """Return how often a setting selected on `source` beats another on `target`, both given as (column, data).

    Settings that are selected with equal scores share their weight.
    """
    rows: list[Row] = table.to_dict("records")
    source_rows, target_rows = ([r for r in rows if r["data"] == place[1]] for place in (source, target))
    settings = sorted({(r["method"], r["level"]) for r in rows})
    seeds = sorted({r["seed"] for r in rows})
    top = bottom = 0.0
    for seed in seeds:
        rest = [other for other in seeds if other != seed]
        pools = [rest] if by == "by_mean" else [[other] for other in rest]
        choices = [best for pool in pools if (best := best_settings(source_rows, settings, pool, source[0]))]
        for best in choices:
            for setting in best:
                share = share_of_beaten(target_rows, settings, setting, seed, target[0])
                if share is not None:
                    weight = 1 / len(best) / len(choices)
                    top, bottom = top + weight * share, bottom + weight
    return top / bottom if bottom else math.nan


def share_of_beaten(rows: list[Row], settings: Sequence[Any], setting: Any, seed: int, column: str) -> float | None:
    """Return the share of the other settings that a setting beats at a seed; ties count half."""
    own = known_scores(rows, setting, [seed], column)
    others = [known_scores(rows, other, [seed], column) for other in settings if other != setting]
    scored = [value[0] for value in others if value]
    if not own or not scored:
        return None
    return mean([1.0 if own[0] > value else 0.5 if own[0] == value else 0.0 for value in scored])
