"""Compare folders of runs: which settings differ, the scores over seeds, and which scores differ significantly."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from unbraid.metrics import METRICS
from unbraid.metrics.protocol import resolve_metric_names
from unbraid.runs.only import Only
from unbraid.runs.run import Run
from unbraid.runtime.arguments import explain_unknown_arguments
from unbraid.runtime.tables import format_cell, html_table, table, wide_table
from unbraid.scoring.differences import Difference, find_differences
from unbraid.scoring.permutation import count_assignments
from unbraid.scoring.remarks import (
    scoring_differences,
    scoring_remarks,
    seed_remarks,
    shared_remarks,
    shared_settings_remarks,
    side_remarks,
    source_remarks,
)
from unbraid.scoring.rows import metric_title
from unbraid.scoring.shared_scores import score_folders, use_keys, use_shared_settings
from unbraid.scoring.side_folders import check_places, side_folders, side_names
from unbraid.scoring.sides import ScoredRun, Side
from unbraid.scoring.splitting import split_runs

__all__ = ["Comparison", "Difference", "ScoredRun", "Side", "compare"]

SIGNIFICANCE = 0.05
SideLike = str | Path | Run | Iterable[str | Path | Run]
INTERVALS = "CI: 95% confidence intervals by Student's t distribution, and by Welch's t for unpaired differences."
P_VALUES = "p: two-sided permutation tests of the means."
ALL_METRICS = "'p, all metrics' is corrected for the number of metrics that are tested together."


@dataclass(frozen=True, repr=False)
class Comparison:
    """The result of `compare`.

    Attributes:
        sides: The groups of runs that are compared: one per folder, or one per combination of values of the settings in
            `between`.
        metrics: The metrics that were compared.
        tests: One `Difference` for each pair of sides and each metric that could be tested.
        remarks: Sentences about missing scores and other limits of the comparison.
    """

    sides: list[Side]
    metrics: list[str]
    tests: list[Difference]
    remarks: list[str]

    def rows(self) -> list[dict[str, Any]]:
        """Return one flat row per side and metric, with the p-values of the tests of this side against the others."""
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
        """Return the settings that differ between or within sides, with the values of each side as text.

        The last two entries are always the seeds and the numbers of runs.
        """
        names = dict.fromkeys(key for side in self.sides for entry in side.runs for key in entry.settings)
        names.pop("model", None)  # the digest of a model that was trained elsewhere, which is not a setting
        texts = {name: [_format_values(entry.settings.get(name) for entry in side.runs) for side in self.sides]
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

    def score_columns(self) -> dict[str, list[Any]]:
        """Return four columns for each side: mean and standard deviation, confidence interval, median, best score."""
        columns: dict[str, list[Any]] = {}
        for side in self.sides:
            rows = [side.summary(metric) for metric in self.metrics]
            columns[f"{side.name}: mean ± std"] = [_mean_and_deviation(row) for row in rows]
            columns[f"{side.name}: CI"] = [_format_interval(row.get("ci_low"), row.get("ci_high")) for row in rows]
            columns[f"{side.name}: median"] = [row.get("median", "-") for row in rows]
            columns[f"{side.name}: best"] = [row.get("best", "-") for row in rows]
        return columns

    def test_columns(self) -> dict[str, list[Any]]:
        """Return the columns of the table of tests, with one row per pair of sides and metric."""
        return {
            "comparison": [f"{test.second} - {test.first}" for test in self.tests],
            "metric": [metric_title(test.metric) for test in self.tests],
            "difference": [f"{test.difference:+.3f}" for test in self.tests],
            "CI": [_format_interval(test.low, test.high) for test in self.tests],
            "p": [_p_cell(test.p) for test in self.tests],
            "p, all metrics": [_p_cell(test.p_all) for test in self.tests],
            "test": [f"paired, {test.pairs} pairs" if test.pairs else "unpaired" for test in self.tests],
        }

    def __repr__(self) -> str:
        names = [side.name for side in self.sides]
        parts = [table(["setting", *names], [[name, *texts] for name, texts in self.settings().items()])]
        if self.metrics:
            parts.append(wide_table({"metric": [metric_title(name) for name in self.metrics]}, self.score_columns()))
        if self.tests:
            columns = self.test_columns()
            parts.append(table(list(columns), list(zip(*columns.values(), strict=True))))
        return "\n\n".join([*parts, "\n".join([*self.sentences(), *self._notes()])]).rstrip()

    def _repr_html_(self) -> str:
        names = [side.name for side in self.sides]
        parts = [html_table(["setting", *names], [[name, *texts] for name, texts in self.settings().items()])]
        scores = {"metric": [metric_title(name) for name in self.metrics], **self.score_columns()}
        for columns in (scores if self.metrics else {}, self.test_columns() if self.tests else {}):
            parts += [html_table(list(columns), list(zip(*columns.values(), strict=True)))] if columns else []
        return "".join([*parts, *(f"<p>{html.escape(text)}</p>" for text in [*self.sentences(), *self._notes()])])

    def _notes(self) -> list[str]:
        """Return what the columns of the printed tables mean."""
        return ([INTERVALS] if self.metrics else []) + ([P_VALUES, ALL_METRICS] if self.tests else [])


def _mean_and_deviation(row: Mapping[str, Any]) -> str:
    """Format a mean, with its standard deviation if there are several runs."""
    if "mean" not in row:
        return "-"
    mean = format_cell(row["mean"])
    return mean if row["std"] is None else f"{mean} ± {format_cell(row['std'])}"


def _format_interval(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{low:.3f} to {high:.3f}"


def _format_values(values: Iterable[Any]) -> str:
    """Return the distinct values in order of appearance as text. If there are more than 8, list only the first 6.

    A value that is not known is "-".
    """
    known = ("-" if v is None else v for v in values)
    texts = list(dict.fromkeys(f"{v:g}" if isinstance(v, float) else str(v) for v in known))
    return ", ".join(texts) if len(texts) <= 8 else f"{', '.join(texts[:6])}, ... ({len(texts)} values)"


def _describe_pair(comparison: Comparison, first: str, second: str) -> str:
    """Return sentences that say which metrics differ significantly between two sides."""
    tests = [t for t in comparison.tests if (t.first, t.second) == (first, second)]
    significant = [t for t in tests if t.p_all < SIGNIFICANCE]
    alone = [t for t in tests if t.p < SIGNIFICANCE <= t.p_all]
    counts = [len(side.scored_runs()) for name in (first, second) for side in comparison.sides if side.name == name]
    pairs = tests[0].pairs
    permutations = count_assignments(pairs or counts[0], counts[1], bool(pairs))
    if 2 * (1 if pairs or counts[0] == counts[1] else 0.5) / permutations >= SIGNIFICANCE:
        has = f"only {pairs} pairs" if pairs else f"only {counts[1]} and {counts[0]} runs"
        return (f"{second} and {first} have {has}, so no difference can be significant "
                f"at the {SIGNIFICANCE:.0%} level. Train more seeds.")  # fmt: skip
    test = _describe_test(counts, pairs, permutations)
    text = f"{second} ({counts[1]} runs) was compared with {first} ({counts[0]} runs) by {test}. "
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


def _describe_test(counts: Sequence[int], pairs: int, permutations: int) -> str:
    """Say which test was used, and how many runs it left out."""
    if not pairs:
        return f"a permutation test of the means with {permutations:,} permutations"
    text = f"a paired test of {pairs} pairs of runs with the same seed, with {permutations:,} permutations"
    alone = sum(counts) - 2 * pairs
    return f"{text}. {alone} run(s) without a partner are left out" if alone else text


def _p_cell(value: float) -> str:
    """Return a p-value for a table, such as "0.029" or "<0.001"."""
    return f"{value:.3f}" if value >= 0.001 else "<0.001"


def _format_p(value: float) -> str:
    """Return a p-value as text with three decimals, such as "p = 0.029"."""
    return f"p = {value:.3f}" if value >= 0.001 else "p < 0.001"


@explain_unknown_arguments()
def compare(
    *folders: SideLike,
    metrics: str | Sequence[str] | None = None,
    score: bool = False,
    quiet: bool = False,
    trust: bool = False,
    only: Only = None,
    paired: bool | None = None,
    between: str | Sequence[str] | None = None,
) -> Comparison:
    """Compare folders of runs, single runs, or the runs of one sweep, by the scores in their folders.

    Two folders are tested against each other if each has scores of at least three seeds. A permutation test then
    compares the means of the two folders, for every metric that all scored runs of both folders have. If a run has
    several scores of a metric, for example with different samples, the latest one is used. If the latest scores of the
    runs were computed in different ways, those that were computed in the same way in all runs are used. Two runs of
    different folders are partners if they have the same seed and agree in all settings that vary within a folder. The
    test is paired if there are at least six pairs of partners, and if more than half of the runs of each folder have a
    partner.

    Args:
        *folders: Two or more sides. Each is one of the following, or a list of them: a folder of runs, possibly with
            subfolders; the folder of a single run; a run that is stored in a folder. If the only argument is a list,
            each of its entries is a side.
        metrics: Names of metrics, as a list or separated by commas. By default all metrics for which at least one
            run has a score.
        score: Whether to compute missing scores first, in the same way as `score`, and to compare these scores. If
            `metrics` is not given, these are the scores of `unbraid.metrics.DEFAULT_METRICS`.
        quiet: Whether to hide the progress bar of scoring.
        trust: Whether methods and networks that are not part of unbraid may be imported and run to compute missing
            scores (see `load_runs`).
        only: Which runs to compare, by their settings, such as "method=beta_vae,beta=8" (see `load_runs`). By default
            all.
        paired: Whether tests are paired. By default they are paired if there are enough partners, as described above.
        between: A setting such as "method" or "beta", or several, as a list or separated by commas. The runs of all
            folders are then divided by their values of these settings, and each combination of values is one side.
            In this case, one folder is enough.

    Returns:
        The comparison. Notebooks and `print` show it as tables. `rows()` returns the scores of each side with 95%
        confidence intervals of the means, `tests` has the differences with their intervals and p-values, and
        `sentences()` returns the result in words.

    Raises:
        UserError: If there are fewer than two sides, a folder is given twice or contains no runs, a metric or a setting
            is unknown, or `paired` is True and two sides have fewer than three seeds in common.

    >>> import tempfile
    >>> import unbraid as ub
    >>> with tempfile.TemporaryDirectory() as out:
    ...     for beta in (1.0, 4.0):
    ...         runs = ub.train(ub.methods.BetaVAE(beta=beta), data="toy", steps=5, out=f"{out}/{beta:g}", quiet=True)
    ...     comparison = ub.compare(f"{out}/1", f"{out}/4", metrics=["mig"], score=True, quiet=True)
    >>> comparison.settings()["beta"]
    ['1', '4']
    """
    given = folders
    if len(folders) == 1 and isinstance(folders[0], Iterable) and not isinstance(folders[0], str | Path | Run):
        given = tuple(folders[0])
    places = [side_folders(side) for side in given]
    check_places(places, between, only)
    named = resolve_metric_names(metrics) if metrics is not None else None
    keys = score_folders(places, named, quiet, trust, only) if score else {}
    if between is not None:
        sides, left_out = split_runs([path for paths in places for path in paths], between, only)
    else:
        sides = [Side.read(name, paths, only) for name, paths in zip(side_names(places), places, strict=True)]
        left_out = []
    sides, replaced = use_shared_settings(use_keys(sides, keys))
    computed = {metric for side in sides for entry in side.runs for metric in entry.records}
    others = sorted(name for name in computed - set(METRICS) if name in METRICS)  # with options, or of other packages
    wanted = named or [*(name for name in METRICS if name in computed), *others]
    incomparable = {metric: fields for metric in wanted if (fields := scoring_differences(sides, metric))}
    testable = [metric for metric in wanted if metric not in incomparable]
    tests = [test for a, b in combinations(sides, 2) for test in find_differences(a, b, testable, paired)]
    remarks = [*left_out, *side_remarks(sides, wanted), *shared_remarks(sides), *seed_remarks(sides)]
    remarks += [*source_remarks(sides, wanted), *shared_settings_remarks([m for m in replaced if m in wanted])]
    return Comparison(sides, wanted, tests, [*remarks, *scoring_remarks(incomparable)])
