"""Training: the optimiser, resuming, divergence, and folders that are never half a run."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import unbraid as ub
from support.training import Killed, assert_same, die_at, quick, weights
from unbraid.accel.adam import adam_step
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods import METHODS, VAE, Adam, BetaVAE
from unbraid.runs.folder import find_runs
from unbraid.runs.spec import RunSpec
from unbraid.runtime import files
from unbraid.training import loop as execute
from unbraid.training.schedule import RunInTraining, convoys, together
from unbraid.training.stack import Stack
from unbraid.training.train import Choice, train_specs


@given(seed=st.integers(0, 1000), beta1=st.sampled_from([0.5, 0.9]), beta2=st.sampled_from([0.9, 0.999]))
def test_adam_equals_torchs(seed: int, beta1: float, beta2: float) -> None:
    """Three runs with their own step sizes, as three optimisers of PyTorch's."""
    g = torch.Generator().manual_seed(seed)
    rows = torch.randn(3, 5, generator=g, dtype=torch.float64)
    rates = [1e-3, 1e-2, 0.0]
    mine = [rows.clone(), torch.zeros_like(rows), torch.zeros_like(rows)]
    theirs = [row.clone().requires_grad_() for row in rows]
    optimisers = [torch.optim.Adam([p], lr=r, betas=(beta1, beta2)) for p, r in zip(theirs, rates, strict=True)]
    for t in range(1, 6):
        grad = torch.randn(3, 5, generator=g, dtype=torch.float64)
        adam_step(
            mine[0], grad.clone(), mine[1], mine[2], torch.tensor(rates).double()[:, None], t, Adam(0.0, beta1, beta2)
        )
        for p, gi, optimiser in zip(theirs, grad, optimisers, strict=True):
            p.grad = gi
            optimiser.step()
    torch.testing.assert_close(mine[0], torch.stack([p.detach() for p in theirs]))


@pytest.mark.parametrize("name", METHODS)
def test_resume_equals_uninterrupted(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ground: FactorData
) -> None:
    """Die between log lines, with a checkpoint at every step: weights, log and moments end bit for bit the same."""
    monkeypatch.setattr(execute, "LOG_LINES", 4)
    whole = quick(tmp_path / "whole", METHODS[name](), seeds=[0, 1], data=ground, net="mlp")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        die_at(patch, 7)
        quick(tmp_path / "cut", METHODS[name](), seeds=[0, 1], data=ground, net="mlp", checkpoint_seconds=0)
    assert {run.status for run in find_runs(tmp_path / "cut")} == {"partial"}
    for a, b in zip(whole, quick(tmp_path / "cut", METHODS[name](), seeds=[0, 1], data=ground, net="mlp"), strict=True):
        assert_same(a, b)
        assert a.path is not None
        assert b.path is not None
        assert (a.path / "weights.safetensors").read_bytes() == (b.path / "weights.safetensors").read_bytes()
        assert (a.path / "log.jsonl").read_bytes() == (b.path / "log.jsonl").read_bytes()
        assert sorted(f.name for f in b.path.iterdir()) == ["log.jsonl", "run.json", "weights.safetensors"]


