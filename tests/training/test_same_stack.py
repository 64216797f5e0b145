"""A training that is killed and resumed uses the same stacks, on which the rounding on a GPU depends.

The bits of a run on a GPU depend on the number of runs in its stack and on nothing else that resuming could change.
These tests therefore compare, for every step of every run, the size of the stack and the row of the run, with those of
an uninterrupted training. They run on the CPU, which plans its stacks here as a GPU does.
"""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import unbraid as ub
from support.training import Killed, assert_same_run, kill_at_call, quick_train
from unbraid.accel.kernels.tuned import launch_settings
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods import VAE, BetaVAE
from unbraid.nets.mlp import mlp
from unbraid.runs.folder import RunFolder, find_runs
from unbraid.runs.spec import RunSpec
from unbraid.training import loop, schedule
from unbraid.training.active import ActiveStack, RunInTraining, StackGroup
from unbraid.training.schedule import (
    add_idle_rows,
    group_small_stacks,
    plan_stacks,
    smaller_groups,
    started_size,
    started_stacks,
)  # fmt: skip
from unbraid.training.stack import Stack

Trace = dict[str, dict[int, tuple[int, int]]]
"""For each run and step, the size of the stack and the row."""

METHODS = [VAE(), BetaVAE(beta=2.0)]
STEPS = 4


@pytest.fixture
def like_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan stacks as on a GPU, on which three runs fit into the memory. Stacks train one after another."""
    for module in (schedule, loop):
        monkeypatch.setattr(module, "rounding_depends_on_stack", lambda device: True)
    monkeypatch.setattr(schedule, "MAX_RUNS_PER_STACK_ON_CPU", 3)
    group_one_by_one = functools.partial(schedule.group_small_stacks, max_runs=1)
    monkeypatch.setattr(schedule, "group_small_stacks", group_one_by_one)
    monkeypatch.setattr(loop, "MAX_CHECKPOINT_FRACTION", math.inf)  # a checkpoint after every step


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch) -> Trace:
    """Record the size of the stack and the row of each run at each step. A step that is repeated replaces the first."""
    steps: Trace = {}
    record = loop.record_step

    def record_step(active: ActiveStack, checkpoint: bool) -> None:
        for row, run in active.members:
            steps.setdefault(run.spec.id, {})[active.stack.step] = (len(active.stack), row)
        record(active, checkpoint)

    monkeypatch.setattr(loop, "record_step", record_step)
    return steps


def train_all(out: Path | None, **settings: Any) -> list[ub.Run]:
    return quick_train(out, METHODS, **{"seeds": range(5), "steps": STEPS, "checkpoint_seconds": 0.0, **settings})


def train_and_kill(out: Path, owner: type, name: str, call: int, **settings: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        kill_at_call(patch, owner, name, call)
        with pytest.raises(Killed):
            train_all(out, **settings)


def uninterrupted(trace: Trace, out: Path | None = None, **settings: Any) -> tuple[list[ub.Run], Trace]:
    runs = train_all(out, **settings)
    recorded = {name: dict(steps) for name, steps in trace.items()}
    trace.clear()
    return runs, recorded


@pytest.mark.usefixtures("like_gpu")
def test_ten_runs_train_in_stacks_of_three_and_two(trace: Trace) -> None:
    _, recorded = uninterrupted(trace)
    rows = sorted(steps[1] for steps in recorded.values())
    assert rows == sorted(2 * [(3, 0), (3, 1), (3, 2), (2, 0), (2, 1)])
    assert all(sorted(steps) == [1, 2, 3, 4] and len(set(steps.values())) == 1 for steps in recorded.values())


@pytest.mark.usefixtures("like_gpu")
@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [
        (Stack, "advance", 1), (Stack, "advance", 6), (Stack, "advance", 16),  # at steps of different stacks
        (RunFolder, "write_checkpoint", 2), (RunFolder, "write_checkpoint", 8), (RunFolder, "write_checkpoint", 30),
        (RunFolder, "finish", 1), (RunFolder, "finish", 2), (RunFolder, "finish", 5), (RunFolder, "finish", 9),
        (RunFolder, "write_stack", 2),
    ],
)  # fmt: skip
def test_a_killed_training_resumes_in_the_same_stacks(
    owner: type, name: str, call: int, tmp_path: Path, trace: Trace
) -> None:
    """Also if some runs of a stack are at another step, or finished."""
    wanted, recorded = uninterrupted(trace)
    train_and_kill(tmp_path, owner, name, call)
    resumed = train_all(tmp_path)
    assert trace == recorded
    for a, b in zip(wanted, resumed, strict=True):
        assert_same_run(a, b)
    assert not list(tmp_path.glob("*/stack.json"))


@pytest.mark.usefixtures("like_gpu")
@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [(Stack, "advance", 7), (RunFolder, "write_checkpoint", 13), (RunFolder, "finish", 4)],
)
def test_stacks_that_train_at_the_same_time_resume_in_the_same_stacks(
    owner: type, name: str, call: int, tmp_path: Path, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "group_small_stacks", group_small_stacks)
    _, recorded = uninterrupted(trace)
    train_and_kill(tmp_path, owner, name, call)
    train_all(tmp_path)
    assert trace == recorded


@pytest.mark.usefixtures("like_gpu")
def test_a_training_that_is_killed_twice_resumes_in_the_same_stacks(tmp_path: Path, trace: Trace) -> None:
    _, recorded = uninterrupted(trace)
    train_and_kill(tmp_path, RunFolder, "write_checkpoint", 5)
    train_and_kill(tmp_path, RunFolder, "finish", 2)
    train_and_kill(tmp_path, RunFolder, "write_checkpoint", 4)
    train_all(tmp_path)
    assert trace == recorded


@pytest.mark.usefixtures("like_gpu")
def test_stacks_keep_their_size_if_less_memory_is_free(
    tmp_path: Path, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stacks of the interrupted method, also the one that was not started yet, have the size of before."""
    _, recorded = uninterrupted(trace)
    train_and_kill(tmp_path, RunFolder, "write_checkpoint", 2)
    monkeypatch.setattr(schedule, "MAX_RUNS_PER_STACK_ON_CPU", 1)
    train_all(tmp_path)
    first = [name for name, steps in trace.items() if steps == recorded[name]]
    assert len(first) == 5
    assert {size for name in set(trace) - set(first) for size, _ in trace[name].values()} == {1}


