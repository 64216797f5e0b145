"""A command that was interrupted ends as such, even if a library turns the interrupt into an error or discards it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.command_line import FAST_TRAINING, Capture, unbraid
from support.training import quick_train
from unbraid.cli import dispatch
from unbraid.errors import UserError
from unbraid.runs import tensor_files

STOPPED = "unbraid: stopped. Run the same command again to resume from the last checkpoint.\n"
CALLBACK = """
import ctypes, signal, sys, time
from unbraid.cli import dispatch

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts its background jobs with Ctrl-C ignored

@ctypes.CFUNCTYPE(None)
def callback():
    {inside}

def run(arguments):
    callback()
    {after}
    return 0

dispatch.dispatch = run
sys.exit(dispatch.main([]))
"""


def discard_an_interrupt() -> None:
    """Receive an interrupt and catch it, as a compiled library may do."""
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], int]], None]:
    """Replaces what commands do."""
    return lambda action: monkeypatch.setattr(dispatch.Command, "run", lambda *_: action())


@pytest.mark.parametrize("error", [UserError("damaged"), RuntimeError("a bug"), OSError(28, "No space left on device")])
def test_an_error_after_an_interrupt_counts_as_the_interrupt(error: Exception, command: Any, capsys: Capture) -> None:
    def fail() -> int:
        discard_an_interrupt()
        raise error

    command(fail)
    assert unbraid("list") == 130
    assert capsys.readouterr().err == STOPPED


def test_a_discarded_interrupt_is_reported_at_the_end(command: Any, capsys: Capture) -> None:
    """The command may have left something out because of the interrupt."""
    command(lambda: discard_an_interrupt() or 0)
    assert unbraid("list") == 130
    assert capsys.readouterr().err == STOPPED
    assert unbraid("explore", "runs") == 0  # an interrupt is its normal end
    assert capsys.readouterr().err == ""


def test_an_interrupt_of_one_command_does_not_affect_the_next(command: Any, capsys: Capture) -> None:
    command(lambda: signal.raise_signal(signal.SIGINT) or 0)
    assert unbraid("list") == 130
    command(lambda: 0)
    assert unbraid("list") == 0
    assert capsys.readouterr().err == STOPPED


def test_an_interrupt_while_a_file_is_read_does_not_look_like_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert unbraid("train", "vae", *FAST_TRAINING, "--out", tmp_path / "runs") == 0
    capsys.readouterr()

    def interrupted(*_: Any) -> None:
        discard_an_interrupt()
        raise tensor_files.safetensors.SafetensorError("KeyboardInterrupt")

    monkeypatch.setattr(tensor_files.safetensors, "safe_open", interrupted)
    assert unbraid("score", tmp_path / "runs", "--metrics", "mig", "--quiet") == 130
    assert capsys.readouterr().err == STOPPED


def run_callback(inside: str, after: str) -> subprocess.CompletedProcess[str]:
    """Run a command that executes a line in a callback of ctypes, and then another line."""
    program = CALLBACK.format(inside=inside, after=after)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize(
    "after", ["time.sleep(30)", "callback(); time.sleep(30)", "pass", "raise RuntimeError('lost')"]
)
def test_an_interrupt_in_a_callback_ends_the_command(after: str) -> None:
    result = run_callback("signal.raise_signal(signal.SIGINT)", f"{after}\n    print('continued')")
    assert result.stderr == STOPPED
    assert result.returncode == 130
    assert "continued" not in result.stdout or after == "pass"


def test_other_exceptions_in_a_callback_are_printed() -> None:
    result = run_callback("raise ValueError('wrong')", "time.sleep(0.2)")
    assert result.returncode == 0
    assert "ValueError: wrong" in result.stderr
    result = run_callback("raise KeyboardInterrupt", "time.sleep(0.2)")  # no signal was received
    assert result.returncode == 0
    assert "KeyboardInterrupt" in result.stderr


def test_handlers_and_hooks_are_restored(command: Any) -> None:
    before = signal.getsignal(signal.SIGINT), sys.unraisablehook
    command(lambda: signal.raise_signal(signal.SIGINT) or 0)
    assert unbraid("list") == 130
    assert (signal.getsignal(signal.SIGINT), sys.unraisablehook) == before


def test_the_library_does_not_replace_the_hook() -> None:
    before, during = sys.unraisablehook, []
    quick_train(None, on_log=lambda *_: during.append(sys.unraisablehook))
    assert {*during, sys.unraisablehook} == {before}


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda number, frame: None])
def test_other_handlers_are_kept(handler: Any, command: Any) -> None:
    signal.signal(signal.SIGINT, handler)
    seen: list[Any] = []
    command(lambda: seen.append(signal.getsignal(signal.SIGINT)) or 0)
    assert unbraid("list") == 0
    assert [*seen, signal.getsignal(signal.SIGINT)] == [handler, handler]


def test_commands_run_in_other_threads(command: Any) -> None:
    statuses: list[int] = []
    command(lambda: 0)
    thread = threading.Thread(target=lambda: statuses.append(unbraid("list")))
    thread.start()
    thread.join()
    assert statuses == [0]