def test_members_at_different_steps_go_on_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between two checkpoint files leaves runs at different steps; each goes on from its own."""
    whole = quick(None, seeds=[0, 1])
    with monkeypatch.context() as patch, pytest.raises(Killed):
        die_at(patch, 7)
        quick(tmp_path, seeds=[0, 1], checkpoint_seconds=0)
    (tmp_path / whole[1].id / "checkpoint.safetensors").unlink()
    for a, b in zip(whole, quick(tmp_path, seeds=[0, 1]), strict=True):
        assert_same(a, b)


def test_started_again_reports_and_never_overwrites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (first,) = quick(tmp_path)
    assert first.path is not None
    before = {f: (f.stat().st_mtime_ns, f.read_bytes()) for f in first.path.iterdir()}
    die_at(monkeypatch, 0)
    (again,) = quick(tmp_path)
    assert_same(first, again)
    assert before == {f: (f.stat().st_mtime_ns, f.read_bytes()) for f in first.path.iterdir()}


def test_a_sweep_may_grow(tmp_path: Path) -> None:
    quick(tmp_path, seeds=[0])
    runs = quick(tmp_path, seeds=[0, 1])
    assert sorted(run.path.name for run in find_runs(tmp_path)) == sorted(run.id for run in runs)


def test_other_runs_are_refused_unless_added(tmp_path: Path) -> None:
    quick(tmp_path, BetaVAE(beta=2.0))
    with pytest.raises(UserError, match=r"holds 1 other run.*--add"):
        quick(tmp_path, BetaVAE(beta=3.0))
    assert len(find_runs(tmp_path)) == 1
    quick(tmp_path, BetaVAE(beta=3.0), add=True)
    assert len(find_runs(tmp_path)) == 2


def test_a_folder_is_held_by_one_process(tmp_path: Path) -> None:
    with files.locked(tmp_path), pytest.raises(UserError, match="Another process is training"):
        quick(tmp_path)


def test_loaded_runs_are_the_trained_ones(tmp_path: Path, toy: FactorData) -> None:
    trained = quick(tmp_path, [BetaVAE(beta=b) for b in (16.0, 2.0)], seeds=[1, 0])
    loaded = ub.load_runs(tmp_path)
    assert [run.label for run in loaded] == [
        f"beta_vae beta={b} seed={s}" for b in (2, 16) for s in (0, 1)
    ]  # as numbers, not as text
    by_id = {run.id: run for run in loaded}
    x = toy.images(slice(0, 20))
    for run in trained:
        assert torch.equal(run.encode(x), by_id[run.id].encode(x))
        assert torch.equal(run.decode(run.encode(x)), by_id[run.id].decode(run.encode(x)))


def test_iterators_of_seeds_and_rates_serve_every_method() -> None:
    methods = (BetaVAE(beta=b) for b in (1.0, 2.0))
    runs = quick(None, methods, seeds=iter([0, 1]), learning_rate=iter([1e-3, 1e-4]), steps=0)
    assert len({run.id for run in runs}) == 8


def test_data_is_loaded_once_for_many_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(tmp_path, seeds=range(3), steps=0)
    loads = []
    real = ub.data.load
    monkeypatch.setattr(ub.data, "load", lambda *a, **k: (loads.append(a), real(*a, **k))[1])
    ub.score(ub.load_runs(tmp_path), ["mig"], quiet=True)
    assert len(loads) == 2  # once to build the networks, once to encode


def test_kept_scores_belong_to_their_data(tmp_path: Path, toy: FactorData) -> None:
    """The same run scored on other data of the same shape is scored anew, and both are kept."""
    import copy

    (run,) = quick(tmp_path)
    other = copy.copy(toy)
    other.name, other.table = "reversed toy", toy.table.flip(0) ** 2
    own, foreign = (ub.score(run, ["mig"], data=d, codes=["mean"], quiet=True)[0] for d in (toy, other))
    assert own["mig.discrete_mig"] != foreign["mig.discrete_mig"]
    assert ub.score(run, ["mig"], codes=["mean"], quiet=True)[0]["mig.discrete_mig"] == own["mig.discrete_mig"]


def test_zero_steps_is_the_initialisation(toy: FactorData) -> None:
    (run,) = quick(steps=0)
    from unbraid.nets.registry import name_net
    from unbraid.runs.network import build_net

    fresh = build_net(run.spec, toy.shape, name_net("mlp")[1]).state_dict()
    assert all(torch.equal(fresh[name], value) for name, value in weights(run).items())
    assert run.log == []


def test_log_lines_are_means_over_their_steps(toy: FactorData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "LOG_LINES", 4)
    (run,) = quick()
    assert [line["step"] for line in run.log] == [3, 6, 9, 12]
    monkeypatch.setattr(execute, "LOG_LINES", 12)
    (fine,) = quick()
    for i, line in enumerate(run.log):
        parts = fine.log[3 * i : 3 * i + 3]
        assert line["loss"] == pytest.approx(sum(p["loss"] for p in parts) / 3, rel=1e-5)


def test_divergence_is_kept_and_reported(tmp_path: Path) -> None:
    """A step size that explodes one run of two: it is named with step and term, its neighbour is as if alone."""
    runs = quick(tmp_path, learning_rate=[1e-3, 1e18], steps=40)
    well, sick = runs
    assert well.divergence is None
    assert sick.divergence is not None
    assert sick.divergence["term"] in {"loss", "rec", "kl", "gradient"}
    assert 1 <= sick.divergence["step"] < 40
    (alone,) = quick(None, steps=40)
    assert_same(well, alone)
    assert all(value.isfinite().all() for value in weights(sick).values())
    again = quick(tmp_path, learning_rate=[1e-3, 1e18], steps=40)
    assert again[1].divergence == sick.divergence
    with pytest.raises(UserError, match="diverged at step"):
        ub.score(sick, quiet=True)


def test_all_diverged_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "LOG_LINES", 10_000)
    taken = []
    advance = Stack.advance
    monkeypatch.setattr(Stack, "advance", lambda self: (taken.append(1), advance(self)))
    (run,) = quick(learning_rate=1e18, steps=5000)
    assert run.divergence is not None
    assert len(taken) < 100


def test_stacks_hold_only_what_fits_together(toy: FactorData) -> None:
    from unbraid.nets.mlp import mlp

    def spec(method: Any, **settings: Any) -> RunSpec:
        return RunSpec(method, "toy", net="mlp", likelihood="gaussian", **{"latents": 3, **settings})

    specs = [spec(BetaVAE(beta=b), seed=s, learning_rate=r) for b in (1, 2) for s in (0, 1) for r in (1e-3, 1e-4)]
    specs += [spec(VAE()), spec(BetaVAE(), latents=4), spec(BetaVAE(), batch=32)]
    found = [[len(v.stack) for v in c.voyages] for c in convoys([RunInTraining(s, None) for s in specs], toy, mlp)]
    assert sorted(size for sizes in found for size in sizes) == [1, 1, 1, 8]


def test_runs_of_different_methods_advance_side_by_side(toy: FactorData, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two cores, two stacks of one run are one convoy, and end where each ends alone on one core."""
    methods = [BetaVAE(beta=0.5), VAE()]
    alone = [quick(None, m)[0] for m in methods]
    convoy_sizes = []
    real = execute.train_convoy
    monkeypatch.setattr(execute, "train_convoy", lambda c, w: (convoy_sizes.append(len(c.voyages)), real(c, w)))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    together = quick(None, methods)
    assert convoy_sizes == [2]
    for a, b in zip(alone, together, strict=True):
        assert a.log[-1]["loss"] == pytest.approx(b.log[-1]["loss"], rel=1e-3)


