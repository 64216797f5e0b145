"""On Ctrl-C or SIGTERM, training completes the step, writes a checkpoint and ends. A second signal acts at once."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from torch import Tensor

from support.manipulations import SMALL, discs
from support.training import assert_same_run, quick_train
from unbraid.manipulation import modify
from unbraid.manipulation.adversarial_training import AdversarialTraining
from unbraid.runs.folder import find_runs
from unbraid.runs.tensor_files import read_tensors
from unbraid.runtime.signals import deferred_signals
from unbraid.training import loop
from unbraid.training.stack import Stack


def interrupt_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Make stacks raise SIGINT at the start of a step."""
    advance = Stack.advance

    def interrupted(self: Stack) -> None:
        if self.step == step:
            signal.raise_signal(signal.SIGINT)
        advance(self)

    monkeypatch.setattr(Stack, "advance", interrupted)


def test_a_checkpoint_is_written_before_training_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = quick_train(None, seeds=[0, 1])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt_at(patch, 6)
        quick_train(tmp_path, seeds=[0, 1])
    assert [run.checkpoint_step() for run in find_runs(tmp_path)] == [8, 8]
    for a, b in zip(whole, quick_train(tmp_path, seeds=[0, 1]), strict=True):
        assert_same_run(a, b)


def test_a_checkpoint_follows_the_signal_even_if_one_was_just_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a checkpoint after every step, a checkpoint is also written after the step that receives the signal."""
    monkeypatch.setattr(loop, "MAX_CHECKPOINT_FRACTION", 1e9)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt_at(patch, 6)
        quick_train(tmp_path, checkpoint_seconds=0)
    assert [run.checkpoint_step() for run in find_runs(tmp_path)] == [7]


@pytest.mark.parametrize(("step", "checkpoint_at"), [(4, 5), (6, None)])  # between log lines, and in the last step
def test_an_interrupted_manipulation_resumes_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, checkpoint_at: int | None
) -> None:
    settings = {**SMALL, "steps": 7, "checkpoint_every": 2}
    whole = modify(discs(), out=tmp_path / "whole.safetensors", **settings)
    out, real_step = tmp_path / "stopped.safetensors", AdversarialTraining.step

    def interrupted_step(training: AdversarialTraining, at: int) -> Tensor:
        if at == step:
            signal.raise_signal(signal.SIGINT)
        return real_step(training, at)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(AdversarialTraining, "step", interrupted_step)
        modify(discs(), out=out, **settings)
    checkpoint = out.with_suffix(".checkpoint")
    assert (out.exists(), checkpoint.exists()) == (checkpoint_at is None, checkpoint_at is not None)
    if checkpoint_at:
        assert read_tensors(checkpoint)[1]["step"] == checkpoint_at
    modify(discs(), out=out, **settings)
    assert out.read_bytes() == whole.read_bytes()


def test_a_signal_in_the_last_step_lets_the_run_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_at(monkeypatch, 11)
    with pytest.raises(KeyboardInterrupt):
        quick_train(tmp_path)
    assert [run.status for run in find_runs(tmp_path)] == ["done"]


def test_previous_handlers_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    interrupt_at(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        quick_train(None)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_second_signal_is_not_deferred() -> None:
    received = []
    with pytest.raises(KeyboardInterrupt), deferred_signals() as signals:
        signal.raise_signal(signal.SIGINT)
        received.append(signals.received)
        signal.raise_signal(signal.SIGINT)
        received.append(None)
    assert received == [signal.SIGINT]


def test_deliver_without_a_signal_keeps_deferring() -> None:
    received = []
    with pytest.raises(KeyboardInterrupt), deferred_signals() as signals:
        signals.deliver()
        signal.raise_signal(signal.SIGINT)
        received.append(signals.received)
    assert received == [signal.SIGINT]


def test_a_signal_before_an_error_is_not_lost() -> None:
    with pytest.raises(KeyboardInterrupt), deferred_signals():
        signal.raise_signal(signal.SIGINT)
        raise ValueError


def test_ignored_signals_stay_ignored() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with deferred_signals() as signals:
            signal.raise_signal(signal.SIGTERM)
            assert signals.received is None
    finally:
        signal.signal(signal.SIGTERM, before)


def test_training_works_in_other_threads() -> None:
    with ThreadPoolExecutor(1) as pool:
        (run,) = pool.submit(quick_train, None).result()
    assert_same_run(run, quick_train(None)[0])


def test_a_terminated_command_resumes(tmp_path: Path) -> None:
    """A process that receives SIGTERM long before a checkpoint is due writes one, and the command can be repeated."""
    command = [sys.executable, "-m", "unbraid", "train", "beta_vae", "--data", "toy", "--steps", "2000"]
    subprocess.run([*command, "--out", str(tmp_path / "whole")], check=True, capture_output=True)
    cut = [*command, "--checkpoint-seconds", "1000", "--out", str(tmp_path / "cut")]
    process = subprocess.Popen(cut, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while "ETA" not in process.stderr.readline():  # training has begun
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
