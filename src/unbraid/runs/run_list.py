"""A list of runs that notebooks show as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unbraid.runs.labels import run_labels, shared_sentence
from unbraid.runtime.tables import html_table

if TYPE_CHECKING:
    from unbraid.runs.run import Run

COLUMNS = ("run", "settings", "state", "last logged values")


class RunList(list["Run"]):
    """A list of runs. It is an ordinary list, which notebooks show as a table with one row per run."""

    def _repr_html_(self) -> str:
        shared = shared_sentence([run.spec for run in self])
        return html_table(COLUMNS, run_rows(self), [shared] if shared else [])


def run_rows(runs: Sequence[Run]) -> list[list[str]]:
    """Return one row per run: its id, its settings, its state, and its last logged values."""
    labels = run_labels(run.spec for run in runs)
    return [[run.id, labels[run.id], run_state(run), last_values(run)] for run in runs]


def run_state(run: Run) -> str:
    """Return "trained", "untrained", or a text that says at which step and in which term the run diverged."""
    if run.divergence is not None:
        return "diverged at step {step} in {term}".format(**run.divergence)
    return "trained" if run.spec.steps else "untrained"


def last_values(run: Run) -> str:
    """Return the last logged value of each training term as text."""
    last = run.log[-1] if run.log else {}
    return ", ".join(f"{name} {value:.4g}" for name, value in last.items() if name != "step")
