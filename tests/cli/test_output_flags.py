"""Flags that name a file to write: links and devices stay what they are, and a full disk leaves nothing behind."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from support.command_line import FAST_TRAINING, Capture, error_line, unbraid
from support.full_disk import file_size_limit
from unbraid.runs.results import RESULTS_FILE, load_results


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two trained runs and their scores."""
    folder = tmp_path_factory.mktemp("trained") / "runs"
    assert unbraid("train", "vae", *FAST_TRAINING, "--seeds", "0,1", "--out", folder) == 0
    assert unbraid("score", folder, "--metrics", "mig", "--no-bounds", "--quiet") == 0
    return folder


@pytest.fixture(scope="module")
def codes(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The flags of `unbraid score` for arrays of codes and factors."""
    folder = tmp_path_factory.mktemp("arrays")
    factors = np.stack(np.meshgrid(np.arange(8), np.arange(8)), -1).reshape(-1, 2)
    np.save(folder / "factors.npy", factors)
    np.save(folder / "codes.npy", factors.astype(float))
    return ["--codes", str(folder / "codes.npy"), "--factors", str(folder / "factors.npy"), "--metrics", "mig"]


COMMANDS = {
    "score": ["score", "CODES", "--no-bounds", "--quiet", "--csv"],
    "compare": ["compare", "EACH_RUN", "--quiet", "--csv"],
    "report": ["report", "RUNS", "--no-score", "--quiet", "--out"],
    "data_show": ["data", "show", "sprites", "--out"],
}


def command(name: str, runs: Path, codes: Sequence[str], out: Path | str) -> list[str]:
    """The command line that writes to `out`."""
    each = [str(path.parent) for path in runs.glob("*/run.json")]
    words = {"CODES": codes, "RUNS": [str(runs)], "EACH_RUN": each}
    return [*(part for word in COMMANDS[name] for part in words.get(word, [word])), str(out)]


@pytest.mark.parametrize("name", list(COMMANDS))
def test_the_file_that_a_link_names_is_written(
    name: str, runs: Path, codes: list[str], tmp_path: Path, capsys: Capture
) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    assert unbraid(*command(name, runs, codes, link)) == 0
    assert link.is_symlink()
    assert len(target.read_bytes()) > 3
    assert sorted(tmp_path.iterdir()) == [link, target]


@pytest.mark.parametrize("name", list(COMMANDS))
def test_a_device_is_written_to_and_not_replaced(
    name: str, runs: Path, codes: list[str], tmp_path: Path, capsys: Capture
) -> None:
    link = tmp_path / "link"
    link.symlink_to("/dev/null")  # so that a command that replaces its file replaces only the link
    assert unbraid(*command(name, runs, codes, link)) == 0
    assert link.is_symlink()
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_the_results_table_survives_a_full_disk(runs: Path, capsys: Capture) -> None:
    assert unbraid("index", runs) == 0
    before = load_results(runs)
    files = sorted(runs.iterdir())
    with file_size_limit(1000):
        assert "Could not write" in error_line(capsys, "index", runs)
    assert sorted(runs.iterdir()) == files
    assert load_results(runs).equals(before)
    assert (runs / RESULTS_FILE).stat().st_size > 1000
