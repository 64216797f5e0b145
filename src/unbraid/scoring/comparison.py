"""Folders of runs side by side: settings that differ, scores over seeds, and which scores differ beyond chance."""

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
from unbraid.metrics.protocol import Array, chosen, differences
from unbraid.runs.folder import RunDir, find_runs
from unbraid.runs.scores import read_scores

SEEDS = 3  # a side, at least, for a test
CHANCE = 0.05
WAYS = 20_000  # of dealing runs to two sides: all of them up to here, so many random ones beyond
ABOUT = ("values", "codes", "data", "source")  # of a record, what says nothing about how it was made


@dataclass(frozen=True)
class Entry:
    """A trained run with its settings and the latest record of each metric on its default codes."""

    run: RunDir
    settings: dict[str, Any]
    records: dict[str, dict[str, Any]]

    @classmethod
    def of(cls, run: RunDir) -> Entry:
        values = run.spec.to_dict()
        method = values.pop("method")
        default = run.spec.method.code_kinds[0]
        records = {r["metric"]: r for r in read_scores(run.path) if r["codes"] == default}
        return cls(run, {"method": method.pop("name"), **method, **values}, records)

    def value(self, metric: str) -> float | None:
        """A metric's headline, or None where it was not computed or is no number."""
        found = self.records.get(metric, {}).get("values", {}).get(TRAITS[metric].headline)
        return float(found) if found is not None and math.isfinite(found) else None


@dataclass(frozen=True)
class Side:
    """A folder of runs: those trained to the end, and how many others there are."""

    name: str
    folder: Path
    runs: list[Entry]
    diverged: int = 0
    unfinished: int = 0

    @classmethod
    def of(cls, name: str, folder: Path) -> Side:
        found = find_runs(folder)
        if not found:
            raise UserError(f"No runs in {folder}. Train some with: unbraid train beta_vae --out {folder}")
        states = [run.status for run in found]
        runs = [Entry.of(run) for run, state in zip(found, states, strict=True) if state == "done"]
        return cls(name, folder, runs, states.count("diverged"), len(states) - len(runs) - states.count("diverged"))

    def scored(self) -> list[Entry]:
        """The runs with any score."""
        return [entry for entry in self.runs if entry.records]

    def summary(self, metric: str) -> dict[str, Any]:
        """Mean, deviation over runs, median and best of a metric, and how many runs lack it."""
        found = {entry.run.path.name: v for entry in self.runs if (v := entry.value(metric)) is not None}
        row: dict[str, Any] = {"side": self.name, "folder": str(self.folder), "metric": metric,
                               "score": TRAITS[metric].headline, "runs": len(found),
                               "unscored": len(self.runs) - len(found)}  # fmt: skip
        if not found:
            return row
        best = self.best(metric)
        spread = stdev(found.values()) if len(found) > 1 else None
        middle = {"mean": fmean(found.values()), "std": spread, "median": median(found.values())}
        return {**row, **middle, "best": None if best is None else best.value(metric), "best_run":
                None if best is None else best.run.path.name}  # fmt: skip

    def best(self, metric: str | None) -> Entry | None:
        """The run with the best score, the first where no metric is given, or None where there is none."""
        if metric is None:
            return self.runs[0] if self.runs else None
        held = [(value, entry) for entry in self.runs if (value := entry.value(metric)) is not None]
        sign = -1 if TRAITS[metric].low_is_good else 1
        return max(held, key=lambda pair: sign * pair[0])[1] if held else None


@dataclass(frozen=True)
class Finding:
    """How far the mean of one metric on the second side is from that on the first, and whether that may be chance.

    `p` is of this metric alone; `p_all` is the chance that any of the metrics tested together would differ as clearly.
    """

    metric: str
    first: str
    second: str
    difference: float
    p: float
    p_all: float


def deals(a: int, b: int, rng: np.random.Generator) -> Array:
    """Ways of dealing a + b runs to two sides, as weights (ways, a + b) that give the difference of means b - a.

    The first is the one that was observed. All ways if there are at most `WAYS`, else so many drawn at random.
    """
    count = a + b
    if math.comb(count, a) <= WAYS:
        chosen_rows = np.array(list(combinations(range(count), a)))
    else:
        drawn = rng.permuted(np.tile(np.arange(count), (WAYS - 1, 1)), axis=1)[:, :a]
        chosen_rows = np.concatenate([np.arange(a)[None], drawn])
    weights = np.full((len(chosen_rows), count), 1 / b)
    np.put_along_axis(weights, chosen_rows, -1 / a, axis=1)
    return weights


