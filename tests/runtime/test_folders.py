"""Writing folders: a folder appears when it is complete, and a failed attempt can be repeated."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.full_disk import file_size_limit
from unbraid.errors import UserError
from unbraid.runtime.folders import new_folder

WRITER = """
import sys, time
from pathlib import Path
from unbraid.runtime.folders import new_folder
with new_folder(Path(sys.argv[1])) as new:
    (new / "half").write_text("x")
    print("started", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("present", [True, False])
def test_the_folder_appears_when_it_is_complete(tmp_path: Path, present: bool) -> None:
    out = tmp_path / "above" / "out"
    if present:
        out.mkdir(parents=True)
    with new_folder(out) as new:
        (new / "a").write_text("x")
        assert not (out / "a").exists()
    assert [path.name for path in out.iterdir()] == ["a"]
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_a_link_to_an_empty_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to("real")
    with new_folder(tmp_path / "out") as new:
        (new / "a").write_text("x")
    assert (tmp_path / "out").is_symlink()
    assert (tmp_path / "real" / "a").read_text() == "x"


@pytest.mark.parametrize("name", ["full", "file"])
def test_what_exists_is_never_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="must be an empty or new folder"), new_folder(tmp_path / name):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full"]


def test_a_full_disk_leaves_nothing_and_the_attempt_can_be_repeated(tmp_path: Path) -> None:
    for limit, complete in ((100, False), (10_000, True)):
        try:
            with file_size_limit(limit), new_folder(tmp_path / "out") as new:
                (new / "a").write_bytes(bytes(1000))
        except UserError as error:
            assert "File too large" in str(error)
            assert not complete
            assert list(tmp_path.iterdir()) == []
    assert (tmp_path / "out" / "a").stat().st_size == 1000


def test_only_one_process_writes_a_folder_and_a_killed_one_leaves_no_obstacle(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "out")], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        with pytest.raises(UserError, match="Another process is writing"), new_folder(tmp_path / "out"):
            pass
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "out").exists()
    with new_folder(tmp_path / "out") as new:
        (new / "whole").write_text("x")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["whole"]
