"""Run folders: errors name damaged files, a full disk loses nothing, and partial files are never read as runs."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
import torch

import unbraid as ub
from support.training import Killed, assert_same_run, kill_at, quick_train
from unbraid.errors import UserError
from unbraid.runs.folder import find_runs


def test_old_divergence_is_removed_when_a_run_finishes(tmp_path: Path) -> None:
    (run,) = quick_train(tmp_path)
    assert run.path is not None
    (run.path / "weights.safetensors").unlink()
    (run.path / "diverged.json").write_text('{"step": 1, "term": "kl"}')
    quick_train(tmp_path)
    (found,) = find_runs(tmp_path)
    assert found.status == "done"


def test_checkpoint_of_another_network_raises_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.torch import load_file

    from unbraid.runs.tensor_files import write_tensors

    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, 7)
        quick_train(tmp_path, checkpoint_seconds=0)
    (file,) = tmp_path.glob("*/checkpoint.safetensors")
    state = load_file(file)
    write_tensors(file, {**state, "row": state["row"][:-1].clone()}, {"step": 7, "log": []})
    with pytest.raises(UserError, match=r"must fit the network of its spec\. Got other tensors .*Delete it to train"):
        quick_train(tmp_path)


@pytest.mark.parametrize("keep", [0, 7, 100, -1, -1000])
def test_truncated_checkpoint_raises_an_error_and_is_not_deleted(
    keep: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, 7)
        quick_train(tmp_path, checkpoint_seconds=0)
    (file,) = tmp_path.glob("*/checkpoint.safetensors")
    content = file.read_bytes()
    file.write_bytes(content[:keep])
    with pytest.raises(UserError, match=r"is damaged or incomplete.*Delete the file"):
        quick_train(tmp_path)
    assert file.read_bytes() == content[:keep]
    file.unlink()
    (run,) = quick_train(tmp_path)
    assert_same_run(run, quick_train(None)[0])


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "log.jsonl", "weights.safetensors", "run.json"])
def test_full_disk_loses_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk is full while a file is written, there is an error and no partial file, and the run can resume."""
    real = os.fsync

    def full(descriptor: int) -> None:
        if name in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(UserError, match=r"No space left on device.*repeat the command to resume"):
            quick_train(tmp_path, checkpoint_seconds=0)
    assert not list(tmp_path.rglob("*.tmp"))
    assert not list(tmp_path.rglob(name))
    assert_same_run(quick_train(tmp_path)[0], quick_train(None)[0])


def test_temporary_files_are_not_runs(tmp_path: Path) -> None:
    """Temporary files of a killed process are ignored by readers and deleted by the next writer."""
    (run,) = quick_train(tmp_path)
    assert run.path is not None
    stray = tmp_path / "abc"
    stray.mkdir()
    (stray / ".run.json.1.tmp").write_text("{")
    (run.path / ".weights.safetensors.1.tmp").write_text("x")
    assert [found.path for found in find_runs(tmp_path)] == [run.path]
    quick_train(tmp_path)
    assert not (run.path / ".weights.safetensors.1.tmp").exists()


def test_errors_name_damaged_files(tmp_path: Path) -> None:
    (run,) = quick_train(tmp_path)
    assert run.path is not None
    content = json.loads((run.path / "run.json").read_text())
    for bad, message in (("{", "cannot be read"), ("[]", "must be an object"),
                         (json.dumps({**content, "format": 99}), "reads format 1"),
                         (json.dumps({**content, "spec": {}}), "does not contain a run")):  # fmt: skip
        (run.path / "run.json").write_text(bad)
        with pytest.raises(UserError, match=message):
            ub.load_runs(tmp_path)


def test_run_json_records_versions_commit_and_machine(tmp_path: Path) -> None:
    (run,) = quick_train(tmp_path)
    assert run.path is not None
    facts = json.loads((run.path / "run.json").read_text())
    assert facts["id"] == run.id == run.path.name
    assert facts["versions"]["torch"] == torch.__version__
    assert set(facts) == {"format", "id", "spec", "versions", "commit", "machine"}
