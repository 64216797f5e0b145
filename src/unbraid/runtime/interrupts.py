"""Interrupts (Ctrl-C) that end a command even if a library catches them.

Python raises KeyboardInterrupt in whatever function the main thread runs. This may be a function that a compiled
library has called. Such a library may replace the interrupt by an error of its own, for example one that reports a
damaged file. It may also be unable to raise anything. Python then prints the traceback of the interrupt and continues.
"""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

REPEAT_SECONDS = 0.05  # time after which an interrupt that a library has discarded is sent again


class Interrupts:
    """Remembers whether an interrupt was received, and repeats interrupts that a library has discarded.

    This is for processes that belong to unbraid: commands and workers. It replaces the handler of SIGINT and
    `sys.unraisablehook` inside a ``with`` block, or from `install` to the end of the process. If SIGINT is ignored or
    has a handler other than that of Python, or in a thread other than the main thread, nothing is replaced.

    Attributes:
        received: Whether an interrupt has been received.
    """

    def __init__(self) -> None:
        self.received = False
        self.installed = False
        self.sending = threading.Lock()
        self.previous_hook: Any = None

    def install(self) -> None:
        """Replace the handler of SIGINT and `sys.unraisablehook`."""
        in_main_thread = threading.current_thread() is threading.main_thread()
        if in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self.installed, self.previous_hook = True, sys.unraisablehook
            signal.signal(signal.SIGINT, self.handle_signal)
            sys.unraisablehook = self.handle_unraisable

    def __enter__(self) -> Interrupts:
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        if self.installed:
            self.installed = False
            sys.unraisablehook = self.previous_hook
            with self.sending:  # after this, no interrupt is sent again
                signal.signal(signal.SIGINT, signal.default_int_handler)

    def handle_signal(self, number: int, frame: FrameType | None) -> None:
        """Remember the interrupt and raise KeyboardInterrupt.

        Inside `__exit__` it is not raised, so that the handler and the hook are always restored.
        """
        self.received = True
        if _is_inside(frame, Interrupts.handle_unraisable):  # Python would print an exception that is raised there
            self.repeat()
        elif not _is_inside(frame, Interrupts.__exit__):
            raise KeyboardInterrupt

    def handle_unraisable(self, unraisable: Any) -> None:
        """If an interrupt could not be raised, send it again. Leave all other exceptions to the previous hook."""
        if self.received and isinstance(unraisable.exc_value, KeyboardInterrupt):
            self.repeat()
        else:
            self.previous_hook(unraisable)

    def repeat(self) -> None:
        """Send the interrupt again soon.

        It cannot be sent at once, because Python would raise it before the library has returned.
        """
        with contextlib.suppress(RuntimeError):  # no thread can be started; `received` is still true
            _thread.start_new_thread(self._send, ())

    def _send(self) -> None:
        """Wait, and then send SIGINT to the main thread."""
        time.sleep(REPEAT_SECONDS)
        with self.sending:
            if not self.installed:
                return
            if sys.platform == "win32":
                _thread.interrupt_main()
            else:  # this also ends a system call in which the main thread is waiting
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _is_inside(frame: FrameType | None, function: Any) -> bool:
    """Return whether a frame belongs to a call of a function, or to a call that was made there."""
    while frame is not None and frame.f_code is not function.__code__:
        frame = frame.f_back
    return frame is not None
