"""Tests of the optimiser, of resuming, of divergence and of the folders of runs."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import unbraid as ub
from support.training import Killed, assert_same_run, kill_at, quick_train, weights
from unbraid.accel.adam import adam_step, fused_adam_step
from unbraid.data import loading
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods import METHODS, VAE, Adam, BetaVAE
from unbraid.runs.folder import find_runs
from unbraid.runs.spec import RunSpec
from unbraid.runtime.locks import lock
from unbraid.training import loop
from unbraid.training.stack import Stack
from unbraid.training.train import train_specs


@pytest.mark.parametrize("step", [adam_step, fused_adam_step])
@given(seed=st.integers(0, 1000), beta1=st.sampled_from([0.5, 0.9]), beta2=st.sampled_from([0.9, 0.999]))
def test_adam_equals_torch(step: Callable[..., None], seed: int, beta1: float, beta2: float) -> None:
    """Three runs with different learning rates are updated like three separate optimisers of PyTorch."""
    g = torch.Generator().manual_seed(seed)
    rows = torch.randn(3, 5, generator=g, dtype=torch.float64)
    rates = [1e-3, 1e-2, 0.0]
    ours = [rows.clone(), torch.zeros_like(rows), torch.zeros_like(rows)]
    theirs = [row.clone().requires_grad_() for row in rows]
    optimisers = [torch.optim.Adam([p], lr=r, betas=(beta1, beta2)) for p, r in zip(theirs, rates, strict=True)]
    for t in range(1, 6):
        grad = torch.randn(3, 5, generator=g, dtype=torch.float64)
        step(ours[0], grad.clone(), ours[1], ours[2], torch.tensor(rates).double()[:, None], t, Adam(0.0, beta1, beta2))
        for p, gi, optimiser in zip(theirs, grad, optimisers, strict=True):
            p.grad = gi
            optimiser.step()
    torch.testing.assert_close(ours[0], torch.stack([p.detach() for p in theirs]))


@pytest.mark.parametrize("name", METHODS)
def test_resume_equals_uninterrupted(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, smallest_data: FactorData
) -> None:
    """Runs that are killed between two log lines and resumed have the same files as uninterrupted runs, bit for bit."""
    monkeypatch.setattr(loop, "MAX_LOG_LINES", 4)
    whole = quick_train(tmp_path / "whole", METHODS[name](), seeds=[0, 1], data=smallest_data, net="mlp")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, 7)
        quick_train(
            tmp_path / "cut", METHODS[name](), seeds=[0, 1], data=smallest_data, net="mlp", checkpoint_seconds=0
        )
    assert {run.status for run in find_runs(tmp_path / "cut")} == {"partial"}
    for a, b in zip(
        whole, quick_train(tmp_path / "cut", METHODS[name](), seeds=[0, 1], data=smallest_data, net="mlp"), strict=True
    ):
        assert_same_run(a, b)
        assert a.path is not None
        assert b.path is not None
        assert (a.path / "weights.safetensors").read_bytes() == (b.path / "weights.safetensors").read_bytes()
        assert (a.path / "log.jsonl").read_bytes() == (b.path / "log.jsonl").read_bytes()
        assert sorted(f.name for f in b.path.iterdir()) == ["log.jsonl", "run.json", "weights.safetensors"]


def test_runs_of_a_stack_resume_from_different_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a process is killed between two checkpoint files, runs are at different steps. Each resumes from its step."""
    whole = quick_train(None, seeds=[0, 1])
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, 7)
        quick_train(tmp_path, seeds=[0, 1], checkpoint_seconds=0)
    (tmp_path / whole[1].id / "checkpoint.safetensors").unlink()
    for a, b in zip(whole, quick_train(tmp_path, seeds=[0, 1]), strict=True):
        assert_same_run(a, b)


def test_trained_runs_are_loaded_and_never_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (first,) = quick_train(tmp_path)
    assert first.path is not None
    before = {f: (f.stat().st_mtime_ns, f.read_bytes()) for f in first.path.iterdir()}
    kill_at(monkeypatch, 0)
    (again,) = quick_train(tmp_path)
    assert_same_run(first, again)
    assert before == {f: (f.stat().st_mtime_ns, f.read_bytes()) for f in first.path.iterdir()}


