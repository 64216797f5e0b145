"""Compare folders of runs: which settings differ, the scores over seeds, and which scores differ significantly."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import numpy as np

from unbraid.errors import UserError
from unbraid.metrics import METRICS, TRAITS
from unbraid.metrics.protocol import differences, resolve_metric_names
from unbraid.runs.folder import RunFolder, find_runs
from unbraid.runs.scores import read_scores
from unbraid.scoring.permutation import MAX_ASSIGNMENTS, compare_many_scores

MIN_SEEDS = 3  # minimum number of seeds per side for a test
SIGNIFICANCE = 0.05
MAY_DIFFER = ("values", "codes", "data", "source")  # fields of a record that may differ between comparable scores


@dataclass(frozen=True)
class ScoredRun:
    """A trained run with its settings and, for each metric, the latest record for its default codes."""

    run: RunFolder
    settings: dict[str, Any]
    records: dict[str, dict[str, Any]]

    @classmethod
    def read(cls, run: RunFolder) -> ScoredRun:
        """Read the scores of a run from its folder."""
        default = run.spec.method.code_kinds[0]
        records = {r["metric"]: r for r in read_scores(run.path) if r["codes"] == default}
        return cls(run, run.spec.flat(), records)

    def value(self, metric: str) -> float | None:
        """Return the headline score of a metric, or None if it was not computed or is not finite."""
        value = self.records.get(metric, {}).get("values", {}).get(TRAITS[metric].headline)
        return float(value) if value is not None and math.isfinite(value) else None


@dataclass(frozen=True)
class Side:
    """One side of a comparison: the finished runs of a folder, and the numbers of diverged and unfinished runs."""

    name: str
    folder: Path
    runs: list[ScoredRun]
    diverged: int = 0
    unfinished: int = 0

    @classmethod
    def read(cls, name: str, folder: Path) -> Side:
        """Read the runs of a folder."""
        folders = find_runs(folder)
        if not folders:
            raise UserError(f"No runs in {folder}. Train some with: unbraid train beta_vae --out {folder}")
        statuses = [run.status for run in folders]
        runs = [ScoredRun.read(run) for run, status in zip(folders, statuses, strict=True) if status == "done"]
        diverged = statuses.count("diverged")
        return cls(name, folder, runs, diverged, len(statuses) - len(runs) - diverged)

    def scored_runs(self) -> list[ScoredRun]:
        """Return the runs that have at least one score."""
        return [entry for entry in self.runs if entry.records]

    def summary(self, metric: str) -> dict[str, Any]:
        """Return the mean, standard deviation, median and best score of a metric, and the number of unscored runs."""
        values = [v for entry in self.runs if (v := entry.value(metric)) is not None]
        row: dict[str, Any] = {"side": self.name, "folder": str(self.folder), "metric": metric,
                               "score": TRAITS[metric].headline, "runs": len(values),
                               "unscored": len(self.runs) - len(values)}  # fmt: skip
        best = self.best(metric)
        if best is None:
            return row
        row |= {"mean": fmean(values), "std": stdev(values) if len(values) > 1 else None, "median": median(values)}
        return {**row, "best": best.value(metric), "best_run": best.run.path.name}

    def best(self, metric: str | None) -> ScoredRun | None:
        """Return the run with the best score of a metric, or None if no run has a score.

        If `metric` is None, return the first run.
        """
        if metric is None:
            return self.runs[0] if self.runs else None
        scored = [(value, entry) for entry in self.runs if (value := entry.value(metric)) is not None]
        sign = -1 if TRAITS[metric].low_is_good else 1
        return max(scored, key=lambda pair: sign * pair[0])[1] if scored else None


@dataclass(frozen=True)
class Difference:
    """The difference between the means of one metric on two sides, and its p-values.

    Attributes:
        metric: Name of the metric.
        first: Name of the first side.
        second: Name of the second side.
        difference: The mean of the second side minus the mean of the first.
        p: The p-value for this metric alone.
        p_all: The p-value corrected for all metrics that were tested together (see
            `unbraid.scoring.permutation.compare_many_scores`).
    """

    metric: str
    first: str
    second: str
    difference: float
    p: float
    p_all: float


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`.

    Attributes:
        sides: One side per folder.
        metrics: The metrics that were compared.
        tests: One `Difference` for each pair of sides and each metric that could be tested.
        remarks: Sentences about missing scores and other limits of the comparison.
    """

    sides: list[Side]
    metrics: list[str]
    tests: list[Difference]
    remarks: list[str]

    def rows(self) -> list[dict[str, Any]]:
        """Return one flat row per side and metric, with the p-values of its tests against each other side."""
        rows = []
        for side in self.sides:
            for metric in self.metrics:
                row = side.summary(metric)
                for test in self.tests:
                    if test.metric == metric and side.name in (test.first, test.second):
                        other = test.second if side.name == test.first else test.first
                        row |= {f"p.{other}": test.p, f"p_all.{other}": test.p_all}
                rows.append(row)
        return rows

    def settings(self) -> dict[str, list[str]]:
        """Return the settings that differ between or within sides, with the values of each side as text."""
        names = dict.fromkeys(key for side in self.sides for entry in side.runs for key in entry.settings)
        texts = {name: [_format_values(entry.settings.get(name, "-") for entry in side.runs) for side in self.sides]
                for name in names}  # fmt: skip
        several = {name for name in names if any("," in text for text in texts[name])}
        differing = {n: t for n, t in texts.items() if n != "seed" and (len(set(t)) > 1 or n in several)}
        return {**differing, "seed": texts.get("seed", []), "runs": [str(len(side.runs)) for side in self.sides]}

    def ranking_metric(self, metric: str | None = None) -> str | None:
        """Return the metric by which the best run of each side is selected.

        This is `metric` if it is given. Otherwise it is the MIG if all sides have it, or else the first metric that all
        sides have. It is None if there is no such metric.
        """
        if metric is not None:
            return resolve_metric_names([metric])[0]
        shared = [m for m in self.metrics if all(side.best(m) for side in self.sides)]
        return "mig" if "mig" in shared else next(iter(shared), None)

    def as_dict(self) -> dict[str, Any]:
        """Return the settings, scores, tests and sentences as plain values."""
        tests = [dict(vars(test)) for test in self.tests]
        return {"settings": self.settings(), "scores": self.rows(), "tests": tests, "sentences": self.sentences()}

    def sentences(self) -> list[str]:
        """Return the result in words.

        The first entries say for each pair of sides which metrics differ significantly. The remarks follow.
        """
        pairs = dict.fromkeys((test.first, test.second) for test in self.tests)
        return [*(_describe_pair(self, *pair) for pair in pairs), *self.remarks]


