"""A fixed slice of every part of the campaign of faults. `make test-faults` runs new cases."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from faults import processes, sweep
from faults.bad_input import change_line
from faults.commands import LINES, check_coverage, command_flags, flag_words
from faults.damage import CONTENTS, KINDS
from faults.jobs import Job
from faults.judging import disguised_words, find_changes, find_lost_scores, fingerprint, score_lines
from faults.values import FEW, NUMBERS, PATHS, TEXTS

QUICK = ("input", "readers", "kills", "pairs", "disk", "hostile", "requests")


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


@pytest.mark.slow
def test_a_case_of_every_part_has_no_fault_and_is_counted(tmp_path: Path) -> None:
    out = tmp_path / "faults.json"
    printed = campaign("--cases", "1", "--parts", ",".join(QUICK), "--out", str(out))
    assert printed.count(", 0 faults") == len(QUICK)
    campaign("--cases", "2", "--parts", "readers", "--processes", "2", "--out", str(out))
    first, second = json.loads(out.read_text())["sessions"]
    assert {name: tally["cases"] for name, tally in first["parts"].items()} == dict.fromkeys(QUICK, 1)
    assert second["parts"]["readers"] | {"seconds": 0} == {
        "unit": "files", "cases": 2, "count": 2, "faults": 0, "seconds": 0
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("part", ["cluster", "pages"])
def test_parts_that_need_other_programs(part: str) -> None:
    printed = campaign("--cases", "1", "--parts", part)
    assert ", 0 faults" in printed or "skipped: " in printed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "cases"),
    [
        ("input", 300),
        ("readers", 300),
        ("kills", 25),
        ("pairs", 25),
        ("disk", 25),
        ("hostile", 100),
        ("requests", 1000),
    ],
)
def test_many_cases_of_a_part_have_no_fault(part: str, cases: int) -> None:
    assert ", 0 faults" in campaign("--parts", part, "--cases", str(cases))


def test_the_sweep_replaces_every_file_of_a_command_in_every_way(tmp_path: Path) -> None:
    (tmp_path / "runs" / "a").mkdir(parents=True)
    for name in ("runs/a/run.json", "study.toml", "model.pt"):
        (tmp_path / name).write_text("{}")
    found = list(sweep.file_cases(tmp_path, "kinds"))
    study = {(case.damaged, case.label) for case in found if case.line[:2] == ("study", "study.toml")}
    assert study == {("study.toml", kind) for kind in KINDS}
    assert {case.damaged for case in found} == {"runs/a/run.json", "study.toml", "model.pt"}
    pipe = next(case for case in found if (case.damaged, case.label) == ("model.pt", "pipe"))
    pipe.damage(tmp_path)
    assert (tmp_path / "model.pt").is_fifo()
    other = next(case for case in sweep.file_cases(tmp_path, "contents") if case.damaged == "study.toml")
    other.damage(tmp_path)
    assert (tmp_path / "study.toml").read_bytes() == CONTENTS[0]


def test_the_sweep_tries_every_value_for_every_flag(tmp_path: Path) -> None:
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "run.json").write_text("{}")
    lines = [case.line for case in sweep.flag_cases(tmp_path)]
    trained = [line for line in lines if line[0] == "train"]
    batches = {line[-1].removeprefix("--batch=") for line in trained if line[-1].startswith("--batch=")}
    assert batches == {*NUMBERS, *TEXTS, *PATHS}
    steps = {line[-1].removeprefix("--steps=") for line in trained if line[-1].startswith("--steps=")}
    assert steps == set(FEW)


def test_generated_lines_never_have_endless_steps() -> None:
    """A word that is replaced or added after --steps is a value of this flag."""
    line = ["demo", "--steps", "5", "--out", "new"]
    changed = [change_line(line, Random(seed)) for seed in range(2000)]
    steps = {after for words in changed for word, after in pairwise(words) if word == "--steps"}
    assert steps - {"5", "--out"} <= set(FEW)
    assert len(steps) > len(FEW) / 2


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


def test_without_the_rights_of_root_a_read_only_folder_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o555)
    program = f"from faults.disk import give_up_rights; give_up_rights(); open({str(tmp_path / 'closed' / 'a')!r}, 'w')"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[1], capture_output=True, text=True
    )
    assert "PermissionError" in result.stderr


def test_a_process_that_computes_too_long_or_waits_for_ever_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(processes, "cpu_seconds", lambda group: processes.CPU_SECONDS - 1)
    watch = processes.Watch(os.getpgid(0))
    assert not watch.hangs()
    monkeypatch.setattr(processes, "cpu_seconds", lambda group: processes.CPU_SECONDS + 1)
    assert watch.hangs()
    watch = processes.Watch(os.getpgid(0))
    monkeypatch.setattr(processes, "cpu_seconds", lambda group: 0.0)
    watch.progressed -= processes.IDLE_SECONDS + 1
    assert watch.hangs()


@pytest.mark.slow
def test_code_that_runs_is_noticed(tmp_path: Path) -> None:
    """The attack with code succeeds with the flag --trust, and is then reported."""
    program = (
        "import sys; from pathlib import Path; from faults.campaign import prepared; from faults import hostile\n"
        "part = hostile.Hostile()\n"
        "with prepared(part):\n"
        "    for flags in ((), ('--trust',)):\n"
        "        line = ('traverse', 'runs', '--columns', '2', '--out', 'new', *flags)\n"
        "        print('fault:', part.run(hostile.HostileCase('code', 'by_module', line)).fault)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines() == ["fault: ", "fault: code was run"]


def test_a_folder_that_is_written_once_must_be_whole(tmp_path: Path) -> None:
    job = Job((), once="out")
    expected = {"out/a": b"1", "other": b"2"}
    assert not job.has_finished(tmp_path, expected)
    (tmp_path / "out").mkdir()
    assert not job.has_finished(tmp_path, expected)
    (tmp_path / "out" / "a").write_bytes(b"1")
    assert job.has_finished(tmp_path, expected)
    (tmp_path / "out" / "b").write_bytes(b"")
    assert not job.has_finished(tmp_path, expected)