def test_small_stacks_are_grouped_for_a_gpu() -> None:
    groups = [[4, 6], [1], [12], [3, 3, 3], [3]]
    assert list(together([size for group in groups for size in group], int, 10)) == groups
    assert list(together([4, 6], int, 0)) == [[4], [6]]
    assert list(together([], int, 10)) == []


def test_stacks_without_memory_for_all_go_on_one_after_the_other(
    toy: FactorData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third step of the second stack fails, after that of the first; both end where they would have."""
    choice = Choice.of(toy)
    specs = [
        choice.spec(m, seed=0, steps=8, latents=3, batch=8, learning_rate=1e-3) for m in (BetaVAE(beta=0.5), VAE())
    ]
    wanted = [train_specs([spec], toy, choice.builder, quiet=True)[0] for spec in specs]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    (together,) = convoys([RunInTraining(spec, None) for spec in specs], toy, choice.builder)
    together.lanes = 1  # in turn, as a GPU's lanes are launched
    real, sizes, taken = Stack.advance, [], []

    def advance(stack: Stack) -> None:
        taken.append(stack.step)
        if len(taken) == 6:
            raise torch.cuda.OutOfMemoryError("planted")
        real(stack)

    train = execute.train_convoy
    monkeypatch.setattr(Stack, "advance", advance)
    monkeypatch.setattr(execute, "train_convoy", lambda c, w: (sizes.append(len(c.voyages)), train(c, w)))
    ended = {run.id: run for run in execute.train_group(together, execute.Watch([], None, 60.0), toy, choice.builder)}
    assert sizes == [2, 1, 1]
    assert taken == [0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 7, 2, 3, 4, 5, 6, 7]
    for run in wanted:
        assert_same(run, ended[run.id])


def test_custom_net_reloads_when_passed_again(tmp_path: Path, toy: FactorData) -> None:
    pair = (torch.nn.Linear(16, 6), torch.nn.Linear(3, 16))
    (run,) = quick(tmp_path, net=pair)
    with pytest.raises(ValueError, match="Pass the pair again"):
        ub.load_runs(tmp_path)
    (again,) = ub.load_runs(tmp_path, net=pair)
    assert_same(run, again)


COMMAND = [sys.executable, "-m", "unbraid", "train", "beta_vae", "--data", "toy", "--steps", "800", "--seeds", "0-1"]
COMMAND += ["--learning-rate", "1e-3", "--checkpoint-seconds", "0.05", "--quiet"]


def test_kill_9_then_the_same_command(tmp_path: Path) -> None:
    """A real process, really killed in the middle, twice: final weights bit-identical to an uninterrupted run."""
    subprocess.run([*COMMAND, "--out", str(tmp_path / "whole")], check=True, capture_output=True)
    cut = [*COMMAND, "--out", str(tmp_path / "cut")]
    for _ in range(2):
        process = subprocess.Popen(cut, stdout=subprocess.DEVNULL)
        begun, seen = time.monotonic(), {f: f.stat().st_mtime_ns for f in tmp_path.glob("cut/*/checkpoint.safetensors")}
        while time.monotonic() - begun < 60 and process.poll() is None:
            files_now = {f: f.stat().st_mtime_ns for f in tmp_path.glob("cut/*/checkpoint.safetensors")}
            if files_now and files_now != seen:
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
    from unbraid.runs.spec import RunSpec

    a, b = (RunSpec(VAE(), "toy", s, 2, 8, 1e-3, 3, "mlp", "gaussian") for s in (0, 1))
    runs = train_specs([b, a, b], toy, mlp, quiet=True)
    assert [run.spec for run in runs] == [b, a, b]