def _format_values(values: Iterable[Any]) -> str:
    """Return the distinct values in order of appearance as text. If there are more than 8, list only the first 6."""
    texts = list(dict.fromkeys(f"{v:g}" if isinstance(v, float) else str(v) for v in values))
    return ", ".join(texts) if len(texts) <= 8 else f"{', '.join(texts[:6])}, ... ({len(texts)} values)"


def _describe_pair(comparison: Comparison, first: str, second: str) -> str:
    """Return sentences that say which metrics differ significantly between two sides."""
    tests = [t for t in comparison.tests if (t.first, t.second) == (first, second)]
    significant = [t for t in tests if t.p_all < SIGNIFICANCE]
    alone = [t for t in tests if t.p < SIGNIFICANCE <= t.p_all]
    counts = [len(side.scored_runs()) for name in (first, second) for side in comparison.sides if side.name == name]
    permutations = min(math.comb(sum(counts), counts[0]), MAX_ASSIGNMENTS)
    if 2 * (1 if counts[0] == counts[1] else 0.5) / permutations >= SIGNIFICANCE:
        return (f"{second} and {first} have only {counts[1]} and {counts[0]} runs, so no difference can be significant "
                f"at the {SIGNIFICANCE:.0%} level. Train more seeds.")  # fmt: skip
    text = (f"{second} ({counts[1]} runs) was compared with {first} ({counts[0]} runs) by a permutation test of the "
            f"means with {permutations:,} permutations. ")  # fmt: skip
    if significant:
        listed = ", ".join(f"{t.metric} {t.difference:+.3f} ({_format_p(t.p_all)})" for t in significant)
        differ = "differs" if len(significant) == 1 else "differ"
        text += f"{len(significant)} of {len(tests)} metrics {differ} significantly ({second} minus {first}): {listed}."
    else:
        text += "No metric differs significantly."
    if alone:
        listed = ", ".join(f"{t.metric} ({_format_p(t.p)})" for t in alone)
        text += f" These differences are significant only without correction for the number of metrics: {listed}."
    return text