@pytest.mark.usefixtures("like_gpu")
def test_a_part_of_the_runs_resumes_in_the_same_stacks(tmp_path: Path, trace: Trace) -> None:
    """If only some runs are requested, as by another shard, the rows of the others are idle."""
    _, recorded = uninterrupted(trace)
    train_and_kill(tmp_path, Stack, "advance", 3)
    resumed = train_all(tmp_path, seeds=[1, 4], add=True)
    started = [run.id for run in resumed if run.spec.seed == 1 and len(trace[run.id]) == STEPS]
    assert started
    assert any(trace[run.id] == recorded[run.id] and recorded[run.id][1] == (3, 1) for run in resumed)


@pytest.mark.usefixtures("like_gpu")
@pytest.mark.parametrize(("name", "call"), [("write_checkpoint", 4), ("finish", 2)])
def test_a_shard_of_a_study_resumes_in_the_same_stacks(name: str, call: int, tmp_path: Path, trace: Trace) -> None:
    """The second of two shards, with five runs in stacks of three and two."""

    def run_shard(out: Path) -> None:
        specs = [
            RunSpec(m, "toy", seed, STEPS, 8, 1e-3, 3, net="mlp", likelihood="gaussian")
            for m in METHODS
            for seed in range(5)
        ]
        ub.study(specs, out, shard=(2, 2), metrics=[], quiet=True)

    run_shard(tmp_path / "whole")
    recorded = {run: dict(steps) for run, steps in trace.items()}
    assert sorted(steps[1] for steps in recorded.values()) == [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]
    trace.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Monitor, "checkpoint_due", lambda monitor: True)
        kill_at_call(patch, RunFolder, name, call)
        with pytest.raises(Killed):
            run_shard(tmp_path / "killed")
    run_shard(tmp_path / "killed")
    assert trace == recorded


@pytest.mark.usefixtures("like_gpu")
def test_a_diverged_run_resumes_in_its_row(tmp_path: Path, trace: Trace) -> None:
    """A diverged run has no new checkpoint. After a kill it diverges again, in the same row of a stack of that size."""
    rates = [1e-3, 1e30, 1e-4]
    wanted, recorded = uninterrupted(trace, learning_rate=rates, seeds=[0])
    assert sum(run.divergence is not None for run in wanted) == len(METHODS)
    train_and_kill(tmp_path, RunFolder, "finish", 1, learning_rate=rates, seeds=[0])
    resumed = train_all(tmp_path, learning_rate=rates, seeds=[0])
    for a, b in zip(wanted, resumed, strict=True):
        assert_same_run(a, b)
        assert a.divergence == b.divergence
        assert {*trace[a.id].values()} == {*recorded[a.id].values()}


