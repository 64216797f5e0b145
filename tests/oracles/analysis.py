"""Slow, literal versions of the analyses, with loops over runs, and results tables with known answers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pandas import DataFrame

Row = dict[str, Any]


def grid(
    score: Callable[..., float],
    *,
    data: Sequence[str] = ("a",),
    methods: Sequence[str] = ("m",),
    levels: int = 1,
    seeds: int = 1,
    columns: Sequence[str] = ("mig.discrete_mig",),
) -> DataFrame:
    """A results table over a full grid; `score(data, method, level, seed, column)` by index is each score."""
    rows = []
    for d, m, level, seed in itertools.product(range(len(data)), range(len(methods)), range(levels), range(seeds)):
        row: Row = {"run": f"{d}-{m}-{level}-{seed}", "data": data[d], "method": methods[m], "strength": float(level)}
        row |= {"level": level, "seed": seed, "steps": 10}
        rows.append(row | {column: score(d, m, level, seed, c) for c, column in enumerate(columns)})
    return DataFrame(rows)


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def explained(scores: Sequence[float], groups: Sequence[Any]) -> float:
    """R squared of least squares on one indicator a group, by solving for the coefficients."""
    kinds = sorted(set(groups))
    design = np.array([[float(group == kind) for kind in kinds] for group in groups])
    target = np.array(scores)
    fitted = design @ np.linalg.lstsq(design, target, rcond=None)[0]
    return float(1 - ((target - fitted) ** 2).sum() / ((target - target.mean()) ** 2).sum())


def ranks(values: Sequence[float]) -> list[float]:
    """One plus the number of smaller values and half the number of others that are equal."""
    return [1 + sum(y < x for y in values) + (sum(y == x for y in values) - 1) / 2 for x in values]


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    pairs = [(x, y) for x, y in zip(first, second, strict=True) if not (math.isnan(x) or math.isnan(y))]
    a, b = ranks([x for x, _ in pairs]), ranks([y for _, y in pairs])
    x, y = [v - mean(a) for v in a], [v - mean(b) for v in b]
    top = math.fsum(p * q for p, q in zip(x, y, strict=True))
    return top / math.sqrt(math.fsum(p * p for p in x) * math.fsum(q * q for q in y))


def known(rows: list[Row], setting: Any, seeds: Sequence[int], column: str) -> list[float]:
    """The scores of a setting at these seeds that are not NaN."""
    found = [r[column] for r in rows if (r["method"], r["level"]) == setting and r["seed"] in seeds]
    return [value for value in found if not math.isnan(value)]


def leaders(rows: list[Row], settings: Sequence[Any], seeds: Sequence[int], column: str) -> list[Any]:
    """The settings with the best mean over these seeds."""
    means = {s: mean(values) for s in settings if (values := known(rows, s, seeds, column))}
    return [s for s, value in means.items() if value == max(means.values())]


def win_rate(table: DataFrame, source: tuple[str, str], target: tuple[str, str], by: str) -> float:
    """How often a setting chosen on (column, data) beats another on (column, data), each weighted by its chance."""
    rows: list[Row] = table.to_dict("records")
    there, here = ([r for r in rows if r["data"] == place[1]] for place in (source, target))
    settings = sorted({(r["method"], r["level"]) for r in rows})
    seeds = sorted({r["seed"] for r in rows})
    top = bottom = 0.0
    for seed in seeds:
        rest = [other for other in seeds if other != seed]
        pools = [rest] if by == "by_mean" else [[other] for other in rest]
        choices = [found for pool in pools if (found := leaders(there, settings, pool, source[0]))]
        for found in choices:
            for setting in found:
                share = beaten(here, settings, setting, seed, target[0])
                if share is not None:
                    weight = 1 / len(found) / len(choices)
                    top, bottom = top + weight * share, bottom + weight
    return top / bottom if bottom else math.nan


def beaten(rows: list[Row], settings: Sequence[Any], setting: Any, seed: int, column: str) -> float | None:
    """The share of the other settings that one beats at a seed, ties by half."""
    own = known(rows, setting, [seed], column)
    others = [known(rows, other, [seed], column) for other in settings if other != setting]
    met = [value[0] for value in others if value]
    if not own or not met:
        return None
    return mean([1.0 if own[0] > value else 0.5 if own[0] == value else 0.0 for value in met])
