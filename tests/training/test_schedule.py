"""Tests of which runs form a stack, which stacks train at the same time, and what happens without enough memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from support.training import assert_same_run, quick_train
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods import VAE, BetaVAE, Method
from unbraid.nets.mlp import mlp
from unbraid.runs.run import Run
from unbraid.runs.spec import RunSpec
from unbraid.training import schedule
from unbraid.training.active import RunInTraining, StackGroup
from unbraid.training.loop import Monitor
from unbraid.training.schedule import (
    group_by_stack_key,
    group_small_stacks,
    smaller_groups,
    split_into_stacks,
    stack_groups,
    train_or_split_group,
)
from unbraid.training.stack import Stack
from unbraid.training.train import train_specs


def spec(method: Method, **settings: Any) -> RunSpec:
    return RunSpec(method, "toy", net="mlp", likelihood="gaussian", **{"latents": 3, **settings})


def in_training(*specs: RunSpec) -> list[RunInTraining]:
    return [RunInTraining(spec, None) for spec in specs]


def record_group_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which the number of stacks of each group is appended when the group is trained."""
    sizes: list[int] = []
    real = schedule.train_group

    def train_group(group: StackGroup, *rest: Any) -> list[Run]:
        sizes.append(len(group.stacks))
        return real(group, *rest)

    monkeypatch.setattr(schedule, "train_group", train_group)
    return sizes


def test_runs_are_grouped_in_order_of_appearance() -> None:
    specs = [spec(VAE(), seed=1), spec(BetaVAE(beta=2.0)), spec(VAE(), seed=0), spec(BetaVAE(beta=3.0), seed=5)]
    assert group_by_stack_key(range(4), lambda i: specs[i]) == [[0, 2], [1, 3]]


def test_runs_are_split_into_stacks() -> None:
    assert split_into_stacks("abcdef", 4) == [list("abcd"), list("ef")]
    assert split_into_stacks([], 4) == []


def test_a_stack_contains_only_runs_with_the_same_key(toy: FactorData) -> None:
    specs = [spec(BetaVAE(beta=b), seed=s, learning_rate=r) for b in (1, 2) for s in (0, 1) for r in (1e-3, 1e-4)]
    specs += [spec(VAE()), spec(BetaVAE(), latents=4), spec(BetaVAE(), batch=32)]
    groups = list(stack_groups(in_training(*specs), toy, mlp))
    assert sorted(len(runs) for group in groups for runs in group.stacks) == [1, 1, 1, 8]


def test_a_stack_on_a_cpu_has_at_most_16_runs(toy: FactorData) -> None:
    groups = list(stack_groups(in_training(*(spec(VAE(), seed=s) for s in range(40))), toy, mlp))
    assert [[len(runs) for runs in group.stacks] for group in groups] == [[16], [16], [8]]


def test_trained_runs_do_not_change_the_grouping(toy: FactorData, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of threads of a stack is the same when some of its runs are already trained."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    runs = in_training(*(spec(VAE(), seed=s) for s in range(3)))
    runs[0].trained = True
    runs[1].step = 5
    groups = list(stack_groups(runs, toy, mlp))
    assert [[len(stack) for stack in group.stacks] for group in groups] == [[1], [1]]
    assert [group.run_threads for group in groups] == [3, 3]


def test_single_runs_train_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two cores, two stacks of one run train at the same time, with the same losses as alone on one core."""
    methods = [BetaVAE(beta=0.5), VAE()]
    alone = [quick_train(None, m)[0] for m in methods]
    sizes = record_group_sizes(monkeypatch)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    together = quick_train(None, methods)
    assert sizes == [2]
    for a, b in zip(alone, together, strict=True):
        assert a.log[-1]["loss"] == pytest.approx(b.log[-1]["loss"], rel=1e-3)


def test_small_stacks_are_grouped_for_a_gpu() -> None:
    groups = [[4, 6], [1], [12], [3, 3, 3], [3]]
    assert list(group_small_stacks([size for group in groups for size in group], int, 10)) == groups
    assert list(group_small_stacks([4, 6], int, 0)) == [[4], [6]]
    assert list(group_small_stacks([], int, 10)) == []


def test_stacks_that_exceed_memory_train_one_after_another(toy: FactorData, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the third step of the second stack fails, both stacks resume and give the same runs as without the failure."""
    specs = [spec(m, steps=8, batch=8, learning_rate=1e-3) for m in (BetaVAE(beta=0.5), VAE())]
    wanted = [train_specs([one], toy, mlp, quiet=True)[0] for one in specs]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    (group,) = stack_groups(in_training(*specs), toy, mlp)
    group = dataclasses.replace(group, stack_threads=1)  # one stack after another, as on a GPU
    real, steps = Stack.advance, []

    def advance(stack: Stack) -> None:
        steps.append(stack.step)
        if len(steps) == 6:
            raise torch.cuda.OutOfMemoryError("simulated")
        real(stack)

    monkeypatch.setattr(Stack, "advance", advance)
    sizes = record_group_sizes(monkeypatch)
    trained = {run.id: run for run in train_or_split_group(group, toy, mlp, Monitor([], None, 60.0))}
    assert sizes == [2, 1, 1]
    assert steps == [0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 7, 2, 3, 4, 5, 6, 7]
    for run in wanted:
        assert_same_run(run, trained[run.id])


def test_a_stack_without_enough_memory_is_halved() -> None:
    runs = in_training(*(spec(VAE(), seed=s) for s in range(5)))
    with pytest.warns(RuntimeWarning, match="do not fit into the memory"):
        halves = smaller_groups(StackGroup([runs]), torch.device("cuda"))
    assert [group.stacks for group in halves] == [[runs[:3]], [runs[3:]]]
    with pytest.raises(UserError, match="One run of batch 64 does not fit"):
        smaller_groups(StackGroup([runs[:1]]), torch.device("cuda"))
