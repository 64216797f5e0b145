"""Ctrl-C and SIGTERM: the step under way ends, a checkpoint is written, nothing is lost; a second one does not wait."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from torch import Tensor

from support.manipulations import SMALL, discs
from support.training import assert_same, quick
from unbraid.manipulation import modify
from unbraid.manipulation.adversarial_training import AdversarialTraining
from unbraid.runs.folder import find_runs, read_tensors
from unbraid.runtime.signals import deferred_signals
from unbraid.training import loop as execute
from unbraid.training.stack import Stack


@pytest.fixture(autouse=True)
def _heard() -> Iterator[None]:
    """Shells start jobs in the background with Ctrl-C ignored: here it is heard, as in the foreground."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Press Ctrl-C in the middle of a step."""
    advance = Stack.advance

    def interrupted(self: Stack) -> None:
        if self.step == step:
            signal.raise_signal(signal.SIGINT)
        advance(self)

    monkeypatch.setattr(Stack, "advance", interrupted)


def test_a_checkpoint_is_written_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = quick(None, seeds=[0, 1])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt_at(patch, 6)
        quick(tmp_path, seeds=[0, 1])
    assert [run.checkpoint_step() for run in find_runs(tmp_path)] == [8, 8]
    for a, b in zip(whole, quick(tmp_path, seeds=[0, 1]), strict=True):
        assert_same(a, b)


def test_between_checkpoints_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint after every step does not end the waiting: the one after the step under way is written as well."""
    monkeypatch.setattr(execute, "CHECKPOINT_SHARE", 1e9)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt_at(patch, 6)
        quick(tmp_path, checkpoint_seconds=0)
    assert [run.checkpoint_step() for run in find_runs(tmp_path)] == [7]


@pytest.mark.parametrize(("step", "kept"), [(4, 5), (6, None)])  # in the middle of a record; in the last step
def test_a_manipulation_goes_on_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, kept: int | None
) -> None:
    settings = {**SMALL, "steps": 7, "checkpoint_every": 2}
    whole = modify(discs(), out=tmp_path / "whole.safetensors", **settings)
    out, take = tmp_path / "stopped.safetensors", AdversarialTraining.step

    def pressed(game: AdversarialTraining, at: int) -> Tensor:
        if at == step:
            signal.raise_signal(signal.SIGINT)
        return take(game, at)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(AdversarialTraining, "step", pressed)
        modify(discs(), out=out, **settings)
    checkpoint = out.with_suffix(".checkpoint")
    assert (out.exists(), checkpoint.exists()) == (kept is None, kept is not None)
    if kept:
        assert read_tensors(checkpoint)[1]["step"] == kept
    modify(discs(), out=out, **settings)
    assert out.read_bytes() == whole.read_bytes()


def test_in_the_last_step_the_run_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_at(monkeypatch, 11)
    with pytest.raises(KeyboardInterrupt):
        quick(tmp_path)
    assert [run.status for run in find_runs(tmp_path)] == ["done"]


def test_what_handled_signals_before_handles_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    interrupt_at(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        quick(None)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_second_one_is_not_put_off() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), deferred_signals() as signals:
        signal.raise_signal(signal.SIGINT)
        reached.append(signals.received)
        signal.raise_signal(signal.SIGINT)
        reached.append(None)
    assert reached == [signal.SIGINT]


def test_where_none_came_the_next_is_still_put_off() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), deferred_signals() as signals:
        signals.deliver()
        signal.raise_signal(signal.SIGINT)
        reached.append(signals.received)
    assert reached == [signal.SIGINT]


def test_one_that_came_beside_an_error_is_not_lost() -> None:
    with pytest.raises(KeyboardInterrupt), deferred_signals():
        signal.raise_signal(signal.SIGINT)
        raise ValueError


def test_ignored_ones_stay_ignored() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with deferred_signals() as signals:
            signal.raise_signal(signal.SIGTERM)
            assert signals.received is None
    finally:
        signal.signal(signal.SIGTERM, before)


def test_other_threads_train_as_well() -> None:
    with ThreadPoolExecutor(1) as pool:
        (run,) = pool.submit(quick, None).result()
    assert_same(run, quick(None)[0])


def test_terminated_then_the_same_command(tmp_path: Path) -> None:
    """A real process that a scheduler ends long before a checkpoint is due."""
    command = [sys.executable, "-m", "unbraid", "train", "beta_vae", "--data", "toy", "--steps", "2000"]
    subprocess.run([*command, "--out", str(tmp_path / "whole")], check=True, capture_output=True)
    cut = [*command, "--checkpoint-seconds", "1000", "--out", str(tmp_path / "cut")]
    process = subprocess.Popen(cut, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while "ETA" not in process.stderr.readline():  # it is under way
        assert process.poll() is None
    time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == -signal.SIGTERM
    (run,) = find_runs(tmp_path / "cut")
    assert 0 < run.checkpoint_step() < 2000
    subprocess.run(cut, check=True, capture_output=True)
    (whole,) = (tmp_path / "whole").glob("*/weights.safetensors")
    assert whole.read_bytes() == (run.path / "weights.safetensors").read_bytes()
