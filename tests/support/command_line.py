"""Running the command line inside a test."""

from __future__ import annotations

from typing import Any

import pytest

from unbraid.cli.dispatch import main

Capture = pytest.CaptureFixture[str]
FAST_TRAINING = ["--data", "toy", "--steps", "4", "--batch", "8", "--latents", "3", "--quiet"]


def unbraid(*arguments: Any) -> int:
    """Run the command line and return its exit status."""
    return main([str(argument) for argument in arguments])


def error_line(capsys: Capture, *arguments: Any) -> str:
    """Run a command that must fail with status 2 and one line on standard error; returns that line."""
    capsys.readouterr()
    assert unbraid(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("unbraid: error: ")
    assert err.count("\n") == 1
    return err