def test_more_seeds_can_be_added_later(tmp_path: Path) -> None:
    quick_train(tmp_path, seeds=[0])
    runs = quick_train(tmp_path, seeds=[0, 1])
    assert sorted(run.path.name for run in find_runs(tmp_path)) == sorted(run.id for run in runs)


def test_other_runs_in_the_folder_are_an_error_without_add(tmp_path: Path) -> None:
    quick_train(tmp_path, BetaVAE(beta=2.0))
    with pytest.raises(UserError, match=r"holds 1 other run.*--add"):
        quick_train(tmp_path, BetaVAE(beta=3.0))
    assert len(find_runs(tmp_path)) == 1
    quick_train(tmp_path, BetaVAE(beta=3.0), add=True)
    assert len(find_runs(tmp_path)) == 2


def test_only_one_process_can_train_in_a_folder(tmp_path: Path) -> None:
    with lock(tmp_path / ".lock"), pytest.raises(UserError, match="Another process is training"):
        quick_train(tmp_path)


def test_loaded_runs_equal_the_trained_runs(tmp_path: Path, toy: FactorData) -> None:
    trained = quick_train(tmp_path, [BetaVAE(beta=b) for b in (16.0, 2.0)], seeds=[1, 0])
    loaded = ub.load_runs(tmp_path)
    assert [run.label for run in loaded] == [
        f"beta_vae beta={b} seed={s}" for b in (2, 16) for s in (0, 1)
    ]  # sorted as numbers, not as text
    by_id = {run.id: run for run in loaded}
    x = toy.images(slice(0, 20))
    for run in trained:
        assert torch.equal(run.encode(x), by_id[run.id].encode(x))
        assert torch.equal(run.decode(run.encode(x)), by_id[run.id].decode(run.encode(x)))


def test_methods_seeds_and_learning_rates_can_be_iterators() -> None:
    methods = (BetaVAE(beta=b) for b in (1.0, 2.0))
    runs = quick_train(None, methods, seeds=iter([0, 1]), learning_rate=iter([1e-3, 1e-4]), steps=0)
    assert len({run.id for run in runs}) == 8


def test_data_is_loaded_once_for_many_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick_train(tmp_path, seeds=range(3), steps=0)
    loads = []
    real = ub.data.load
    for module in (ub.data, loading):
        monkeypatch.setattr(module, "load", lambda *a, **k: (loads.append(a), real(*a, **k))[1])
    ub.score(ub.load_runs(tmp_path), ["mig"], quiet=True)
    assert len(loads) == 2  # once to build the networks, once to encode


def test_stored_scores_belong_to_their_data(tmp_path: Path, toy: FactorData) -> None:
    """If a run is scored again on other data of the same shape, both scores are stored."""
    import copy

    (run,) = quick_train(tmp_path)
    other = copy.copy(toy)
    other.name, other.table = "reversed toy", toy.table.flip(0) ** 2
    own, on_other = (ub.score(run, ["mig"], data=d, codes=["mean"], quiet=True)[0] for d in (toy, other))
    assert own["mig.discrete_mig"] != on_other["mig.discrete_mig"]
    assert ub.score(run, ["mig"], codes=["mean"], quiet=True)[0]["mig.discrete_mig"] == own["mig.discrete_mig"]


def test_zero_steps_gives_the_initial_weights(toy: FactorData) -> None:
    (run,) = quick_train(steps=0)
    from unbraid.nets.registry import resolve_net
    from unbraid.runs.network import build_net

    fresh = build_net(run.spec, toy.shape, resolve_net("mlp")[1]).state_dict()
    assert all(torch.equal(fresh[name], value) for name, value in weights(run).items())
    assert run.log == []


