"""Chains of parts that run in the background, with short commands in place of trainings."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import unbraid as ub

SCRIPT = Path(__file__).parents[2] / "evidence" / "session.py"
TRAINS = "print('12 model-steps/s', flush=True); import time; time.sleep({seconds}); raise SystemExit({status})"


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, with its files in a temporary folder."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    spec = importlib.util.spec_from_file_location("evidence_session", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "evidence_session", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "FOLDER", tmp_path / "session")
    monkeypatch.setattr(module, "POLL_SECONDS", 0.05)
    return module


def start(session: ModuleType, index: int = 0, seconds: float = 0.0, status: int = 0, code: str = TRAINS) -> Any:
    command = [sys.executable, "-c", code.format(seconds=seconds, status=status)]
    return session.start_chain(["a", "b"], index, command)


def test_chains_that_train_are_waited_for(session: ModuleType) -> None:
    chains = [start(session, i, seconds=0.3 * i) for i in range(2)]
    assert session.wait_for_first_steps(chains, 60)
    assert session.wait(chains, 60)
    assert [chain.status for chain in chains] == [0, 0]
    assert chains[0].describe().splitlines() == ["a b: has finished", "    12 model-steps/s"]


def test_a_chain_that_fails_ends_the_wait(session: ModuleType) -> None:
    chains = [start(session, 0, seconds=60), start(session, 1, status=3)]
    started = time.monotonic()
    assert not session.wait(chains, 60)
    assert time.monotonic() - started < 50
    assert "has failed with status 3" in chains[1].describe()
    assert chains[0].status is None
    session.stop(chains)
    assert not session.wait(chains[:1], 60)
    assert chains[0].status == -1


def test_a_chain_must_train_its_first_steps_in_time(session: ModuleType) -> None:
    silent = start(session, code="import time; time.sleep(60)")
    assert not session.wait_for_first_steps([silent], 0.3)
    session.stop([silent])


def test_a_chain_that_fails_does_not_end_the_wait_for_first_steps(session: ModuleType) -> None:
    chains = [start(session, 0, status=3, code="raise SystemExit(3)"), start(session, 1, seconds=60)]
    assert not session.wait_for_first_steps(chains, 60)
    assert chains[0].status == 3
    assert chains[1].trains
    session.stop(chains)


def test_a_chain_that_fails_after_its_first_steps_is_a_failure(session: ModuleType) -> None:
    chain = start(session, status=3)
    session.wait([chain], 60)
    assert chain.trains
    assert not session.wait_for_first_steps([chain], 60)


def test_the_wait_ends_after_its_time(session: ModuleType) -> None:
    chain = start(session, seconds=60)
    assert session.wait([chain], 0.2)
    assert chain.status is None
    session.stop([chain])


def test_a_chain_survives_the_process_that_starts_it(session: ModuleType, tmp_path: Path) -> None:
    """The starter is killed with its whole process group, as by a machine that runs one command after another."""
    code = f"""
