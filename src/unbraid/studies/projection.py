"""The time and cost of a study on several GPUs, projected from measured training rates.

The projection repeats what the driver of a cluster does: in the order of the study, it gives each task to the GPU that
is free first. Losses of nodes are not simulated. The time that they are expected to cost is added to each task, so the
same arguments always give the same result.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from unbraid.errors import UserError, unknown_name_message

HOUR = 3600.0


@dataclass(frozen=True)
class Assumptions:
    """What a projection assumes.

    Attributes:
        price: The price of one GPU for one hour, in any currency. All GPUs are paid for until the last task ends.
        start_seconds: Time from the start of a node until it can train: the machine, Ray, and the import of libraries.
        compile_seconds: Time in which a new node compiles the kernels of all stacks.
        data_seconds: Time in which a new node makes or reads all datasets of the study.
        checkpoint_share: The fraction of the time of training that is spent on checkpoints.
        checkpoint_seconds: Time between two checkpoints.
        losses_per_hour: Expected number of times per hour that the node of a GPU is lost. A new node replaces it at
            once, and has to start, compile and make the data again.
        shared: Whether checkpoints survive the loss of a node, as in a shared folder. Otherwise its task starts again.
        scoring_seconds: Processor time of scoring one run, including the encoding of examples on a core.
        scoring_cores: Number of cores per GPU that score runs.
        scoring_hidden: Whether a GPU trains the next task while the cores score. Otherwise it waits. In both cases the
            study ends when the last runs are scored.
    """

    price: float = 3.0
    start_seconds: float = 180.0
    compile_seconds: float = 60.0
    data_seconds: float = 120.0
    checkpoint_share: float = 0.02
    checkpoint_seconds: float = 600.0
    losses_per_hour: float = 0.01
    shared: bool = False
    scoring_seconds: float = 17.0
    scoring_cores: int = 16
    scoring_hidden: bool = True

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if not (math.isfinite(value) and value >= 0):
                raise UserError(f"The assumption {name} must be a number and at least 0. Got {value} instead.")
        if self.checkpoint_share >= 1:
            raise UserError(f"The assumption checkpoint_share must be below 1. Got {self.checkpoint_share} instead.")
        if not (self.checkpoint_seconds and self.scoring_cores):
            raise UserError("The assumptions checkpoint_seconds and scoring_cores must be above 0. Got 0 instead.")

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Assumptions:
        """Return the default assumptions with changes such as "price=2.5" or "shared=1".

        >>> Assumptions.parse(["price=2.5", "shared=1"]).price
        2.5
        """
        kinds = {name: type(value) for name, value in dataclasses.asdict(cls()).items()}
        changes: dict[str, float | int | bool] = {}
        for text in texts:
            name, _, value = text.partition("=")
            if name not in kinds:
                raise UserError(unknown_name_message("assumption", name, list(kinds)))
            try:
                changes[name] = kinds[name](float(value))
            except (ValueError, OverflowError) as error:
                raise UserError(
                    f"An assumption must be NAME=NUMBER, such as price=2.5. Got {text!r} instead."
                ) from error
        return cls(**changes)  # type: ignore[arg-type]

    @property
    def node_seconds(self) -> float:
        """The time from the start of a node until its first training step."""
        return self.start_seconds + self.compile_seconds + self.data_seconds


@dataclass(frozen=True)
class Task:
    """What one GPU trains at a time: a stack, or several small stacks at the same time.

    Attributes:
        runs: The number of runs.
        seconds: The time of training without checkpoints, from a measured rate.
    """

    runs: int
    seconds: float


@dataclass(frozen=True)
class Projection:
    """The projected time and cost of a study.

    Attributes:
        gpus: The number of GPUs.
        hours: The time until the last task ends and its runs are scored.
        busy: The fraction of the paid GPU-hours that is spent on training, without starts, checkpoints, losses,
            scoring and waiting.
        cost: The price of all GPUs during these hours.
        longest_hours: The time of the longest task. Even with more GPUs, the study takes at least this time plus the
            time until a node can train.
    """

    gpus: int
    hours: float
    busy: float
    cost: float
    longest_hours: float


def task_seconds(task: Task, assumptions: Assumptions) -> float:
    """Return the expected time of a task on one GPU, with checkpoints, scoring and losses of nodes."""
    seconds = task.seconds / (1 - assumptions.checkpoint_share)
    if not assumptions.scoring_hidden:
        seconds += task.runs * assumptions.scoring_seconds / assumptions.scoring_cores
    return with_losses(seconds, assumptions)


def with_losses(seconds: float, assumptions: Assumptions) -> float:
    r"""Return the expected time of work on a node that may be lost, including the work that is repeated after a loss.

    If work starts again after each loss, it takes :math:`(e^{\lambda t} - 1)(1 / \lambda + r)` on average, where
    :math:`\lambda` is the rate of losses, :math:`t` the time of the work without a loss and :math:`r` the time until a
    new node can train. With a shared folder, work starts again at the last checkpoint, so the formula is applied to
    each interval between checkpoints. Otherwise it is applied to the whole task.
    """
    rate = assumptions.losses_per_hour / HOUR
    if rate == 0 or seconds == 0:
        return seconds
    part = min(seconds, assumptions.checkpoint_seconds) if assumptions.shared else seconds
    try:
        return seconds / part * math.expm1(rate * part) * (1 / rate + assumptions.node_seconds)
    except OverflowError:
        return math.inf


def last_score(tasks: Sequence[Task], ends: Sequence[float], gpus: int, assumptions: Assumptions) -> float:
    """Return when the last run is scored, if the cores of all nodes score tasks in the order in which they end."""
    done = 0.0
    for end, task in sorted(zip(ends, tasks, strict=True), key=lambda pair: pair[0]):
        done = max(done, end) + task.runs * assumptions.scoring_seconds / (assumptions.scoring_cores * gpus)
    return done


def project(tasks: Sequence[Task], gpus: int, assumptions: Assumptions | None = None) -> Projection:
    """Project the time and cost of tasks on a number of GPUs.

    Args:
        tasks: The tasks, in the order of the study.
        gpus: The number of GPUs, at least 1.
        assumptions: What is assumed. Default: ``Assumptions()``.

    Returns:
        The projection.

    >>> ideal = Assumptions.parse(f"{name}=0" for name in ("start_seconds", "compile_seconds", "data_seconds",
    ...     "checkpoint_share", "losses_per_hour", "scoring_seconds"))
    >>> project([Task(100, 3600.0)] * 4, 2, ideal)
    Projection(gpus=2, hours=2.0, busy=1.0, cost=12.0, longest_hours=1.0)
    """
    if gpus < 1:
        raise UserError(f"The number of GPUs must be at least 1. Got {gpus} instead.")
    if not tasks:
        raise UserError("A projection needs at least one task. Got none instead.")
    assumptions = assumptions or Assumptions()
    times = [task_seconds(task, assumptions) for task in tasks]
    free_at = [assumptions.node_seconds] * gpus
    ends = []
    for seconds in times:
        ends.append(free_at[0] + seconds)
        heapq.heapreplace(free_at, ends[-1])
    hours = (last_score(tasks, ends, gpus, assumptions) if assumptions.scoring_hidden else max(ends)) / HOUR
    busy = sum(task.seconds for task in tasks) / HOUR / (gpus * hours) if hours else 1.0
    return Projection(gpus, hours, busy, gpus * hours * assumptions.price, max(times) / HOUR)


def describe_assumptions(assumptions: Assumptions) -> str:
    """Return the assumptions as text, such as "price=3, shared=0"."""
    values: Mapping[str, float] = dataclasses.asdict(assumptions)
    return ", ".join(f"{name}={value:g}" for name, value in values.items())