@pytest.mark.usefixtures("like_gpu")
def test_runs_that_were_trained_before_leave_no_idle_rows(tmp_path: Path, trace: Trace) -> None:
    """Idle rows cost time. They are used only for stacks that were interrupted."""
    train_all(tmp_path, seeds=[0])
    trace.clear()
    train_all(tmp_path, seeds=[0, 1])
    assert {size for steps in trace.values() for size, _ in steps.values()} == {1}


def test_a_cpu_records_no_stacks_and_has_no_idle_rows(tmp_path: Path, trace: Trace) -> None:
    train_and_kill(tmp_path, RunFolder, "write_checkpoint", 2)
    assert not list(tmp_path.glob("*/stack.json"))
    trace.clear()
    train_all(tmp_path)
    assert {size for steps in trace.values() for size, _ in steps.values()} == {1, 4, 5}


def spec(seed: int) -> RunSpec:
    return RunSpec(VAE(), "toy", seed, net="mlp", likelihood="gaussian", latents=3)


def runs_of(count: int, stack: list[int] | None = None) -> list[RunInTraining]:
    """Runs with seeds from 0, of which some were started in a stack."""
    runs = [RunInTraining(spec(seed), None) for seed in range(count)]
    for seed in stack or []:
        runs[seed].stack = [runs[other].spec.id for other in stack or []]
    return runs


def test_the_size_of_the_plan_is_inferred_from_a_stack_that_was_started() -> None:
    for count, stack, size in ((9, [3, 4, 5], 3), (9, [2, 3, 4], None), (4, [0, 1, 2, 3], 4), (5, [3, 4], None)):
        runs = runs_of(count, stack)
        assert started_size(runs, started_stacks(runs)) == size


@pytest.mark.usefixtures("like_gpu")
def test_stacks_that_were_started_come_first_and_the_others_are_planned_around_them(toy: FactorData) -> None:
    runs = runs_of(8, [6, 1, 4])
    planned = [[run.spec.seed for run in stack] for stack in plan_stacks(runs, toy, mlp)]
    assert planned == [[6, 1, 4], [0, 2], [3, 5], [7]]
    runs[1].trained = True
    (rows, *_) = plan_stacks(runs, toy, mlp)
    assert [(run.spec.seed, run.idle) for run in add_idle_rows(rows)] == [(6, False), (6, True), (4, False)]


def test_launch_settings_of_a_resumed_stack_are_those_of_the_whole_stack() -> None:
    runs = runs_of(40, list(range(40)))
    rows = add_idle_rows(runs[:1])
    assert len(rows) == 40
    key = ("conv_transpose4x4", 32, 32)
    whole, alone = (launch_settings(*key, torch.bfloat16, n) for n in (len(rows), 1))
    assert whole == launch_settings(*key, torch.bfloat16, len(runs))
    assert whole != alone


def test_idle_rows_are_given_up_first_if_memory_runs_out() -> None:
    runs = runs_of(4, [0, 1, 2, 3])
    rows = add_idle_rows(runs[:2])
    assert smaller_groups(StackGroup([rows]), torch.device("cuda"))[0].stacks == [runs[:2]]


def test_idle_rows_are_never_updated(toy: FactorData) -> None:
    for vmapped in (False, True):
        stack = Stack([spec(seed) for seed in range(3)], toy, mlp, vmapped=vmapped)
        stack.stop([1])
        before = stack.rows.clone()
        stack.advance()
        stack.advance()
        changed = [not torch.equal(a, b) for a, b in zip(before, stack.rows, strict=True)]
        assert changed == [True, False, True]


@pytest.mark.usefixtures("like_gpu")
@pytest.mark.parametrize("content", ["{", '{"runs": 3}', '{"runs": []}', '{"runs": ["other"]}', "twice", "many"])
def test_a_damaged_record_is_an_error_that_says_what_to_do(content: str, tmp_path: Path) -> None:
    train_and_kill(tmp_path, Stack, "advance", 2)
    file = next(iter(tmp_path.glob("*/stack.json")))
    name = find_runs(tmp_path / file.parent.name)[0].spec.id
    lists = {"twice": [name, name], "many": [name, *map(str, range(256))]}
    file.write_text(json.dumps({"runs": lists[content]}) if content in lists else content)
    with pytest.raises(UserError, match="Delete this file"):
        train_all(tmp_path)
