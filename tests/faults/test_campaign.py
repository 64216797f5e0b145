"""A fixed slice of every part of the campaign of faults. `make test-faults` runs new cases."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from faults.commands import LINES, check_coverage, command_flags, flag_words
from faults.judging import disguised_words, find_changes, find_lost_scores, fingerprint, score_lines


def test_every_command_has_a_command_line_and_flags() -> None:
    check_coverage()
    for command, lines in LINES.items():
        for line in lines:
            assert command_flags(flag_words([command, *line])), line


def campaign(*arguments: str) -> str:
    """Run the campaign in a process of its own, because it forks, and threads of other tests would not survive."""
    command = [sys.executable, "-m", "faults.campaign", "--seed", "0", "--minutes", "10", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        command, cwd=Path(__file__).parents[1], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_a_few_cases_of_every_part_have_no_fault() -> None:
    assert campaign("--cases", "1").count(", 0 faults") == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "cases"), [("input", 300), ("kills", 25), ("pairs", 25), ("disk", 25), ("requests", 1000)]
)
def test_many_cases_of_a_part_have_no_fault(part: str, cases: int) -> None:
    assert ", 0 faults" in campaign("--parts", part, "--cases", str(cases))


def test_a_failing_command_may_add_scores_but_not_lose_or_change_them(tmp_path: Path) -> None:
    file = tmp_path / "scores.jsonl"
    file.write_text("a\nb\n")
    before = score_lines(tmp_path)
    file.write_text("b\na\nc\n")
    assert find_lost_scores(before, tmp_path) == ""
    for content in ("a\n", "a\nB\n", ""):
        file.write_text(content)
        assert "scores.jsonl" in find_lost_scores(before, tmp_path)
    file.unlink()
    assert "scores.jsonl" in find_lost_scores(before, tmp_path)


def test_a_failing_command_must_not_change_files_or_leave_temporary_files(tmp_path: Path) -> None:
    for name in ("run.json", "results.sqlite"):
        (tmp_path / name).write_text("old")
    before = fingerprint(tmp_path)
    (tmp_path / "results.sqlite").write_text("newer")
    assert find_changes(before, tmp_path) == ""
    (tmp_path / ".run.json.1.tmp").write_text("half")
    (tmp_path / "run.json").write_text("newer")
    (tmp_path / "results.sqlite").unlink()
    found = find_changes(before, tmp_path)
    assert all(name in found for name in ("run.json", "results.sqlite", ".run.json.1.tmp"))


def test_messages_for_programmers_are_recognised_but_not_in_quoted_text() -> None:
    for text in ("could not convert string to float: 'a'", "'<' not supported between instances of 'int' and 'str'"):
        assert disguised_words(f"unbraid: error: {text}")
    assert not disguised_words("unbraid: error: There is no method 'TypeError: could not convert'.")
