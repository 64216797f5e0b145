"""Control characters of names in files do not reach the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.training import quick_train
from unbraid.cli.dispatch import main
from unbraid.runtime.terminal import printable

EVIL = "\x1b]0;owned\x07\x1b[31m\u202e\x9b"


def test_ordinary_text_is_unchanged() -> None:
    text = "é 你好 a\tb\n\u200c\u200d🙂"
    assert printable(text) == text


def test_names_in_files_cannot_control_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / f"runs{EVIL}"
    run = quick_train(folder)[0]
    score = {"metric": f"mig{EVIL}", "codes": "mean", "values": {f"a{EVIL}": 0.5}, "data": f"toy{EVIL}"}
    (folder / run.id / "scores.jsonl").write_text(json.dumps(score) + "\n")
    (folder / run.id / "log.jsonl").write_text(json.dumps({"step": 1, f"loss{EVIL}": 1.0}) + "\n")
    for line in (["index", str(folder)], ["compare", str(folder), str(folder / run.id)], ["score", f"{folder}x"]):
        main(line)
    found = capsys.readouterr()
    assert "\\x1b[31m" in found.out
    assert "\\x1b[31m" in found.err
    assert not any(mark in found.out + found.err for mark in "\x1b\x07\u202e\x9b")