def test_log_lines_are_means_over_their_steps(toy: FactorData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MAX_LOG_LINES", 4)
    (run,) = quick_train()
    assert [line["step"] for line in run.log] == [3, 6, 9, 12]
    monkeypatch.setattr(loop, "MAX_LOG_LINES", 12)
    (fine,) = quick_train()
    for i, line in enumerate(run.log):
        parts = fine.log[3 * i : 3 * i + 3]
        assert line["loss"] == pytest.approx(sum(p["loss"] for p in parts) / 3, rel=1e-5)


def test_divergence_is_stored_and_reported(tmp_path: Path) -> None:
    """When one of two runs diverges, its step and term are recorded, and the other run equals the same run alone."""
    runs = quick_train(tmp_path, learning_rate=[1e-3, 1e18], steps=40)
    finite, diverged = runs
    assert finite.divergence is None
    assert diverged.divergence is not None
    assert diverged.divergence["term"] in {"loss", "rec", "kl", "gradient"}
    assert 1 <= diverged.divergence["step"] < 40
    (alone,) = quick_train(None, steps=40)
    assert_same_run(finite, alone)
    assert all(value.isfinite().all() for value in weights(diverged).values())
    again = quick_train(tmp_path, learning_rate=[1e-3, 1e18], steps=40)
    assert again[1].divergence == diverged.divergence
    with pytest.raises(UserError, match="diverged at step"):
        ub.score(diverged, quiet=True)


def test_training_ends_when_all_runs_have_diverged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MAX_LOG_LINES", 10_000)
    steps_taken = []
    advance = Stack.advance
    monkeypatch.setattr(Stack, "advance", lambda self: (steps_taken.append(1), advance(self)))
    (run,) = quick_train(learning_rate=1e18, steps=5000)
    assert run.divergence is not None
    assert len(steps_taken) < 100


def test_a_custom_net_must_be_passed_again_to_load_its_run(tmp_path: Path, toy: FactorData) -> None:
    pair = (torch.nn.Linear(16, 6), torch.nn.Linear(3, 16))
    (run,) = quick_train(tmp_path, net=pair)
    with pytest.raises(ValueError, match="Pass the pair again"):
        ub.load_runs(tmp_path)
    (again,) = ub.load_runs(tmp_path, net=pair)
    assert_same_run(run, again)


COMMAND = [sys.executable, "-m", "unbraid", "train", "beta_vae", "--data", "toy", "--steps", "800", "--seeds", "0-1"]
COMMAND += ["--learning-rate", "1e-3", "--checkpoint-seconds", "0.05", "--quiet"]


def test_a_killed_command_resumes(tmp_path: Path) -> None:
    """A process that is killed twice while it trains writes the same files as an uninterrupted one, bit for bit."""
    subprocess.run([*COMMAND, "--out", str(tmp_path / "whole")], check=True, capture_output=True)
    cut = [*COMMAND, "--out", str(tmp_path / "cut")]
    for _ in range(2):
        process = subprocess.Popen(cut, stdout=subprocess.DEVNULL)
        started, before = (
            time.monotonic(),
            {f: f.stat().st_mtime_ns for f in tmp_path.glob("cut/*/checkpoint.safetensors")},
        )
        while time.monotonic() - started < 60 and process.poll() is None:
            files = {f: f.stat().st_mtime_ns for f in tmp_path.glob("cut/*/checkpoint.safetensors")}
            if files and files != before:
                break
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        for run in find_runs(tmp_path / "cut"):
            assert run.status in ("new", "partial")
    subprocess.run(cut, check=True, capture_output=True)
    whole = sorted((tmp_path / "whole").glob("*/*.*"))
    assert len(whole) == 6
    for file in whole:
        if file.name != "run.json":
            assert file.read_bytes() == (tmp_path / "cut" / file.parent.name / file.name).read_bytes()


def test_train_specs_keeps_order_and_duplicates(toy: FactorData) -> None:
    from unbraid.nets.mlp import mlp

    a, b = (RunSpec(VAE(), "toy", s, 2, 8, 1e-3, 3, "mlp", "gaussian") for s in (0, 1))
    runs = train_specs([b, a, b], toy, mlp, quiet=True)
    assert [run.spec for run in runs] == [b, a, b]
