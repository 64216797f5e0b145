"""Warnings name the line of the user's code that called unbraid, also below decorated functions.

The code runs in a process of its own, because tests check all annotations, and the checks are calls of their own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import numpy as np
import unbraid as ub

ub.train("vae", data="toy", steps=1, latents=2, out="runs", quiet=True)
ub.load_runs(["runs", "empty"])  # line 6
codes = np.random.default_rng(0).normal(size=(40, 2))
ub.score(codes=codes, factors=np.arange(40) // 20, quiet=True)  # line 8


def on_log(spec, record):
    ub.load_runs(["runs", "empty"])  # line 12


ub.train("vae", data="toy", steps=1, latents=2, quiet=True, on_log=on_log)
"""


def test_warnings_name_the_line_that_called_unbraid(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-W", "always", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    warned = [line.partition(" left out: ") for line in done.stderr.splitlines() if " left out: " in line]
    places = [place.removeprefix(f"{tmp_path}/") for place, _, _ in warned]
    assert sorted(set(places)) == [f"script.py:{line}: RuntimeWarning:" for line in (12, 6, 8)]


def test_a_warning_on_the_command_line_is_one_line_without_a_place(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    train = ["train", "vae", "--data", "toy", "--steps", "1", "--latents", "2", "--out", "runs", "--quiet"]
    score = ["score", "runs", "empty", "--metrics", "mig", "--no-bounds", "--quiet"]
    for arguments in (train, score):
        command = [sys.executable, "-m", "unbraid", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == "unbraid: warning: left out: no runs in empty\n"
