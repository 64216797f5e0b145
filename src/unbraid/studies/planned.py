"""The runs of a study before they are trained: settings, sweeps and grids."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from unbraid.methods import Method
from unbraid.runs.spec import RunSpec


@dataclass(frozen=True)
class Setting:
    """A method with its position in a sweep.

    Attributes:
        method: The method with its hyperparameters.
        strength: The value of the hyperparameter that is swept.
        level: The index of that value in the sweep, starting at 0.
        spec: Fields of `RunSpec` that apply to this setting only, for example the network.
        variant: The name of a variant of the method, such as "without sparsity". Analyses treat variants as different
            methods. It is empty for the method itself.
    """

    method: Method
    strength: float
    level: int
    spec: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study.

    Attributes:
        index: The index of the run in the study.
        spec: The spec of the run.
        strength: The value of the hyperparameter that is swept.
        level: The index of that value in the sweep, starting at 0.
        variant: The name of a variant of the method (see `Setting`), or empty.
    """

    index: int
    spec: RunSpec
    strength: float
    level: int
    variant: str = ""

    def position(self) -> dict[str, Any]:
        """Return the index, strength and level of the run in its study, and its variant if it has one."""
        position = {"index": self.index, "strength": self.strength, "level": self.level}
        return {**position, "variant": self.variant} if self.variant else position

    def facts(self) -> dict[str, Any]:
        """Return all properties by which a run can be selected: its position in the study, and fields of its spec."""
        return {**self.position(), "variant": self.variant, **self.spec.flat()}


def runs_by_dataset(planned: Iterable[PlannedRun]) -> Iterator[tuple[str, Iterator[PlannedRun]]]:
    """Sort runs by their index in the study, and yield consecutive runs of the same dataset with the dataset's name."""
    return groupby(sorted(planned, key=lambda run: run.index), lambda run: run.spec.data)


Study = Callable[[], Iterator[PlannedRun]]
"""A function that yields the runs of a study in a fixed order."""


def sweep(make: Callable[..., Method], field: str, values: Sequence[float], **fixed: Any) -> list[Setting]:
    """Return one setting for each value of one hyperparameter.

    Args:
        make: The class of the method.
        field: The name of the hyperparameter that is swept.
        values: The values of this hyperparameter. Their indices become the levels.
        **fixed: Other hyperparameters, which are the same for all settings.

    >>> from unbraid.methods import BetaVAE
    >>> [(setting.strength, setting.level) for setting in sweep(BetaVAE, "beta", (1.0, 4.0))]
    [(1.0, 0), (4.0, 1)]
    """
    return [Setting(make(**{field: value}, **fixed), float(value), level) for level, value in enumerate(values)]


def grid(data: Iterable[str], settings: Sequence[Setting], seeds: int, **spec: Any) -> Iterator[PlannedRun]:
    """Yield one run for each combination of dataset, setting and seed. The seed changes fastest.

    The index of a run is ``((dataset * len(settings)) + setting) * seeds + seed``.

    Args:
        data: Names of datasets.
        settings: The settings of the methods.
        seeds: The number of seeds. The seeds are 0 to `seeds` - 1.
        **spec: Fields of `RunSpec` for all runs. The fields of a setting take precedence.
    """
    index = 0
    for name in data:
        for setting in settings:
            for seed in range(seeds):
                run = RunSpec(setting.method, name, seed, **{**spec, **setting.spec})
                yield PlannedRun(index, run, setting.strength, setting.level, setting.variant)
                index += 1


def number_runs(runs: Iterable[PlannedRun]) -> Iterator[PlannedRun]:
    """Yield the runs of several grids with the indices 0, 1, 2, ..."""
    for index, run in enumerate(runs):
        yield dataclasses.replace(run, index=index)


def replace_spec(planned: PlannedRun, **spec: Any) -> PlannedRun:
    """Return a planned run with some fields of its spec replaced. If `steps` changes, schedules are rescaled."""
    if "steps" not in spec or spec["steps"] == planned.spec.steps:
        return dataclasses.replace(planned, spec=dataclasses.replace(planned.spec, **spec))
    ratio = spec["steps"] / max(1, planned.spec.steps)
    method = scale_schedules(planned.spec.method, ratio)
    return dataclasses.replace(planned, spec=dataclasses.replace(planned.spec, method=method, **spec))


SCHEDULES = ("iteration_threshold", "horizon", "start")  # fields of methods that are measured in steps


def scale_schedules(method: Method, ratio: float) -> Method:
    """Return the method with the lengths of its schedules multiplied by `ratio`. Each schedule has at least 1 step.

    Methods without a schedule that is measured in steps are returned unchanged.
    """
    if not method.schedule_end(0):
        return method
    fields = {f.name: getattr(method, f.name) for f in dataclasses.fields(method) if f.name in SCHEDULES}
    scaled = {name: type(value)(max(1, round(value * ratio))) for name, value in fields.items() if value}
    return dataclasses.replace(method, **scaled)
