"""Cutting a study down: some of its datasets, methods and seeds, fewer steps, one part of several."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from unbraid.errors import UserError, unknown
from unbraid.studies.planned import Planned, changed

LEAST_SEEDS, LEAST_STEPS = 2, 100


@dataclass(frozen=True)
class Cut:
    """What of a study is wanted.

    `only` maps a fact of a run (data, method, level, a hyperparameter, ...) to the values wanted, as they are written.
    `data` replaces the study's datasets, the first by the first and so on, and drops the rest. `scale` below 1 takes
    its square root as the share of seeds and of steps, so that the work is that share; at least 2 seeds and 100 steps
    are left. A higher `learning_rate` brings short runs further than the study's own.
    """

    only: Mapping[str, Sequence[str]] | None = None
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

    def of(self, runs: Iterable[Planned]) -> list[Planned]:
        """The runs that are left, with the numbers they had."""
        every = self._named(list(runs))
        self._check(every)
        seeds = self._seeds(every)
        wanted = {key: {written(value) for value in values} for key, values in (self.only or {}).items()}
        kept = [run for run in every if run.spec.seed in seeds and fits(run, wanted)]
        if not kept:
            raise UserError("Nothing of the study is left. Ask for less to be cut; `--plan` shows what there is.")
        rate = {} if self.learning_rate is None else {"learning_rate": self.learning_rate}
        return [changed(run, **self._length(run), **rate) for run in kept]

    def _check(self, every: Sequence[Planned]) -> None:
        """Refuse to choose by what no run has."""
        if self.only:
            known = dict.fromkeys(name for _, group in groupby(every, lambda run: type(run.spec.method))
                                  for name in next(group).facts())  # fmt: skip
            for key in self.only:
                if key not in known:
                    raise UserError(unknown("fact of a run", key, known))

    def _named(self, runs: list[Planned]) -> list[Planned]:
        """The runs with `data` for the first of the study's datasets, or all as they are."""
        if not self.data:
            return runs
        new = [self.data] if isinstance(self.data, str) else list(dict.fromkeys(self.data))
        old = list(dict.fromkeys(run.spec.data for run in runs))
        if len(new) > len(old):
            raise UserError(f"The study has {len(old)} datasets to be replaced. Got {len(new)} instead. Name fewer.")
        names = dict(zip(old, new, strict=False))
        return [changed(run, data=names[run.spec.data]) for run in runs if run.spec.data in names]

    def _seeds(self, every: Sequence[Planned]) -> range | set[int]:
        there = {run.spec.seed for run in every}
        if self.seeds is not None:
            if missing := sorted(set(self.seeds) - there):
                came = ", ".join(map(str, missing))
                raise UserError(
                    f"The seeds must be the study's, {min(there)} to {max(there)}. Got {came}, which it does not have. "
                    "Ask for fewer, or for more in a study of your own (docs/studies.md)."
                )
            return set(self.seeds)
        count = 1 + max(there)
        return range(max(min(LEAST_SEEDS, count), round(count * math.sqrt(self.scale))))

    def _length(self, run: Planned) -> dict[str, Any]:
        if self.steps is not None:
            return {"steps": self.steps}
        return {"steps": max(min(LEAST_STEPS, run.spec.steps), round(run.spec.steps * math.sqrt(self.scale)))}


def fits(run: Planned, wanted: Mapping[str, set[str]]) -> bool:
    """Whether a run has one of the wanted values of every fact."""
    facts = run.facts() if wanted else {}
    return all(written(facts.get(key)) in values for key, values in wanted.items())


def written(value: Any) -> str:
    """A value as it would be typed: 4 for 4.0.

    >>> written(4.0), written("4.0"), written("dsprites"), written(1e-4)
    ('4', '4', 'dsprites', '0.0001')
    """
    try:
        return f"{float(value):g}"
    except (TypeError, ValueError):
        return str(value)


def shard(runs: Sequence[Planned], part: int, parts: int) -> list[Planned]:
    """The part-th of `parts` shares, 1 to `parts`: whole stacks, so that runs that ride together stay together."""
    if not 1 <= part <= parts:
        raise UserError(f"A shard must be i/n with i from 1 to n. Got {part}/{parts} instead.")
    stacks = stacked(runs)
    return [run for i, stack in enumerate(stacks) if i % parts == part - 1 for run in stack]


def stacked(runs: Iterable[Planned], most: int | None = None) -> list[list[Planned]]:
    """Runs that can ride together, in the order of the first of each, in groups of at most `most`."""
    ordered = sorted(runs, key=lambda run: run.spec.stack_key())
    groups = [sorted(group, key=lambda run: run.index) for _, group in groupby(ordered, lambda r: r.spec.stack_key())]
    size = most or max(map(len, groups), default=1)
    split = [group[i : i + size] for group in groups for i in range(0, len(group), size)]
    return sorted(split, key=lambda group: group[0].index)