def _format_p(value: float) -> str:
    """Return a p-value as text with three decimals, such as "p = 0.029"."""
    return f"p = {value:.3f}" if value >= 0.001 else "p < 0.001"


def compare(
    *folders: str | Path,
    metrics: Sequence[str] | None = None,
    score: bool = False,
    quiet: bool = False,
    trust: bool = False,
) -> Comparison:
    """Compare folders of runs, or single runs, by the scores in their folders.

    Two folders are tested against each other if each has scores of at least three seeds. A permutation test then
    compares the mean of every metric that all scored runs of both folders have.

    Args:
        *folders: Two or more folders. Each is a folder of runs or the folder of a single run.
        metrics: Names of metrics. By default all metrics that at least one run has, or all metrics if `score` is True.
        score: Whether to compute missing scores first.
        quiet: Whether to hide the progress bar of scoring.
        trust: Whether to run code that the folders name when missing scores are computed (see `load_runs`).

    Returns:
        The comparison. `rows()` returns the scores of each side, `tests` has the test results, and `sentences()`
        returns the result in words.

    Raises:
        UserError: If fewer than two folders are given, a folder is given twice or contains no runs, or a metric is
            unknown.

    >>> import tempfile
    >>> import unbraid as ub
    >>> with tempfile.TemporaryDirectory() as out:
    ...     for beta in (1.0, 4.0):
    ...         runs = ub.train(ub.methods.BetaVAE(beta=beta), data="toy", steps=5, out=f"{out}/{beta:g}", quiet=True)
    ...     comparison = ub.compare(f"{out}/1", f"{out}/4", metrics=["mig"], score=True, quiet=True)
    >>> comparison.settings()["beta"]
    ['1', '4']
    """
    if len(folders) < 2:
        raise UserError(f"A comparison needs at least two folders of runs. Got {len(folders)} instead.")
    paths = [Path(folder) for folder in folders]
    if len({path.resolve() for path in paths}) < len(paths):
        raise UserError("A comparison needs different folders. One of them was given twice. Remove one of the two.")
    named = resolve_metric_names(metrics) if metrics is not None else None
    if score:
        score_folders(paths, named, quiet, trust)
    names = [path.name for path in paths] if len({path.name for path in paths}) == len(paths) else list(map(str, paths))
    sides = [Side.read(name, path) for name, path in zip(names, paths, strict=True)]
    computed = {metric for side in sides for entry in side.runs for metric in entry.records}
    wanted = named or [metric for metric in METRICS if metric in computed]
    incomparable = {metric: fields for metric in wanted if (fields := _scoring_differences(sides, metric))}
    testable = [metric for metric in wanted if metric not in incomparable]
    tests = [test for a, b in combinations(sides, 2) for test in _test_pair(a, b, testable)]
    remarks = [*_side_remarks(sides, wanted), *_seed_remarks(sides), *_scoring_remarks(incomparable)]
    return Comparison(sides, wanted, tests, remarks)


