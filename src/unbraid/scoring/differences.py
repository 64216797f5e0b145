"""Tests of the differences between two sides of a comparison, paired where the sides have the same seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unbraid.errors import UserError
from unbraid.runs.labels import differing
from unbraid.scoring.intervals import difference_interval, mean_interval
from unbraid.scoring.permutation import compare_many_scores, compare_paired_scores
from unbraid.scoring.sides import ScoredRun, Side

MIN_SEEDS = 3  # minimum number of seeds per side for a test
MIN_PAIRS = 6  # minimum number of pairs for a test that is paired by default. With 5 pairs, p >= 2 / 2^5 > 0.05
Pairs = list[tuple[ScoredRun, ScoredRun]]


@dataclass(frozen=True)
class Difference:
    """The difference between the means of one metric on two sides, its confidence interval and its p-values.

    Attributes:
        metric: Name of the metric.
        first: Name of the first side.
        second: Name of the second side.
        difference: The mean of the second side minus the mean of the first. In a paired test, only runs with a partner
            count.
        p: The p-value for this metric alone.
        p_all: The p-value corrected for all metrics that were tested together (see
            `unbraid.scoring.permutation.compare_many_scores`).
        low: The lower end of the 95% confidence interval of the difference (Student's t, or Welch's t without pairs).
        high: The upper end of this interval.
        pairs: The number of pairs of runs in a paired test, or 0 if the test is not paired.
    """

    metric: str
    first: str
    second: str
    difference: float
    p: float
    p_all: float
    low: float | None = None
    high: float | None = None
    pairs: int = 0


def pair_runs(a: Side, b: Side) -> Pairs:
    """Return pairs of scored runs that belong together, with one run of each side.

    Two runs form a pair if they have the same seed and agree in all other settings that vary within a side. A sweep
    over beta is thus paired with a sweep over the same values of beta. Models that were trained elsewhere and have no
    seed have no partner.
    """
    seeded = [[run for run in side.scored_runs() if run.settings["seed"] is not None] for side in (a, b)]
    sides = [[(run.run.spec.flat(complete=True), run) for run in runs] for runs in seeded]
    names = [name for rows in sides for name in differing([row for row, _ in rows], rows[0][0] if rows else ())]
    key = sorted({"seed", *names})
    first, second = ({str([row.get(name) for name in key]): run for row, run in rows} for rows in sides)
    return [(first[place], second[place]) for place in first if place in second]


def choose_pairs(a: Side, b: Side, paired: bool | None) -> Pairs:
    """Return the pairs of runs for a paired test, or an empty list if the test is not paired.

    By default, a test is paired if there are at least `MIN_PAIRS` pairs, and more than half of the scored runs of each
    side have a partner.
    """
    pairs = pair_runs(a, b) if paired is not False else []
    if paired and len({run.settings["seed"] for run, _ in pairs}) < MIN_SEEDS:
        raise UserError(
            f"A paired test needs runs of at least {MIN_SEEDS} seeds that both sides have. {a.name} and {b.name} have "
            f"{len(pairs)} pair(s) of such runs. Train the same seeds, or leave out --paired (paired=True)."
        )
    larger = max(len(side.scored_runs()) for side in (a, b))
    return pairs if paired or (len(pairs) >= MIN_PAIRS and 2 * len(pairs) > larger) else []


def find_differences(a: Side, b: Side, metrics: Sequence[str], paired: bool | None = None) -> list[Difference]:
    """Test each metric that all scored runs of both sides have.

    The result is empty if a side has scores of fewer than `MIN_SEEDS` seeds.
    """
    if min(len(a.seeds()), len(b.seeds())) < MIN_SEEDS:
        return []
    shared = [m for m in metrics if all(run.value(m) is not None for side in (a, b) for run in side.scored_runs())]
    if not shared:
        return []
    pairs = choose_pairs(a, b, paired)
    runs = list(zip(*pairs, strict=True)) if pairs else [side.scored_runs() for side in (a, b)]
    first, second = (np.array([[run.value(m) for m in shared] for run in group], float) for group in runs)
    results = compare_paired_scores(second - first) if pairs else compare_many_scores(first, second)
    return [
        Difference(m, a.name, b.name, float(d), float(p), float(p_all), *_interval(x, y, bool(pairs)), len(pairs))
        for m, x, y, d, p, p_all in zip(shared, first.T, second.T, *results, strict=True)
    ]


def _interval(first: Any, second: Any, paired: bool) -> tuple[float | None, float | None]:
    return mean_interval(second - first) if paired else difference_interval(first, second)
