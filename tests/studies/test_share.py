"""Publishing runs with checksums, and importing them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from unittest.mock import Mock

import pytest

from support.full_disk import file_size_limit
from support.hostile_folders import TRICKS
from support.studies import small_settings, small_study, sorted_results
from unbraid.cli.dispatch import main
from unbraid.errors import UserError
from unbraid.runs.run import load_runs
from unbraid.studies import publishing
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


@pytest.mark.parametrize("damage", ["change", "remove", "add", "sums", "binary", "text"])
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
        "text": lambda: (out / SUMS).write_text("text\n"),
    }[damage]()
    with pytest.raises(UserError, match=SUMS) as caught:
        import_published(out, tmp_path / "mine")
    assert "sequence" not in str(caught.value)
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize("trick", TRICKS)
def test_a_check_cannot_be_bypassed(trick: str, study: Path, tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    publish(study, out)
    elsewhere.mkdir()
    TRICKS[trick](out, elsewhere)
    for attempt in (lambda: check_published(out), lambda: import_published(out, tmp_path / "mine")):
        with pytest.raises(UserError, match=SUMS):
            attempt()
    assert not (tmp_path / "mine").exists()


def test_an_interrupted_export_can_be_repeated(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(publishing, "write_atomic", Mock(side_effect=KeyboardInterrupt))
        publish(study, out)
    assert not list(tmp_path.iterdir())
    (tmp_path / ".out.part" / "left").mkdir(parents=True)  # left by a process that was killed
    check_published(publish(study, out).parent)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_file_that_changes_after_the_check_is_not_imported(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    publish(study, out)
    check = publishing.check_published

    def check_and_change(source: Path) -> dict[str, str]:
        sums = check(source)
        next(source.glob("*/log.jsonl")).write_text("")
        return sums

    monkeypatch.setattr(publishing, "check_published", check_and_change)
    with pytest.raises(UserError, match="does not match its checksum"):
        import_published(out, tmp_path / "mine")


def test_publish_needs_runs_and_an_empty_folder(study: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    with pytest.raises(UserError, match="must be an empty or new folder"):
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


def test_an_export_that_the_disk_has_no_room_for_can_be_repeated(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(study, tmp_path / "reference")
    size = max(path.stat().st_size for path in study.glob("*/weights.safetensors"))
    with file_size_limit(size - 1):
        assert main(["share", "export", str(study), str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["reference"]
    assert main(["share", "export", str(study), str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / SUMS).read_bytes() == (tmp_path / "reference" / SUMS).read_bytes()
