"""Files of another run, edited files and damaged files are detected, and never end in other weights."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import unbraid as ub
from support.damage import flip_byte
from support.training import Killed, assert_same_run, kill_at, quick_train
from unbraid.cli.dispatch import main
from unbraid.data.manipulation_files import read_manipulation
from unbraid.errors import UserError
from unbraid.methods import BetaVAE
from unbraid.runs.folder import RunFolder, find_runs
from unbraid.runs.formats import StudyFile
from unbraid.runs.results import load_results, read_sweep_positions, write_results
from unbraid.runs.scores import read_protocol, read_scores
from unbraid.runs.tensor_files import read_tensors, write_tensors
from unbraid.runtime.schema import read_json


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Two trained runs that differ in the seed."""
    return [run.path for run in quick_train(tmp_path / "runs", seeds=[0, 1]) if run.path is not None]


@pytest.fixture
def checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The checkpoints of two runs that were stopped at step 7."""
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, 7)
        quick_train(tmp_path / "runs", seeds=[0, 1], checkpoint_seconds=0)
    return sorted((tmp_path / "runs").glob("*/checkpoint.safetensors"))


def edit(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def test_weights_of_another_run_are_rejected(runs: list[Path]) -> None:
    first, second = runs
    shutil.copy(second / "weights.safetensors", first / "weights.safetensors")
    with pytest.raises(UserError, match=f"belongs to the run {second.name} and not to the run {first.name}.*Delete"):
        ub.load_run(first)
    with pytest.raises(UserError, match="belongs to the run"):
        quick_train(first.parent, seeds=[0, 1])


@pytest.mark.parametrize("position", [0.3, 0.6, 0.99])
def test_changed_weights_are_rejected(position: float, runs: list[Path]) -> None:
    flip_byte(runs[0] / "weights.safetensors", position)
    with pytest.raises(UserError, match="is damaged"):
        ub.load_run(runs[0])


@pytest.mark.parametrize("header", [b"8", b"{}", b'{"__metadata__": {"unbraid": "8"}}', b'{"__metadata__": {}}', b"{"])
def test_the_header_of_tensors_is_not_explained_in_the_words_of_a_library(header: bytes, tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(
        UserError, match=r"incomplete \(it is not a safetensors file with metadata of unbraid\)\. Delete"
    ):
        read_tensors(file)
    with pytest.raises(UserError, match="unbraid data modify") as caught:
        read_manipulation(file)
    assert "expected" not in str(caught.value)


@pytest.mark.parametrize("target", ["weights.safetensors", "nowhere"])
def test_a_link_that_leads_nowhere_is_not_trained_again(target: str, runs: list[Path]) -> None:
    log = (runs[0] / "log.jsonl").read_bytes()
    (runs[0] / "weights.safetensors").unlink()
    (runs[0] / "weights.safetensors").symlink_to(target)
    with pytest.raises(UserError, match=r"weights.safetensors is damaged or incomplete.*Delete the file"):
        quick_train(runs[0].parent, seeds=[0, 1])
    assert (runs[0] / "log.jsonl").read_bytes() == log


def test_an_edited_spec_is_rejected(runs: list[Path]) -> None:
    edit(runs[0] / "run.json", lambda content: content["spec"]["method"].update(beta=16.0))
    with pytest.raises(UserError, match=f"has been edited.*its id is {runs[0].name}"):
        ub.load_runs(runs[0].parent)
    with pytest.raises(UserError, match="has been edited"):
        quick_train(runs[0].parent, seeds=[0, 1])


def test_an_edited_spec_with_its_id_is_rejected(runs: list[Path]) -> None:
    """If the id is edited as well, neither the name of the folder nor the weights agree with it."""
    spec = ub.load_run(runs[0]).spec
    other = dataclasses.replace(spec, method=BetaVAE(beta=16.0))
    edit(runs[0] / "run.json", lambda content: content.update(id=other.id, spec=other.to_dict()))
    with pytest.raises(UserError, match=f"must have the name {other.id}"):
        ub.load_runs(runs[0].parent)
    with pytest.raises(UserError, match=f"belongs to the run {spec.id}"):
        ub.load_run(runs[0])
    with pytest.raises(UserError, match=f"must contain the run {spec.id}. Got the run {other.id}"):
        quick_train(runs[0].parent, seeds=[0, 1], add=True)


@pytest.mark.parametrize("link", [False, True])
def test_a_copied_run_is_not_counted_twice(link: bool, runs: list[Path]) -> None:
    copy = runs[0].with_name("copy")
    if link:
        copy.symlink_to(runs[0])
    else:
        shutil.copytree(runs[0], copy)
    with pytest.raises(UserError, match=f"copy contains the run {runs[0].name}.*Rename"):
        write_results(runs[0].parent)
    assert ub.load_run(copy).id == runs[0].name  # alone, a copy is not counted twice


def test_checkpoints_have_an_id_and_a_checksum(checkpoints: list[Path], tmp_path: Path) -> None:
    assert read_tensors(checkpoints[0])[1]["id"] == checkpoints[0].parent.name
    for run, whole in zip(quick_train(tmp_path / "runs", seeds=[0, 1]), quick_train(seeds=[0, 1]), strict=True):
        assert_same_run(run, whole)


def test_a_checkpoint_of_another_run_is_rejected(checkpoints: list[Path], tmp_path: Path) -> None:
    first, second = checkpoints
    shutil.copy(second, first)
    with pytest.raises(UserError, match=f"belongs to the run {second.parent.name} and not.*Delete the file"):
        quick_train(tmp_path / "runs", seeds=[0, 1])
    assert not list(tmp_path.rglob("weights.safetensors"))


def test_any_changed_byte_of_a_checkpoint_is_detected(checkpoints: list[Path]) -> None:
    content, folder = checkpoints[0].read_bytes(), RunFolder.open(checkpoints[0].parent)
    header = content.index(b"}", 8)
    for position in [*range(8, header, 7), *range(header + 200, len(content), len(content) // 50)]:
        changed = bytearray(content)
        changed[position] ^= 1
        checkpoints[0].write_bytes(changed)
        with pytest.raises(UserError, match=r"Delete the file to train the run again"):
            folder.read_checkpoint()


def test_a_damaged_checkpoint_ends_with_an_error(checkpoints: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    flip_byte(checkpoints[0], 0.8)
    out = str(checkpoints[0].parent.parent)
    command = ["train", "beta_vae", "--data", "toy", "--steps", "12", "--learning-rate", "0.001", "--batch", "8",
               "--latents", "3", "--seeds", "0,1", "--quiet", "--out", out]  # fmt: skip
    assert main(command) == 2
    assert "does not match its checksum. Delete the file" in capsys.readouterr().err
    checkpoints[0].unlink()
    assert main(command) == 0


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"log": []}, "'step' is missing"),
        ({"step": 7}, "'log' is missing"),
        ({"step": "7", "log": []}, "'step' must be a whole number. Got '7'"),
        ({"step": 99, "log": []}, "must have a step from 0 to 12.*Got 99"),
        ({"step": 7, "log": [{"step": 1, "kl": "x"}]}, r"'log\[0\].kl' must be a number"),
    ],
)
def test_checkpoints_without_their_facts_are_rejected(
    facts: dict[str, Any], message: str, checkpoints: list[Path], tmp_path: Path
) -> None:
    write_tensors(checkpoints[0], load_file(checkpoints[0]), facts)
    with pytest.raises(UserError, match=f"{message}.*Delete the file"):
        quick_train(tmp_path / "runs", seeds=[0, 1])


DEEP = "[" * 100_000 + "]" * 100_000
BAD_RUN_FILES = [
    "",
    "null",
    "[]",
    "{",
    "3",
    '"x"',
    DEEP,
    '{"format": 1}',
    '{"format": "1"}',
    '{"format": [1]}',
    "\ud800",
]


@pytest.mark.parametrize("content", BAD_RUN_FILES, ids=range(len(BAD_RUN_FILES)))
def test_wrong_run_files_are_user_errors(content: str, runs: list[Path]) -> None:
    (runs[0] / "run.json").write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(UserError, match=r"run\.json"):
        find_runs(runs[0].parent)


BAD_FIELDS: list[tuple[str, Any]] = [
    ("id", 3), ("spec", []), ("spec.method", "vae"), ("spec.method.name", 3), ("spec.method.beta", "4"),
    ("spec.method.beta", None), ("spec.method.beta", 10**400), ("spec.method.beta", {"a": 1}), ("spec.seed", "0"),
    ("spec.seed", 10**30), ("spec.steps", 1.5), ("spec.steps", True), ("spec.data", 5), ("spec.data", "a\0b"),
    ("spec.net", None), ("spec.net", ["mlp"]), ("spec.likelihood", []), ("spec.extra", 1), ("own", 7),
    ("own", {"sources": [1]}), ("spec.latents", -1), ("spec.data", json.loads("[" * 50 + "]" * 50)),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), BAD_FIELDS, ids=[f"{name}-{i}" for i, (name, _) in enumerate(BAD_FIELDS)])
def test_wrong_fields_are_user_errors(field: str, value: Any, runs: list[Path]) -> None:
    def change(content: dict[str, Any]) -> None:
        *parents, last = field.split(".")
        for name in parents:
            content = content[name]
        content[last] = value

    edit(runs[0] / "run.json", change)
    with pytest.raises(UserError, match=r"run\.json.*[Rr]estore"):
        find_runs(runs[0].parent)


@pytest.mark.parametrize(
    ("name", "content", "read"),
    [
        ("log.jsonl", "[]\n", RunFolder.read_log),
        ("log.jsonl", '{"loss": 1}\n', RunFolder.read_log),
        ("log.jsonl", '{"step": 1, "loss": "x"}\n', RunFolder.read_log),
        ("log.jsonl", DEEP, RunFolder.read_log),
        ("diverged.json", '{"step": 1}', RunFolder.divergence),
        ("diverged.json", '{"step": "x", "term": "kl"}', RunFolder.divergence),
        ("scores.jsonl", "3\n", lambda run: read_scores(run.path)),
        ("scores.jsonl", '{"metric": "mig", "codes": "mean"}\n', lambda run: read_scores(run.path)),
        ("scores.jsonl", '{"metric": "mig", "codes": 1, "values": {}}\n', lambda run: read_scores(run.path)),
        ("scores.jsonl", '{"metric": "a", "codes": "b", "values": {"c": "x"}}\n', lambda run: read_scores(run.path)),
        ("scores.jsonl", '{"metric": "a", "codes": "b", "values": {}, "rows": 3}\n', lambda run: read_scores(run.path)),
        ("../study.json", "[]", lambda run: read_sweep_positions(run.path.parent)),
        ("../study.json", "{}", lambda run: read_sweep_positions(run.path.parent)),
        ("../study.json", '{"places": {"a": {"index": "x"}}}', lambda run: read_sweep_positions(run.path.parent)),
        ("../study.json", '{"places": {}, "protocol": {"train": "x"}}', lambda run: read_protocol(run.path)),
        ("../study.json", '{"places": {}, "protocol": {"draws": "x"}}', lambda run: read_protocol(run.path)),
        ("../study.json", '{"places": {}, "protocol": {"test": -3}}', lambda run: read_protocol(run.path)),
    ],
)  # fmt: skip
def test_wrong_content_is_a_user_error(
    name: str, content: str, read: Callable[[RunFolder], object], runs: list[Path]
) -> None:
    (runs[0] / name).write_text(content)
    with pytest.raises(UserError, match=rf"{Path(name).name}.*([Rr]estore|[Dd]elete)"):
        read(RunFolder.open(runs[0]))


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "study.json")
    with pytest.raises(UserError, match="must be an ordinary file"):
        read_json(tmp_path / "study.json", StudyFile, "Delete it.")


@pytest.mark.parametrize("use", [load_results, write_results])
def test_a_pipe_in_place_of_the_results_table_is_refused(use: Callable[[Path], Any], runs: list[Path]) -> None:
    folder = runs[0].parent
    (folder / "results.sqlite").unlink(missing_ok=True)
    os.mkfifo(folder / "results.sqlite")
    with pytest.raises(UserError, match="must be an ordinary file"):
        use(folder)
