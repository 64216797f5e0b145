"""A fixed slice of the campaign of faults, which every change must pass. `make test-faults` runs new cases."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from faults.commands import LINES, check_coverage, command_flags, flag_words

CASES = 120  # about 30 seconds


def test_every_command_has_a_command_line_and_flags() -> None:
    check_coverage()
    for command, lines in LINES.items():
        for line in lines:
            assert command_flags(flag_words([command, *line])), line


def test_bad_input_gives_one_line_of_error() -> None:
    """The campaign runs in a process of its own, because it forks, and threads of other tests would not survive."""
    command = [sys.executable, "-m", "faults.campaign", "--seed", "0", "--cases", str(CASES), "--minutes", "10"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        command, cwd=Path(__file__).parents[1], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
