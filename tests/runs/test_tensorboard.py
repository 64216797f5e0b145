"""Event files for TensorBoard: they contain the log and the settings, and do not affect training."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

import unbraid as ub
from support.training import Killed, assert_same_run, kill_at, quick_train
from unbraid.cli.dispatch import main
from unbraid.errors import UserError
from unbraid.methods import BetaVAE
from unbraid.runs import tensorboard as tensorboard_log
from unbraid.runs.folder import RunFolder
from unbraid.runs.tensorboard import FILE, FOLDER, write_tensorboard
from unbraid.training import loop


def read_events(folder: Path) -> EventAccumulator:
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return events


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = read_events(folder)
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def hyperparameters(folder: Path) -> dict[str, Any]:
    content = read_events(folder).summary_metadata["_hparams_/session_start_info"].plugin_data.content
    found = HParamsPluginData.FromString(content).session_start_info.hparams
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in found.items()}


def scalars_of_log(log: list[dict[str, float]]) -> dict[str, Any]:
    terms = [name for name in log[0] if name != "step"]
    return {f"train/{t}": [(line["step"], pytest.approx(line[t])) for line in log] for t in terms}


def test_events_contain_the_log_and_the_settings(tmp_path: Path) -> None:
    plain = quick_train(method=BetaVAE(beta=3.0), seeds=[0, 1])
    runs = quick_train(tmp_path, BetaVAE(beta=3.0), seeds=[0, 1], log="tensorboard")
    for run, other in zip(runs, plain, strict=True):
        assert_same_run(run, other)
        assert run.path is not None
        found = scalars(run.path / FOLDER)
        assert {"train/loss", "train/rec", "train/kl"} <= set(found)
        assert found == scalars_of_log(run.log)
        settings = hyperparameters(run.path / FOLDER)
        assert settings["beta"] == 3.0
        assert settings["seed"] == run.spec.seed
        assert (settings["method"], settings["data"]) == ("beta_vae", "toy")


def test_events_of_a_stored_log_are_the_same_bytes(tmp_path: Path) -> None:
    (run,) = quick_train(tmp_path / "a", log="tensorboard")
    (other,) = quick_train(tmp_path / "b")
    assert run.path is not None
    assert other.path is not None
    live = (run.path / FOLDER / FILE).read_bytes()
    (run.path / FOLDER / FILE).unlink()
    for given in (run, run.path, str(run.path), RunFolder.open(run.path)):
        assert (write_tensorboard(given) / FILE).read_bytes() == live
    assert scalars(write_tensorboard(other)) == scalars(run.path / FOLDER)
    assert not list(run.path.glob(".*.tmp"))


def test_events_of_trained_runs_are_written_when_training_is_repeated(tmp_path: Path) -> None:
    (run,) = quick_train(tmp_path)
    assert run.path is not None
    assert not (run.path / FOLDER).exists()
    (again,) = quick_train(tmp_path, log="tensorboard")
    assert again.id == run.id
    assert scalars(run.path / FOLDER) == scalars_of_log(run.log)


def test_events_are_written_at_checkpoints_and_extended_on_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = quick_train(tmp_path / "whole", log="tensorboard")[0]
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, 7)
        patch.setattr(loop, "MAX_CHECKPOINT_FRACTION", 1e9)  # a checkpoint after every step, however slow the disk
        quick_train(tmp_path / "cut", log="tensorboard", checkpoint_seconds=0)
    file = tmp_path / "cut" / whole.id / FOLDER / FILE
    half, place = file.read_bytes(), file.stat().st_ino
    assert scalars(file.parent) == scalars_of_log(whole.log[:7])
    assert write_tensorboard(file.parents[1]) == file.parent
    file.write_bytes(half[:-5])  # as left by a process that was killed while writing
    quick_train(tmp_path / "cut", log="tensorboard")
    assert file.stat().st_ino == place, "TensorBoard keeps the file open, so it must be extended, not replaced"
    assert scalars(file.parent) == scalars_of_log(whole.log)


def test_a_file_of_another_log_is_replaced(tmp_path: Path) -> None:
    (run,) = quick_train(tmp_path, log="tensorboard")
    assert run.path is not None
    right = (run.path / FOLDER / FILE).read_bytes()
    (run.path / FOLDER / FILE).write_bytes(b"something else" + right)
    write_tensorboard(run)
    assert (run.path / FOLDER / FILE).read_bytes() == right


def test_errors_become_warnings_and_training_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (plain,) = quick_train(tmp_path / "a")

    def full(*_: Any) -> bytes:
        raise OSError("no space left")

    monkeypatch.setattr(tensorboard_log, "event_records", full)
    with pytest.warns(RuntimeWarning, match="The TensorBoard log of run .* was not written: no space left"):
        (run,) = quick_train(tmp_path / "b", log="tensorboard")
    assert_same_run(run, plain)


def test_missing_requirements_raise_an_error_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="Got no folder"):
        quick_train(log="tensorboard")
    with pytest.raises(ValueError, match="Did you mean 'tensorboard'"):
        quick_train(tmp_path / "r", log="tensorboards")
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.setattr(loop, "advance_to_end", None)
    with pytest.raises(UserError, match=r"unbraid\[tensorboard\]"):
        quick_train(tmp_path / "r", log="tensorboard")
    out = str(tmp_path / "r")
    assert main(["train", "vae", "--data", "toy", "--steps", "5", "--out", out, "--log", "tensorboard"]) == 2
    assert 'pip install "unbraid[tensorboard]"' in capsys.readouterr().err
    assert not (tmp_path / "r").exists()
    with pytest.raises(UserError, match="Got a run without a folder"):
        write_tensorboard(ub.Run(ub.RunSpec(BetaVAE(), "toy"), None))  # type: ignore[arg-type]


def test_the_command_writes_events(tmp_path: Path) -> None:
    out = str(tmp_path / "r")
    assert main(["train", "vae", "--data", "toy", "--steps", "5", "--out", out, "--log", "tensorboard", "--quiet"]) == 0
    (file,) = (tmp_path / "r").glob(f"*/{FOLDER}/{FILE}")
    lines = [json.loads(line) for line in (file.parents[1] / "log.jsonl").read_text().splitlines()]
    assert scalars(file.parent) == scalars_of_log(lines)
