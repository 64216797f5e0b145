"""How errors reach the user: one line and status 2 for what the user can correct, a traceback and status 3 for bugs."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.command_line import Capture, error_line, unbraid
from unbraid.cli import dispatch
from unbraid.errors import UserError


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Makes the command `unbraid list` raise an exception."""

    def fail_with(error: BaseException) -> None:
        def run(*arguments: Any) -> int:
            raise error

        monkeypatch.setattr(dispatch.Command, "run", run)

    return fail_with


@pytest.mark.parametrize(
    "error",
    [
        UserError("The beta must be\n  positive. Got -1 instead."),
        FileNotFoundError(errno.ENOENT, "No such file or directory", "codes.npy"),
        PermissionError(errno.EACCES, "Permission denied", "runs"),
        IsADirectoryError(errno.EISDIR, "Is a directory", "runs"),
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_of_the_user_are_one_line(error: Exception, failing: Any, capsys: Capture) -> None:
    failing(error)
    line = error_line(capsys, "list")
    assert " ".join(str(error).split()) in line


@pytest.mark.parametrize(
    "error", [TypeError("a bug"), ValueError("a bug"), KeyError("a bug"), OSError(errno.EBADF, "a bug")]
)
def test_bugs_show_their_traceback_and_ask_for_a_report(error: Exception, failing: Any, capsys: Capture) -> None:
    failing(error)
    assert unbraid("list") == 3
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err
    assert f"{type(error).__name__}: " in err
    assert err.endswith("this is a bug in unbraid. Please report it with the command and the lines above.\n")


def test_the_debug_variable_shows_the_traceback_of_every_error(
    failing: Any, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("UNBRAID_DEBUG", "1")
    failing(UserError("wrong"))
    assert unbraid("list") == 3
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_has_its_own_status(failing: Any, capsys: Capture) -> None:
    failing(KeyboardInterrupt())
    assert unbraid("list") == 130
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["study", "small", "--plan", "--seeds", "a"], "'a' is not a whole number"),
        (["study", "small", "--plan", "--shard", "1/x"], "A shard must be I/N"),
        (["study", "small", "--plan", "--shard", "²/3"], "A shard must be I/N"),
        (
            ["study", "small", "--plan", "--steps", "ten"],
            "must be a whole number from 0 to 9223372036854775807. Got 'ten' instead",
        ),
        (["study", "small", "--plan", "--only", "data"], "--only must be PROPERTY=VALUE"),
        (["train", "beta_vae", "--beta", "a:b:3"], "'a:b:3' is not a number"),
        (["train", "beta_vae", "--beta", "0:1:0"], "'0:1:0' is not a number"),
        (["traverse", "runs", "--pair", "0,x"], "must be two latents"),
        (["score", "--codes", "empty.npy", "--factors", "empty.npy"], "empty.npy cannot be read as numbers"),
        (["score", "--codes", "broken.npz", "--factors", "broken.npz"], "broken.npz cannot be read as numbers"),
        (["score", "--codes", "empty.csv", "--factors", "empty.csv"], "empty.csv cannot be read as numbers"),
        (["score", "--codes", "binary.csv", "--factors", "binary.csv"], "binary.csv cannot be read as numbers"),
        (["score", "--codes", "folder.npy", "--factors", "folder.npy"], "folder.npy cannot be read as numbers"),
        (["score", "--codes", "text.npy", "--factors", "text.npy"], "numbers"),
        (["study", "wrong.py", "--plan"], "wrong.py raised ZeroDivisionError"),
        (["study", "later.py", "--plan"], "later.py raised TypeError"),
        (["study", "binary.toml", "--plan"], "binary.toml cannot be read"),
        (["analyse", "binary.sqlite"], "binary.sqlite"),
        (["analyse", "folder.npy"], "No results table"),
        (["index", "empty.npy"], "No runs in"),
        (["share", "import", "folder.npy", "target"], "has no SHA256SUMS"),
    ],
)
def test_wrong_values_and_damaged_files_are_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("empty.npy", "empty.csv"):
        Path(name).touch()
    for name in ("broken.npz", "binary.csv", "binary.toml", "binary.sqlite"):
        Path(name).write_bytes(b"PK\x03\x04\xff\xfe" * 9)
    Path("folder.npy").mkdir()
    np.save("text.npy", np.array([["a", "b"], ["c", "d"]]))
    Path("wrong.py").write_text("1 / 0\n")
    Path("later.py").write_text("import unbraid as ub\ndef study():\n    yield ub.methods.BetaVAE(betta=1)\n")
    assert message in error_line(capsys, *arguments)


@pytest.mark.parametrize("before", [None, "elsewhere"])
def test_root_is_set_only_while_the_command_runs(
    before: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """--root changes the data folder of one command, and parsing alone changes nothing."""
    monkeypatch.delenv("UNBRAID_DATA", raising=False)
    if before is not None:
        monkeypatch.setenv("UNBRAID_DATA", before)
    message = error_line(capsys, "train", "vae", "--data", "smallnorb", "--root", tmp_path / "there")
    assert f"must be in {tmp_path / 'there' / 'smallnorb'}" in message
    assert os.environ.get("UNBRAID_DATA") == before


@pytest.mark.parametrize("name", ["9" * 400, "loop"])
def test_paths_that_no_file_can_have_are_user_errors(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "runs").mkdir()
    for line in (["compare", name, "runs"], ["index", name], ["share", "check", name]):
        assert dispatch.main(line) == 2
        assert "unbraid: error: " in capsys.readouterr().err
