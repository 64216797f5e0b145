"""Interrupts that could not be raised are sent again, in commands and in workers."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from unbraid.runtime.interrupts import REPEAT_SECONDS, Interrupts

DISCARDED: Any = SimpleNamespace(exc_value=KeyboardInterrupt(), exc_type=KeyboardInterrupt)
OTHER: Any = SimpleNamespace(exc_value=ValueError(), exc_type=ValueError)
WORKERS = """
import ctypes, signal, time
from joblib import delayed
from unbraid.runtime.workers import worker_pool

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts its background jobs with Ctrl-C ignored

def work():
    ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGINT))()
    time.sleep(30)

try:
    with worker_pool(2) as pool:
        list(pool([delayed(work)()]))
    print("finished")
except KeyboardInterrupt:
    print("interrupted")
"""


def receive_interrupt() -> None:
    """Receive an interrupt and catch it."""
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_discarded_interrupt_is_sent_again() -> None:
    with Interrupts():
        receive_interrupt()
        sys.unraisablehook(DISCARDED)
        with pytest.raises(KeyboardInterrupt):
            time.sleep(30)


def test_no_interrupt_is_sent_after_the_end() -> None:
    with Interrupts() as interrupts:
        receive_interrupt()
        sys.unraisablehook(DISCARDED)
    time.sleep(4 * REPEAT_SECONDS)
    assert interrupts.received


def test_an_interrupt_inside_the_hook_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def previous(unraisable: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        seen.append(unraisable)

    monkeypatch.setattr(sys, "unraisablehook", previous)
    with Interrupts():
        sys.unraisablehook(OTHER)
        assert seen == [OTHER]
        with pytest.raises(KeyboardInterrupt):
            time.sleep(30)
    assert sys.unraisablehook is previous


def test_an_interrupt_at_the_end_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    class InterruptedLock:
        """A lock whose acquisition is interrupted."""

        def __enter__(self) -> None:
            signal.raise_signal(signal.SIGINT)

        def __exit__(self, *_: object) -> None:
            pass

    with Interrupts() as interrupts:
        monkeypatch.setattr(interrupts, "sending", InterruptedLock())
    assert interrupts.received
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_in_a_callback_ends_the_work_of_a_worker() -> None:
    result = subprocess.run([sys.executable, "-c", WORKERS], capture_output=True, text=True, timeout=100)
    assert result.stdout == "interrupted\n"
    assert "Exception ignored" not in result.stderr
    assert result.returncode == 0
