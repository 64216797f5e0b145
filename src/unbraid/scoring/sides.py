"""The sides of a comparison: the runs of a folder with their stored scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from unbraid.metrics import TRAITS
from unbraid.runs.folder import RunFolder
from unbraid.runs.only import Only
from unbraid.runs.same_model import group_same_models
from unbraid.runs.scores import prefer_data, read_scores
from unbraid.runs.search import Folders, as_folders, search_runs
from unbraid.scoring.intervals import mean_interval


@dataclass(frozen=True)
class ScoredRun:
    """A trained run with its settings and, for each metric, the latest stored score of its default codes.

    If a metric was computed on the data of the run, scores of this metric on other data are ignored.

    Attributes:
        run: The folder of the run.
        settings: The settings of the run.
        records: The score of each metric.
        stored: All stored scores of the default codes, oldest first. A metric may have several, computed in different
            ways.
    """

    run: RunFolder
    settings: dict[str, Any]
    records: dict[str, dict[str, Any]]
    stored: tuple[dict[str, Any], ...] = ()

    @classmethod
    def read(cls, run: RunFolder) -> ScoredRun:
        """Read the scores of a run from its folder."""
        default = run.spec.method.code_kinds[0]
        found = prefer_data(read_scores(run.path), run.spec.data)
        stored = tuple(record for record in found if record["codes"] == default)
        return cls(run, run.spec.flat(), {record["metric"]: record for record in stored}, stored)

    def value(self, metric: str) -> float | None:
        """Return the headline score of a metric, or None if it was not computed or is not finite."""
        value = self.records.get(metric, {}).get("values", {}).get(TRAITS[metric].headline)
        return float(value) if value is not None and math.isfinite(value) else None


@dataclass(frozen=True)
class Side:
    """One side of a comparison: the finished runs of folders, and the numbers of diverged and unfinished runs.

    Attributes:
        name: The name of the side, such as that of its folder.
        folder: The folder of the side, or several folders separated by spaces.
        runs: The finished runs.
        diverged: The number of diverged runs.
        unfinished: The number of runs whose training is not finished.
        copies: The number of runs that are left out because another run of the side has the same model. This happens
            if a model that was trained outside unbraid is adopted twice.
    """

    name: str
    folder: Path | str
    runs: list[ScoredRun]
    diverged: int = 0
    unfinished: int = 0
    copies: int = 0

    @classmethod
    def read(cls, name: str, folders: Folders, only: Only = None) -> Side:
        """Read the runs of folders. Several runs with the same model count once."""
        return cls.of_runs(name, " ".join(map(str, as_folders(folders))), search_runs(folders, only))

    @classmethod
    def of_runs(cls, name: str, where: str, found: Sequence[RunFolder]) -> Side:
        """Read the scores of runs that were found in the folders `where`.

        Several runs with the same model count once.
        """
        statuses = [run.status for run in found]
        done = [run for run, status in zip(found, statuses, strict=True) if status == "done"]
        models = [ScoredRun.read(group[0]) for group in group_same_models(done)]
        diverged = statuses.count("diverged")
        unfinished = len(statuses) - len(done) - diverged
        return cls(name, where, models, diverged, unfinished, len(done) - len(models))

    def scored_runs(self) -> list[ScoredRun]:
        """Return the runs that have at least one score."""
        return [entry for entry in self.runs if entry.records]

    def summary(self, metric: str) -> dict[str, Any]:
        """Return the mean with its 95% confidence interval, the standard deviation, median and best score of a metric.

        The interval is Student's t interval over the runs. It needs at least two runs.
        """
        values = [v for entry in self.runs if (v := entry.value(metric)) is not None]
        row: dict[str, Any] = {"side": self.name, "folder": str(self.folder), "metric": metric,
                               "score": TRAITS[metric].headline, "runs": len(values),
                               "unscored": len(self.runs) - len(values)}  # fmt: skip
        best = self.best(metric)
        if best is None:
            return row
        row |= {"mean": fmean(values), "std": stdev(values) if len(values) > 1 else None, "median": median(values)}
        low, high = mean_interval(values)
        row |= {"ci_low": low, "ci_high": high}
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

    def seeds(self) -> set[int | str]:
        """Return the different seeds of the scored runs.

        A model that was trained elsewhere may have no seed. Each such model counts as a seed of its own.
        """
        settings = [entry.settings for entry in self.scored_runs()]
        return {own["model"] if own["seed"] is None else own["seed"] for own in settings}
