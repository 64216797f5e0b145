"""A study as a value: numbered runs, each with its place in the sweep."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unbraid.methods import Method
from unbraid.runs.spec import RunSpec


@dataclass(frozen=True)
class Setting:
    """A method with its place in a sweep: the number that is swept, and the how manyeth of its values this is.

    `spec` has fields of its runs that other settings of the study have otherwise: the network, say.
    """

    method: Method
    strength: float
    level: int
    spec: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Planned:
    """One run of a study: its number, its spec, and its place in the sweep."""

    index: int
    spec: RunSpec
    strength: float
    level: int

    def facts(self) -> dict[str, Any]:
        """What can be chosen by."""
        values = self.spec.to_dict()
        method = values.pop("method")
        return {"index": self.index, "level": self.level, "strength": self.strength, **method, **values,
                "method": method["name"]}  # fmt: skip


Study = Callable[[], Iterator[Planned]]
"""A study is a function that gives its runs in their published order."""


def swept(make: Callable[..., Method], field: str, values: Sequence[float], **fixed: Any) -> list[Setting]:
    """A method at several values of one hyperparameter."""
    return [Setting(make(**{field: value}, **fixed), float(value), level) for level, value in enumerate(values)]


def crossed(data: Iterable[str], settings: Sequence[Setting], seeds: int, **spec: Any) -> Iterator[Planned]:
    """Datasets x settings x seeds, numbered in that order.

    The number of a run is ((dataset * settings) + setting) * seeds + seed.
    """
    index = 0
    for name in data:
        for setting in settings:
            for seed in range(seeds):
                run = RunSpec(setting.method, name, seed, **{**spec, **setting.spec})
                yield Planned(index, run, setting.strength, setting.level)
                index += 1


def changed(planned: Planned, **spec: Any) -> Planned:
    """The same place in the sweep with another length, precision or the like; schedules follow the length."""
    if "steps" not in spec or spec["steps"] == planned.spec.steps:
        return dataclasses.replace(planned, spec=dataclasses.replace(planned.spec, **spec))
    share = spec["steps"] / max(1, planned.spec.steps)
    method = shortened(planned.spec.method, share)
    return dataclasses.replace(planned, spec=dataclasses.replace(planned.spec, method=method, **spec))


SCHEDULES = ("iteration_threshold", "horizon")  # fields that are numbers of steps


def shortened(method: Method, share: float) -> Method:
    """A method whose schedules take a share of the steps they took."""
    fields = {f.name: getattr(method, f.name) for f in dataclasses.fields(method) if f.name in SCHEDULES}
    scaled = {name: type(value)(max(1, round(value * share))) for name, value in fields.items() if value}
    return dataclasses.replace(method, **scaled)