def permutation_test(first: Array, second: Array, seed: int = 0) -> tuple[Array, Array, Array]:
    r"""Differences of means (m,) of m scores of two groups of runs (n, m), their p alone, and p among all m.

    .. math:: p_j = P_\pi(|d_j^\pi| \ge |d_j|), \quad
        p_j^{all} = P_\pi(\max_k |d_k^\pi| / s_k \ge |d_j| / s_j)

    :math:`d^\pi` are the differences when runs are dealt to the groups at random and :math:`s_k` their root mean
    square. The second holds the chance of any false finding among the m scores to the level, whatever their
    dependence. Both are two-sided. Reference: Westfall & Young (1993), "Resampling-based multiple testing".
    """
    values = np.concatenate([first, second])
    dealt = np.abs(deals(len(first), len(second), np.random.default_rng(seed)) @ values)
    scale = np.sqrt((dealt**2).mean(0))
    dealt = dealt / np.where(scale > 1e-12, scale, np.inf)  # scores that do not vary differ by rounding only
    observed = dealt[0] - 1e-9  # ways that give the same difference but for rounding count as the same
    alone = (dealt >= observed).mean(0)
    among = (dealt.max(1)[:, None] >= observed).mean(0)
    return second.mean(0) - first.mean(0), alone, among


@dataclass(frozen=True)
class Comparison:
    """What was compared, with the tests between every two sides and remarks on what stands in the way."""

    sides: list[Side]
    metrics: list[str]
    tests: list[Finding]
    remarks: list[str]

    def rows(self) -> list[dict[str, Any]]:
        """One flat row a side and metric, with p against each other side."""
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
        """The settings that differ, between the sides or within one, each with its values on every side."""
        names = dict.fromkeys(key for side in self.sides for entry in side.runs for key in entry.settings)
        told = {name: [_values(entry.settings.get(name, "-") for entry in side.runs) for side in self.sides]
                for name in names}  # fmt: skip
        many = {name for name in names if any("," in text for text in told[name])}
        kept = {name: texts for name, texts in told.items() if name != "seed" and (len(set(texts)) > 1 or name in many)}
        return {**kept, "seed": told.get("seed", []), "runs": [str(len(side.runs)) for side in self.sides]}

    def by(self, metric: str | None = None) -> str | None:
        """The metric that picks the best run of each side: the one asked for, MIG if all have it, else any other."""
        if metric is not None:
            return chosen([metric])[0]
        shared = [m for m in self.metrics if all(side.best(m) for side in self.sides)]
        return "mig" if "mig" in shared else next(iter(shared), None)

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        tests = [dict(vars(test)) for test in self.tests]
        return {"settings": self.settings(), "scores": self.rows(), "tests": tests, "sentences": self.sentences()}

    def sentences(self) -> list[str]:
        """What differs beyond chance, pair by pair, and the remarks."""
        pairs = dict.fromkeys((test.first, test.second) for test in self.tests)
        return [*(_verdict(self, *pair) for pair in pairs), *self.remarks]


def _values(values: Iterable[Any]) -> str:
    """Different values in order of appearance, the first few of many."""
    found = list(dict.fromkeys(f"{v:g}" if isinstance(v, float) else str(v) for v in values))
    return ", ".join(found) if len(found) <= 8 else f"{', '.join(found[:6])}, ... ({len(found)} values)"


def _verdict(comparison: Comparison, first: str, second: str) -> str:
    """One sentence on two sides."""
    tests = [t for t in comparison.tests if (t.first, t.second) == (first, second)]
    sure = [t for t in tests if t.p_all < CHANCE]
    alone = [t for t in tests if t.p < CHANCE <= t.p_all]
    counts = [len(side.scored()) for name in (first, second) for side in comparison.sides if side.name == name]
    ways = math.comb(sum(counts), counts[0])
    how = f"{counts[1]} runs against {counts[0]}, permutation test of means, {min(ways, WAYS):,} ways"
    if 2 * (1 if counts[0] == counts[1] else 0.5) / ways >= CHANCE:
        return (f"{second} and {first}: {counts[1]} runs against {counts[0]} can show nothing at the {CHANCE:.0%} "
                "level, whatever they score. Train more seeds.")  # fmt: skip
    told = ", ".join(f"{t.metric} {t.difference:+.3f} (p {_p(t.p_all)})" for t in sure)
    text = f"{second} less {first} ({how}): "
    text += f"beyond chance among {len(tests)} metrics: {told}." if sure else "no metric differs beyond chance."
    if alone:
        text += f" Below {CHANCE:g} only if looked at alone: {', '.join(f'{t.metric} (p {_p(t.p)})' for t in alone)}."
    return text


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"


