"""Publishing runs with checksums, and importing them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.studies import small_settings, small_study, sorted_results
from unbraid.cli.dispatch import main
from unbraid.errors import UserError
from unbraid.runs.run import load_runs
from unbraid.studies.local import run_study
from unbraid.studies.publishing import SUMS, check_published, import_published, publish


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    run_study(small_study(seeds=1), small_settings(folder), quiet=True)
    return folder


def test_an_imported_study_equals_the_published_one(study: Path, tmp_path: Path) -> None:
    sums = publish(study, tmp_path / "out")
    subprocess.run(["sha256sum", "--check", "--quiet", SUMS], cwd=sums.parent, check=True)
    (tmp_path / "mine").mkdir()
    assert import_published(tmp_path / "out", tmp_path / "mine") == 4
    assert import_published(tmp_path / "out", tmp_path / "mine") == 0
    assert sorted_results(tmp_path / "mine").equals(sorted_results(study))
    assert len(load_runs(tmp_path / "mine")) == 4


def test_a_study_can_be_published_without_weights(study: Path, tmp_path: Path) -> None:
    publish(study, tmp_path / "out", weights=False)
    assert not list((tmp_path / "out").rglob("*.safetensors"))
    check_published(tmp_path / "out")


@pytest.mark.parametrize("damage", ["change", "remove", "add", "sums", "binary"])
def test_damaged_folders_are_rejected_and_nothing_is_copied(damage: str, study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    publish(study, out)
    victim = next(out.glob("*/log.jsonl"))
    {
        "change": lambda: victim.write_text("{}"),
        "remove": victim.unlink,
        "add": lambda: (victim.parent / "extra").write_text("x"),
        "sums": (out / SUMS).unlink,
        "binary": lambda: (out / SUMS).write_bytes(b"\xff\n"),
    }[damage]()
    with pytest.raises(UserError, match=SUMS):
        import_published(out, tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_publish_needs_runs_and_an_empty_folder(study: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    with pytest.raises(UserError, match="must be empty or new"):
        publish(study, tmp_path / "full")
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match="No finished runs"):
        publish(tmp_path / "none", tmp_path / "out")


def test_command(study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["share", "export", str(study), str(tmp_path / "out")]) == 0
    assert main(["share", "check", str(tmp_path / "out")]) == 0
    (tmp_path / "mine").mkdir()
    assert main(["share", "import", str(tmp_path / "out"), str(tmp_path / "mine")]) == 0
    assert "4 new runs" in capsys.readouterr().out
    assert main(["share", "export", str(study)]) == 2
    assert "Give the target folder" in capsys.readouterr().err
