"""Rows of scores that notebooks and `print` show as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unbraid.metrics import METRICS, TRAITS, headline
from unbraid.metrics.protocol import sample_sentences
from unbraid.runs.collapse import COLLAPSE_ADVICE
from unbraid.runtime.tables import html_table, wide_table

if TYPE_CHECKING:
    from unbraid.runs.spec import RunSpec

SAMPLED = {"total corr. sampled (low)": "unsupervised.gaussian_total_correlation.sampled"}
ACTIVE = "factor_vae.num_active_dims"
RANKING = {  # the columns of `select`
    "informative latents": "informative",
    "udr": "udr",
    "model centrality": "model_centrality",
    "pipe": "pipe",
}
# The columns that `score` adds if `sides` is true.
GENERALISATION = {"reconstruction error": "reconstruction_error", "readout R2": "readout_r2"}
Row = dict[str, Any]


class ScoreRows(list[Row]):
    """A list of rows. Notebooks and `print` show it as a table with the main score of each metric.

    Attributes:
        specs: The specs of the runs, from which the labels of the rows are made.
        metrics: The names of metrics that the table may show, in the order of its columns.
        record_keys: The key of the stored score of each metric for the default codes, by the id of the run. It is empty
            if the rows have no stored scores.
    """

    def __init__(
        self, rows: Iterable[Row] = (), specs: Iterable[RunSpec] = (), metrics: Iterable[str] = METRICS
    ) -> None:
        super().__init__(rows)
        self.specs, self.metrics = list(specs), list(metrics)
        self.record_keys: dict[str, dict[str, dict[str, Any]]] = {}

    def columns(self, metrics: Iterable[str] | None = None) -> dict[str, list[Any]]:
        """Return the columns of the table by title: the run, its settings, and the main score of each metric.

        By default all of `self.metrics` are shown.
        """
        labels = self._labels()
        first = {"run": [row.get("run", "") for row in self]} if any("run" in row for row in self) else {}
        title = "settings" if first else "codes"
        first[title] = [labels.get(row.get("run", ""), row["label"]) for row in self]
        if any("side" in row for row in self):
            first["side"] = [row.get("side", "") for row in self]
        return {**first, **score_columns(self, self.metrics if metrics is None else metrics)}

    def sentences(self) -> list[str]:
        """Return sentences that say which settings all runs share, and which rows the metrics used."""
        samples = [(row["train_rows"], row["test_rows"], row["draws"]) for row in self if "draws" in row]
        return [*self._shared(), *sample_sentences(samples), *self._inactive()]

    def _labels(self) -> dict[str, str]:
        """Return the label of each run by its id. If there are no runs, torch is not imported."""
        if not self.specs:
            return {}
        from unbraid.runs.labels import run_labels

        return run_labels(self.specs)

    def _shared(self) -> list[str]:
        """Return the sentence about the settings that all runs share, if there is one."""
        if not self.specs:
            return []
        from unbraid.runs.labels import shared_sentence

        return [text] if (text := shared_sentence(self.specs)) else []

    def _inactive(self) -> list[str]:
        """Return the sentence about rows in which no latent is active, if there are any."""
        labels = self._labels()
        scored = [row for row in self if "run" in row] or self  # without the rows of a perfect code and of noise
        found = [str(labels.get(row.get("run", ""), row["label"])) for row in scored if row.get(ACTIVE) == 0]
        return [
            f"No latent is active in {len(found)} of {len(scored)} rows, so these codes hardly depend on the examples, "
            f"and factor_vae is 0: {', '.join(found)}. {COLLAPSE_ADVICE}"
        ] * bool(found)

    def text(self, metrics: Iterable[str] | None = None) -> str:
        """Return the table as plain text, followed by sentences about all rows."""
        columns = self.columns(metrics)
        first: dict[str, Sequence[Any]] = {
            title: columns.pop(title) for title in ("run", "settings", "codes", "side") if title in columns
        }
        return "\n".join([wide_table(first, columns), *self.sentences()])

    def __str__(self) -> str:
        return self.text() if self else "[]"

    def _repr_html_(self) -> str:
        columns = self.columns()
        return html_table(list(columns), zip(*columns.values(), strict=True), self.sentences())


def score_columns(rows: Sequence[Mapping[str, Any]], metrics: Iterable[str]) -> dict[str, list[Any]]:
    """Return the columns of scores by title: the main score of each metric, and further scores of `score` and `select`.

    A column is left out if no row has its score.
    """
    keys: dict[str, str] = {}
    for name in metrics:
        keys |= {metric_title(name): headline(name), **(SAMPLED if name == "unsupervised" else {})}
    keys |= {**GENERALISATION, **RANKING}
    return {
        title: [row.get(key, "-") for row in rows] for title, key in keys.items() if any(key in row for row in rows)
    }


def metric_title(name: str) -> str:
    """Return the column title of a metric: its name, followed by "(low)" if lower scores are better.

    The column of `unsupervised` is called "total corr.", after its main score.
    """
    return {"unsupervised": "total corr."}.get(name, name) + " (low)" * TRAITS[name].low_is_good