def compare(
    *folders: str | Path, metrics: Sequence[str] | None = None, score: bool = False, quiet: bool = False
) -> Comparison:
    """Compare folders of runs, or single runs, by the scores kept in them; with `score`, missing ones are made first.

    Metrics are those that any run has (with `score`, all), unless named. Between every two sides with three seeds or
    more each, the metrics that all scored runs have are tested (`permutation_test`).
    """
    if len(folders) < 2:
        raise UserError(f"A comparison needs at least two folders of runs. Got {len(folders)} instead.")
    paths = [Path(folder) for folder in folders]
    if len({path.resolve() for path in paths}) < len(paths):
        raise UserError("A comparison needs different folders. Got one of them twice.")
    named = chosen(metrics) if metrics is not None else None
    if score:
        score_all(paths, named, quiet)
    names = [path.name for path in paths] if len({path.name for path in paths}) == len(paths) else list(map(str, paths))
    sides = [Side.of(name, path) for name, path in zip(names, paths, strict=True)]
    known = {metric for side in sides for entry in side.runs for metric in entry.records}
    wanted = named or [metric for metric in METRICS if metric in known]
    unlike = {metric: found for metric in wanted if (found := _unlike(sides, metric))}
    tests = [test for a, b in combinations(sides, 2) for test in _tested(a, b, [m for m in wanted if m not in unlike])]
    return Comparison(sides, wanted, tests, [*_remarks(sides, wanted), *_pairs_untested(sides), *_told(unlike)])


def score_all(folders: Sequence[Path], metrics: Sequence[str] | None, quiet: bool) -> None:
    """Score the trained runs of all folders together; what is kept already is not made again."""
    from unbraid.runs.run import load_runs
    from unbraid.scoring.score import score

    runs = [run for folder in folders for run in load_runs(folder) if run.divergence is None]
    score(runs, metrics, quiet=quiet)


def _unlike(sides: Sequence[Side], metric: str) -> dict[str, tuple[Any, Any]]:
    """In what the scores of a metric were made differently, if they were."""
    records = [entry.records[metric] for side in sides for entry in side.runs if metric in entry.records]
    made = [{key: value for key, value in record.items() if key not in ABOUT} for record in records]
    return next((found for other in made[1:] if (found := differences(made[0], other))), {})


def _tested(a: Side, b: Side, metrics: Sequence[str]) -> list[Finding]:
    """Tests of the metrics that all scored runs of both sides have, if there are enough seeds."""
    if not _enough(a) or not _enough(b):
        return []
    held = [m for m in metrics if all(entry.value(m) is not None for side in (a, b) for entry in side.scored())]
    if not held:
        return []
    first, second = (np.array([[entry.value(m) for m in held] for entry in side.scored()], float) for side in (a, b))
    found = zip(held, *permutation_test(first, second), strict=True)
    return [Finding(m, a.name, b.name, float(d), float(p), float(q)) for m, d, p, q in found]


def _enough(side: Side) -> bool:
    return len({entry.settings["seed"] for entry in side.scored()}) >= SEEDS


def _pairs_untested(sides: Sequence[Side]) -> list[str]:
    few = [side for side in sides if not _enough(side)]
    told = ", ".join(f"{side.name} has {len({e.settings['seed'] for e in side.scored()})}" for side in few)
    return [f"Not tested: a test needs scores of {SEEDS} seeds a side; {told}."] if few else []


def _remarks(sides: Sequence[Side], metrics: Sequence[str]) -> list[str]:
    """What is missing, with the command that makes it, and what makes scores hard to compare."""
    told = []
    for side in sides:
        if side.diverged or side.unfinished:
            told.append(f"Left out of {side.name}: {side.diverged} diverged, {side.unfinished} unfinished.")
        bare = len(side.runs) - len(side.scored())
        partly = [m for m in metrics if any(entry.value(m) is None for entry in side.scored())]
        if bare or partly:
            what = [f"{bare} of {len(side.runs)} run(s)"] * bool(bare) + [", ".join(partly)] * bool(partly)
            told.append(f"Unscored in {side.name}: {'; '.join(what)}. Score: unbraid score {side.folder}")
        if len({str({k: v for k, v in entry.settings.items() if k != "seed"}) for entry in side.runs}) > 1:
            told.append(f"{side.name} mixes settings: its spread is not that of seeds alone.")
    data = dict.fromkeys(entry.settings["data"] for side in sides for entry in side.runs)
    if len(data) > 1:
        told.append(f"The data differ ({', '.join(data)}): scores on different data say little about each other.")
    return told


def _told(unlike: Mapping[str, Mapping[str, tuple[Any, Any]]]) -> list[str]:
    """Scores that were made in different ways."""
    fields = ", ".join(dict.fromkeys(field for found in unlike.values() for field in found))
    return [f"Not scored alike, so not tested: {', '.join(unlike)} (they differ in {fields})."] if unlike else []
