"""Signals that end a process, put off until what is under way can be left."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C; what schedulers and `timeout` send


@dataclass
class Deferred:
    """The signal that came, if any, and what it would have done."""

    came: int | None = None
    before: dict[int, Any] = field(default_factory=dict)

    def put_off(self, number: int, frame: FrameType | None) -> None:
        """Remember the first; a second one finds everything as it was before and is not put off."""
        self.came = number
        self.restore()

    def restore(self) -> None:
        """Whatever handled the signals before handles them again."""
        while self.before:
            signal.signal(*self.before.popitem())

    def deliver(self) -> None:
        """Let the signal do what it would have done; where none came, the next is put off as before."""
        if self.came is not None:
            number, self.came = self.came, None
            signal.raise_signal(number)


@contextmanager
def deferred() -> Iterator[Deferred]:
    """While in here Ctrl-C and SIGTERM are only noted; `deliver()` lets the one that came through, and so does leaving.

    Only the main thread hears of signals: in another nothing is put off.
    """
    waiting = Deferred()
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if handler not in (None, signal.SIG_IGN):  # one that Python did not set cannot be put back
                waiting.before[number] = handler
                signal.signal(number, waiting.put_off)
    try:
        yield waiting
    finally:
        waiting.restore()
        waiting.deliver()
