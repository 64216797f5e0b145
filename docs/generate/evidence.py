"""The state of parts of the evidence, for pages that are made from evidence/results.csv."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
from pandas import DataFrame

from generate import ROOT
from unbraid.studies.published import STUDIES

sys.path.append(str(ROOT / "evidence"))


@functools.cache
def collected_runs() -> DataFrame:
    """Return all rows of evidence/results.csv."""
    return pd.read_csv(ROOT / "evidence" / "results.csv")


@functools.cache
def plan() -> Mapping[str, Any]:
    """Return the parts of evidence/plan.toml by name."""
    import parts

    found: Mapping[str, Any] = parts.read_plan()
    return found


def parts_named(*beginnings: str) -> list[Any]:
    """Return the parts whose names begin with one of the given words."""
    return [part for name, part in plan().items() if name.startswith(beginnings)]


@functools.cache
def study_ids(study: str) -> frozenset[str]:
    """Return the ids of the runs of a study in the precision of the evidence."""
    import parts

    return frozenset(replace(run.spec, precision=parts.PRECISION).id for run in STUDIES[study]())


def runs_of_study(study: str, collected: DataFrame) -> DataFrame:
    """Return the collected runs that have the settings of a study."""
    return collected[collected["run"].isin(study_ids(study))].reset_index(drop=True)


def state_text(wanted: Iterable[Any], collected: DataFrame, ids: Iterable[str] | None = None) -> str:
    """Return how many runs of some parts are finished, and the commands for parts that are not.

    If `ids` is given, only the runs with these ids count.
    """
    parts, finished, needed = list(wanted), set(collected["run"]), None if ids is None else set(ids)
    counted = {part.name: [run for run in part.run_ids if needed is None or run in needed] for part in parts}
    total, done = (sum(map(len, counted.values())), len({run for runs in counted.values() for run in runs} & finished))
    waiting = [name for name, runs in counted.items() if not set(runs) <= finished]
    if not waiting:
        return f"Finished runs: {done} of {total}."
    head = "**Not run yet.**" if not done else f"Finished runs: {done} of {total}."
    other_seeds = {part.name for part in parts if part.only.get("seed", ["0"]) != ["0"]}
    named = [name for name in waiting if name not in other_seeds] or waiting
    lines = "\n".join(f"python evidence/parts.py --run {name}" for name in named)
    rest = (
        f"\n\nThere are {len(waiting) - len(named)} more such parts, whose names end in other seeds."
        if named != waiting
        else ""
    )
    commands = f"```bash\n{lines}\n```{rest}"
    return f"{head} The remaining parts need a GPU, and each takes at most about ten minutes:\n\n{commands}"