def score_folders(folders: Sequence[Path], metrics: Sequence[str] | None, quiet: bool, trust: bool) -> None:
    """Score the trained runs of all folders together. Existing scores are not computed again."""
    from unbraid.runs.run import load_runs
    from unbraid.scoring.score import score

    runs = [run for folder in folders for run in load_runs(folder, trust=trust) if run.divergence is None]
    score(runs, metrics, quiet=quiet)


def _scoring_differences(sides: Sequence[Side], metric: str) -> dict[str, tuple[Any, Any]]:
    """Return the fields (estimator, sample sizes, versions and so on) in which the scores of a metric differ."""
    records = [entry.records[metric] for side in sides for entry in side.runs if metric in entry.records]
    methods = [{k: value for k, value in record.items() if k not in MAY_DIFFER} for record in records]
    return next((fields for other in methods[1:] if (fields := differences(methods[0], other))), {})


def _test_pair(a: Side, b: Side, metrics: Sequence[str]) -> list[Difference]:
    """Test the metrics that all scored runs of both sides have, if there are enough seeds."""
    if min(_count_seeds(a), _count_seeds(b)) < MIN_SEEDS:
        return []
    shared = [m for m in metrics if all(run.value(m) is not None for side in (a, b) for run in side.scored_runs())]
    if not shared:
        return []
    first, second = (np.array([[run.value(m) for m in shared] for run in side.scored_runs()], float) for side in (a, b))
    results = zip(shared, *compare_many_scores(first, second), strict=True)
    return [Difference(m, a.name, b.name, float(d), float(p), float(p_all)) for m, d, p, p_all in results]


def _count_seeds(side: Side) -> int:
    """Return the number of different seeds among the scored runs."""
    return len({entry.settings["seed"] for entry in side.scored_runs()})


def _seed_remarks(sides: Sequence[Side]) -> list[str]:
    """Return a remark about sides that have too few seeds for a test."""
    few = ", ".join(f"{side.name} has {n}" for side in sides if (n := _count_seeds(side)) < MIN_SEEDS)
    return [f"A test needs scores of at least {MIN_SEEDS} seeds per side, but {few}."] if few else []


def _side_remarks(sides: Sequence[Side], metrics: Sequence[str]) -> list[str]:
    """Return remarks about runs that are left out, missing scores, and settings or data that differ."""
    remarks = []
    for side in sides:
        if side.diverged or side.unfinished:
            remarks.append(
                f"Runs of {side.name} that are left out: {side.diverged} diverged, {side.unfinished} unfinished."
            )
        unscored = len(side.runs) - len(side.scored_runs())
        partly = [m for m in metrics if any(entry.value(m) is None for entry in side.scored_runs())]
        if unscored or partly:
            missing = [f"{unscored} of {len(side.runs)} run(s) have no scores"] * bool(unscored)
            missing += [f"some runs have no score for {', '.join(partly)}"] * bool(partly)
            remarks.append(f"In {side.name}, {' and '.join(missing)}. Compute them with: unbraid score {side.folder}")
        if len({entry.run.spec.settings_key() for entry in side.runs}) > 1:
            remarks.append(
                f"{side.name} has runs with different settings, so its standard deviation is not only over seeds."
            )
    data = dict.fromkeys(entry.settings["data"] for side in sides for entry in side.runs)
    if len(data) > 1:
        remarks.append(f"The datasets differ ({', '.join(data)}). Scores on different datasets are hardly comparable.")
    return remarks


def _scoring_remarks(incomparable: Mapping[str, Mapping[str, tuple[Any, Any]]]) -> list[str]:
    """Return a remark about metrics whose scores were computed in different ways."""
    if not incomparable:
        return []
    fields = ", ".join(dict.fromkeys(field for differing in incomparable.values() for field in differing))
    reason = f"their scores were computed with different settings ({fields})"
    return [f"These metrics were not tested, because {reason}: {', '.join(incomparable)}."]
