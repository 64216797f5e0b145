"""Reducing a study to some of its datasets, methods and seeds, to fewer steps, or to one shard."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from unbraid.errors import UserError
from unbraid.runs.only import Only, check_properties, has_values, nothing_chosen, parse_only
from unbraid.studies.planned import PlannedRun, replace_spec
from unbraid.training.schedule import group_by_stack_key

MIN_SEEDS, MIN_STEPS = 2, 100


@dataclass(frozen=True)
class Reduction:
    """Which part of a study to run, and with which changes.

    Attributes:
        only: Which runs to select by their properties: data, method, level (the index of the strength in the sweep of
            its method, from 0), a hyperparameter and so on (see `unbraid.runs.only.parse_only`).
        seeds: The seeds to select. None selects all seeds.
        steps: Number of training steps of all runs. Schedules of methods are rescaled. None keeps the study's number.
        scale: Fraction of the work to do, above 0 and at most 1. The numbers of seeds and of steps are both multiplied
            by its square root, but at least 2 seeds and 100 steps remain.
        data: Datasets that replace the study's datasets, in order. Datasets that are not replaced are dropped.
        learning_rate: Learning rate of all runs. None keeps the study's value. Shorter runs may need a higher rate.
    """

    only: Only = None
    seeds: Sequence[int] | None = None
    steps: int | None = None
    scale: float = 1.0
    data: str | Sequence[str] | None = None
    learning_rate: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.scale <= 1:
            raise UserError(f"The scale of a study must be above 0 and at most 1. Got {self.scale:g} instead.")
        if self.steps is not None and self.steps < 0:
            raise UserError(f"The steps of a study must not be negative. Got {self.steps} instead.")

    def apply(self, runs: Iterable[PlannedRun]) -> list[PlannedRun]:
        """Return the selected runs with their changes. They keep their index in the study."""
        all_runs = self._replace_data(list(runs))
        self._check_properties(all_runs)
        seeds = self._select_seeds(all_runs)
        wanted = parse_only(self.only)
        of_seeds = [run for run in all_runs if run.spec.seed in seeds]
        selected = [run for run in of_seeds if has_values(run.facts(), wanted)] if wanted else of_seeds
        if not selected:
            raise UserError(nothing_chosen(wanted, [run.facts() for run in of_seeds]))
        rate = {} if self.learning_rate is None else {"learning_rate": self.learning_rate}
        return [replace_spec(run, **self._changed_steps(run), **rate) for run in selected]

    def _check_properties(self, all_runs: Sequence[PlannedRun]) -> None:
        """Raise an error if `only` names a property that no run has."""
        if self.only:
            names = dict.fromkeys(name for _, group in groupby(all_runs, lambda run: type(run.spec.method))
                                  for name in next(group).facts())  # fmt: skip
            check_properties(parse_only(self.only), names)

    def _replace_data(self, runs: list[PlannedRun]) -> list[PlannedRun]:
        """Replace the first datasets with `data` and drop the others. Without `data`, return all runs unchanged."""
        if not self.data:
            return runs
        new = [self.data] if isinstance(self.data, str) else list(dict.fromkeys(self.data))
        old = list(dict.fromkeys(run.spec.data for run in runs))
        if len(new) > len(old):
            raise UserError(
                f"The study has {len(old)} datasets that can be replaced. Got {len(new)} instead. Name fewer."
            )
        names = dict(zip(old, new, strict=False))
        return [replace_spec(run, data=names[run.spec.data]) for run in runs if run.spec.data in names]

    def _select_seeds(self, all_runs: Sequence[PlannedRun]) -> range | set[int]:
        study_seeds = {run.spec.seed for run in all_runs}
        if self.seeds is not None:
            if missing := sorted(set(self.seeds) - study_seeds):
                raise UserError(
                    f"The seeds must be seeds of the study, {min(study_seeds)} to {max(study_seeds)}. Got also "
                    f"{', '.join(map(str, missing))}. Select fewer seeds, or write your own study with more seeds."
                )
            return set(self.seeds)
        count = 1 + max(study_seeds)
        return range(max(min(MIN_SEEDS, count), round(count * math.sqrt(self.scale))))

    def _changed_steps(self, run: PlannedRun) -> dict[str, Any]:
        if self.steps is not None:
            return {"steps": self.steps}
        return {"steps": max(min(MIN_STEPS, run.spec.steps), round(run.spec.steps * math.sqrt(self.scale)))}


def select_shard(runs: Sequence[PlannedRun], part: int, parts: int) -> list[PlannedRun]:
    """Return part number `part` (from 1 to `parts`) of the runs. Runs that are trained in one stack stay together."""
    if not 1 <= part <= parts:
        raise UserError(f"A shard must be i/n with i from 1 to n. Got {part}/{parts} instead.")
    stacks = group_by_stack_key(sorted(runs, key=lambda run: run.index), lambda run: run.spec)
    if part > len(stacks):
        raise UserError(
            f"The shard {part}/{parts} has no runs, because the selected runs form {len(stacks)} stack(s). "
            f"Use at most {len(stacks)} shard(s)."
        )
    return [run for i, stack in enumerate(stacks) if i % parts == part - 1 for run in stack]
