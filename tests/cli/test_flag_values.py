"""Values of flags are checked before anything is computed or allocated."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from faults.commands import LINES, command_flags, flag_words
from support.command_line import FAST_TRAINING, Capture, error_line
from unbraid.training import memory as training_memory

WORDS = sorted({flag_words([command, *line]) for command, lines in LINES.items() for line in lines})
HUGE = "1" + 30 * "0"


def own_flags(words: tuple[str, ...]) -> set[str]:
    """The flags of a command, or those that `train` has for one method and not for the first."""
    flags = {name for action in command_flags(words) for name in action.option_strings}
    first = next(other for other in WORDS if other[0] == words[0])
    return flags if words[0] != "train" or words == first else flags - own_flags(first)


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_no_flag_takes_two_dashes_as_its_value(words: tuple[str, ...], capsys: Capture) -> None:
    for name in sorted(own_flags(words)):
        line = error_line(capsys, *words, f"{name}=--")
        assert f"The value of {name} must not be --" in line, words


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "vae", "--seeds", "0-99999999999"], "at most 100,000 values"),
        (["train", "beta_vae", "--beta", "0:1:99999999999"], "at most 100,000 values"),
        (["train", "vae", "--seeds", HUGE], "at most 9223372036854775807"),
        (["train", "vae", "--seeds=-1"], "between 0 and"),
        (["train", "vae", "--checkpoint-seconds", "nan"], "must be a finite number of at least 0. Got 'nan'"),
        (["train", "vae", "--checkpoint-seconds=-1"], "must be a finite number of at least 0. Got '-1'"),
        (["score", "runs", "--train", HUGE], "--train: must be a whole number from 2 to 10000000"),
        (["score", "runs", "--seed", "-1"], "--seed: must be a whole number from 0"),
        (["score", "runs", "--seed", str(2**64)], "--seed: must be a whole number from 0"),
        (["score", "runs", "--jobs", "100000"], "--jobs: must be a whole number from 1 to 1024"),
        (["score", "runs", "--csv", ""], "--csv: must be a path. Got ''"),
        (["score", "runs", "--csv", "."], "--csv: must be a file. Got the folder '.'"),
        (["score", "runs", "--csv", "plain/x.csv"], "--csv: must be a file in a folder"),
        (["report", "runs", "--out", ""], "--out: must be a path"),
        (["select", "runs", "--examples", HUGE], "--examples: must be a whole number from 2"),
        (["traverse", "runs", "--columns", "1000000"], "--columns: must be a whole number from 2 to 1000"),
        (["traverse", "runs", "--span", "inf"], "--span: must be a finite number"),
        (["study", "small", "--plan", "--shard", "999999/999999"], "The shard 999999/999999 has no runs"),
        (["study", "small", "--plan", "--seeds", "0-99999999999"], "at most 100,000 values"),
        (["score", ""], "must be a path"),
    ],
)
def test_wrong_values_are_refused_at_once(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plain").write_text("")
    tracemalloc.start()
    assert message in error_line(capsys, *arguments)
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()
    assert [path.name for path in tmp_path.iterdir()] == ["plain"]


@pytest.mark.parametrize("flag", ["batch", "latents"])
def test_a_training_that_needs_more_memory_than_there_is_is_refused(
    flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """The number is checked before anything is allocated: the last value would fit into the memory of this machine."""
    for memory, value in ((None, 10**12), (2**20, 10**5)):
        if memory is not None:
            monkeypatch.setattr(training_memory, "physical_memory", lambda device: 2.0**20)
        line = error_line(capsys, "train", "vae", *FAST_TRAINING, f"--{flag}", value, "--out", tmp_path / "runs")
        assert f"{flag}={value}" in line
        assert "GiB of memory" in line
    assert not list(tmp_path.glob("runs/*/run.json"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            'data = "toy"\nseeds = [0, 1]\n[[method]]\nname = "vae"',
            "'seeds' must be a whole number. Got [0, 1] instead",
        ),
        ('data = "toy"\n[[method]]\nname = "beta_vae"\nbetta = 4', "field of the method beta_vae 'betta'"),
        ('data = "toy"\nmethod = ["beta_vae"]', "'method"),
        ('data = "toy"\nseeds = 99999999999\n[[method]]\nname = "vae"', "between 1 and 10,000,000 runs"),
        ('data = "toy"\nseeds = 0\n[[method]]\nname = "vae"', "between 1 and 10,000,000 runs"),
        ('data = [3]\n[[method]]\nname = "vae"', "'data"),
        ('data = "toy"\nsteps = nan\n[[method]]\nname = "vae"', "'steps' must be a whole number"),
        ('data = "toy"\nbatch = 0.5\n[[method]]\nname = "vae"', "'batch' must be a whole number"),
        ('data = "toy"\n[[method]]\nname = 3', "must have a name"),
        ('data = "toy"\n[[method]]\nname = "beta_vae"\nbeta = [[1]]', "must be a number"),
    ],
)
def test_wrong_entries_of_a_study_file_are_named(content: str, message: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "study.toml").write_text(content)
    line = error_line(capsys, "study", tmp_path / "study.toml", "--plan")
    assert str(tmp_path / "study.toml") in line
    assert message in line


def test_a_reader_that_ends_early_is_no_error() -> None:
    """`unbraid list | head -1` ends without a message."""
    command = [sys.executable, "-m", "unbraid", "list"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 141
    process.stderr.close()