import os, signal, sys
sys.path.insert(0, {str(SCRIPT.parent)!r})
import session
from pathlib import Path
session.FOLDER = Path({str(tmp_path / "other")!r})
chain = session.start_chain(["a"], 0, [sys.executable, "-c", {TRAINS.format(seconds=1, status=0)!r}])
print(chain.pid, flush=True)
os.killpg(0, signal.SIGKILL)
"""
    starter = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False, start_new_session=True
    )
    assert starter.returncode < 0
    chain = session.Chain(("a",), int(starter.stdout), str(tmp_path / "other" / "chain0.log"))
    assert session.wait([chain], 60)
    assert chain.status == 0


def test_a_part_that_fails_does_not_end_its_chain(
    session: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import parts

    done: list[str] = []

    def run_part(part: str) -> None:
        if part == "bad":
            raise ValueError("no GPU")
        done.append(part)

    monkeypatch.setattr(parts, "read_plan", dict)
    monkeypatch.setattr(parts, "find_part", lambda name, plan: name)
    monkeypatch.setattr(parts, "run_part", run_part)
    assert session.run(["bad", "good"]) == 1
    assert done == ["good"]
    printed = capsys.readouterr().out
    assert "bad has failed:" in printed
    assert "ValueError: no GPU" in printed
    assert session.run(["good"]) == 0


def test_chains_start_beside_others_and_only_silent_ones_are_ended(
    session: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import parts

    monkeypatch.setattr(parts, "find_part", lambda name, plan: name)
    monkeypatch.setattr(session, "share_gpu", lambda: None)
    earlier = start(session, seconds=60)
    session.write_chains([earlier])
    codes = iter(["import time; time.sleep(60)", TRAINS.format(seconds=60, status=0)])
    begin = session.start_chain
    monkeypatch.setattr(session, "start_chain", lambda parts, i: begin(parts, i, [sys.executable, "-c", next(codes)]))
    monkeypatch.setattr(session.wait_for_first_steps, "__defaults__", (2.0,))
    assert session.start([["silent"], ["good"]]) == 1
    chains = session.read_chains()
    assert chains[0] == earlier
    assert [chain.parts for chain in chains[1:]] == [("silent",), ("good",)]
    assert not session.wait(chains[1:2], 60)
    assert [chain.status for chain in chains] == [None, -1, None]
    assert "silent has not begun to train, so it was ended." in capsys.readouterr().out
    session.stop(chains)


def test_output_that_is_not_text_can_be_read(session: ModuleType) -> None:
    chain = start(session, code="import os; os.write(1, bytes([226, 150])); print('1 model-steps/s', flush=True)")
    assert session.wait_for_first_steps([chain], 60)


def test_results_are_copied_with_the_models_that_are_chosen(
    session: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table, runs = tmp_path / "results.csv", tmp_path / "runs"
    table.write_text("run\n")
    monkeypatch.setattr(session, "RESULTS", table)
    monkeypatch.setattr(session, "RUNS", runs)
    session.copy_results(tmp_path / "first")
    assert [file.name for file in (tmp_path / "first").iterdir()] == ["results.csv"]
    assert "no models" in capsys.readouterr().out
    settings: dict[str, Any] = {"steps": 2, "batch": 2, "latents": 2, "device": "cpu", "quiet": True}
    ub.train("beta_vae", "toy", seeds=range(3), out=runs / "part", **settings)
    ub.score(runs, "mig", quiet=True)
    for _ in range(2):
        session.copy_results(tmp_path / "second")
    with tarfile.open(tmp_path / "second" / "models.tar.gz") as archive:
        names = {name.rpartition("/")[0] for name in archive.getnames() if name.endswith("weights.safetensors")}
    assert names == {"toy/beta_vae/median", "toy/beta_vae/best"}


def test_finished_runs_of_a_part_that_still_runs_are_copied(
    session: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import parts

    selection = {"method": ["beta_vae"], "level": ["0"], "data": ["toy"]}
    part = parts.Part("small", "test", "small", selection, ["mig"], seeds=[0, 1], steps=2)
    monkeypatch.setattr(parts, "PRECISION", "fp32")
    monkeypatch.setattr(parts, "read_plan", lambda: {"small": part, "later": part})
    monkeypatch.setattr(session, "RESULTS", tmp_path / "results.csv")
    monkeypatch.setattr(session, "RUNS", tmp_path / "runs")
    out = tmp_path / "runs" / "small"
    ub.study("small", out, only=selection, seeds=[0], steps=2, metrics=["mig"], samples=50, quiet=True)
    session.copy_results(tmp_path / "copy", ["small", "later"])
    lines = (tmp_path / "copy" / "results.csv").read_text().splitlines()
    assert len(lines) == 2
    assert part.run_ids[0] in lines[1]


def test_unknown_parts_are_an_error_before_anything_starts(session: ModuleType) -> None:
    from unbraid.errors import UserError

    with pytest.raises(UserError, match="no-such-part"):
        session.start([["no-such-part"]])
    assert not session.FOLDER.exists()
