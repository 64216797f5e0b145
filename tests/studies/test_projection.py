"""The projected time and cost of a study on several GPUs: limits, bounds and what each assumption costs."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random

import pytest

from unbraid.errors import UserError
from unbraid.studies.projection import Assumptions, Task, describe_assumptions, project, task_seconds, with_losses

IDEAL = Assumptions(
    price=2.0, start_seconds=0.0, compile_seconds=0.0, data_seconds=0.0, checkpoint_share=0.0, losses_per_hour=0.0,
    scoring_seconds=0.0,
)  # fmt: skip


def random_tasks(seed: int, count: int = 60) -> list[Task]:
    source = random.Random(seed)
    return [Task(source.randint(1, 256), source.uniform(10.0, 5000.0)) for _ in range(count)]


def test_one_gpu_takes_the_sum_and_many_take_the_longest_task() -> None:
    tasks = random_tasks(0)
    one, many = project(tasks, 1, IDEAL), project(tasks, 10_000, IDEAL)
    assert one.hours == pytest.approx(sum(task.seconds for task in tasks) / 3600)
    assert one.cost == pytest.approx(2.0 * one.hours)
    assert one.busy == pytest.approx(1.0)
    assert many.hours == many.longest_hours == max(task.seconds for task in tasks) / 3600


@pytest.mark.parametrize("seed", range(20))
def test_more_gpus_never_take_longer_and_obey_the_bounds(seed: int) -> None:
    """The bounds of list scheduling: total / n below, and total / n + longest above (Graham 1966)."""
    tasks = random_tasks(seed)
    for assumptions in (IDEAL, Assumptions()):
        times = [task_seconds(task, assumptions) / 3600 for task in tasks]
        start = assumptions.node_seconds / 3600
        hours = [project(tasks, n, assumptions).hours for n in range(1, 70)]
        assert all(b <= a + 1e-9 for a, b in itertools.pairwise(hours))
        for n, found in enumerate(hours, 1):
            assert max(sum(times) / n, max(times)) <= found - start + 1e-9
            assert found - start <= sum(times) / n + max(times) + 1e-9


def test_tasks_are_given_out_in_order_to_the_gpu_that_is_free_first() -> None:
    tasks = [Task(1, hours * 3600) for hours in (1.0, 1.0, 1.0, 3.0)]
    assert project(tasks, 2, IDEAL).hours == 4.0  # the longest task comes last
    assert project(tasks[::-1], 2, IDEAL).hours == 3.0


def test_each_assumption_costs_what_it_says() -> None:
    task = Task(100, 3600.0)

    def hours(**changes: float) -> float:
        return project([task], 1, dataclasses.replace(IDEAL, **changes)).hours

    assert hours(start_seconds=1800.0, compile_seconds=900.0, data_seconds=900.0) == pytest.approx(2.0)
    assert hours(checkpoint_share=0.5) == pytest.approx(2.0)
    assert hours(scoring_seconds=36.0, scoring_cores=1) == pytest.approx(2.0)
    assert hours(scoring_seconds=36.0, scoring_cores=4) == pytest.approx(1.25)
    assert hours(losses_per_hour=1.0) == pytest.approx(math.e - 1)


def test_hidden_scoring_delays_only_the_end() -> None:
    """Two tasks of one hour, whose runs are scored in 15 minutes per task on the cores of a GPU."""
    tasks, scored = [Task(100, 3600.0)] * 2, dataclasses.replace(IDEAL, scoring_seconds=36.0, scoring_cores=4)
    in_turn, hidden = (
        dataclasses.replace(scored, scoring_hidden=False),
        dataclasses.replace(scored, scoring_hidden=True),
    )
    assert project(tasks, 1, in_turn).hours == pytest.approx(2.5)
    assert project(tasks, 1, hidden).hours == pytest.approx(2.25)
    assert project(tasks, 2, hidden).hours == pytest.approx(1.25)  # each task is scored on the cores of both nodes
    slow = dataclasses.replace(hidden, scoring_cores=1)  # scoring takes as long as training
    assert project(tasks * 2, 1, slow).hours == pytest.approx(5.0)


def test_losses_cost_what_a_simulation_of_them_costs() -> None:
    """Work of half an hour is repeated until no loss occurs in it. Each loss adds a new start of six minutes."""
    assumptions = dataclasses.replace(IDEAL, losses_per_hour=1.0, start_seconds=360.0)
    source, total, repeats = random.Random(0), 0.0, 40_000
    for _ in range(repeats):
        while (lost_after := source.expovariate(1.0)) < 0.5:
            total += lost_after + 0.1
        total += 0.5
    assert with_losses(1800.0, assumptions) / 3600 == pytest.approx(total / repeats, rel=0.02)


def test_a_shared_folder_limits_what_a_loss_costs() -> None:
    lossy = dataclasses.replace(IDEAL, losses_per_hour=1.0, start_seconds=36.0, checkpoint_seconds=36.0)
    kept = with_losses(36_000.0, dataclasses.replace(lossy, shared=True)) / 3600
    assert kept == pytest.approx(10.0 * (1 + 0.01 + 0.005), rel=1e-3)  # ten losses: ten starts, half an interval each
    assert with_losses(36_000.0, lossy) / 3600 > 20_000
    assert with_losses(36_000.0, IDEAL) == 36_000.0
    assert with_losses(1e9, lossy) == math.inf


def test_assumptions_are_parsed_and_checked() -> None:
    parsed = Assumptions.parse(["price=2.5", "shared=1", "scoring_cores=8"])
    assert parsed == Assumptions(price=2.5, shared=True, scoring_cores=8)
    assert "price=2.5, start_seconds=180" in describe_assumptions(parsed)
    for text, message in [
        ("prize=1", "prize"), ("price=low", "must be NAME=NUMBER"), ("price", "must be NAME=NUMBER"),
        ("price=-1", "at least 0"), ("price=nan", "at least 0"), ("checkpoint_share=1", "below 1"),
        ("scoring_cores=0", "above 0"), ("scoring_cores=inf", "must be NAME=NUMBER"),
    ]:  # fmt: skip
        with pytest.raises(UserError, match=message):
            Assumptions.parse([text])
    with pytest.raises(UserError, match="at least one task"):
        project([], 1)
    with pytest.raises(UserError, match="at least 1"):
        project([Task(1, 1.0)], 0)
