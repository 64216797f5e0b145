"""Deferring the signals that end a process until the work in progress has been saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C sends SIGINT; job schedulers and `timeout` send SIGTERM


@dataclass
class DeferredSignals:
    """The signal that the context `deferred_signals` holds back, and the signal handlers that it replaced.

    Attributes:
        received: Number of the signal that has been received, or None.
        previous_handlers: The handlers that were replaced, by signal number.
    """

    received: int | None = None
    previous_handlers: dict[int, Any] = field(default_factory=dict)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Store the signal and restore the previous handlers, so that a second signal takes effect at once."""
        self.received = number
        self.restore_handlers()

    def restore_handlers(self) -> None:
        """Restore the handlers that were replaced. Calling this again has no effect."""
        while self.previous_handlers:
            signal.signal(*self.previous_handlers.popitem())

    def deliver(self) -> None:
        """Raise the signal that has been received. If there is none, do nothing and continue to defer signals."""
        if self.received is not None:
            number, self.received = self.received, None
            signal.raise_signal(number)


@contextmanager
def deferred_signals() -> Iterator[DeferredSignals]:
    """Defer Ctrl-C and SIGTERM inside this context until `deliver()` is called or the context ends.

    Python delivers signals only to the main thread, so nothing is deferred in other threads.
    """
    signals = DeferredSignals()
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if handler not in (None, signal.SIG_IGN):  # None: not set from Python, so it cannot be restored
                signals.previous_handlers[number] = handler
                signal.signal(number, signals.handle)
    try:
        yield signals
    finally:
        signals.restore_handlers()
        signals.deliver()
