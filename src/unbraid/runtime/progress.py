"""Progress with an ETA: a bar on a terminal, plain lines elsewhere, silence for anything under two seconds."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

PATIENCE = 2.0  # seconds before the first word
INTERVAL = 5.0  # seconds between plain lines


@runtime_checkable
class Report(Protocol):
    """What a long job calls: how much is done, and a short word on how it goes."""

    def __call__(self, done: float, note: str = "") -> None: ...


def silent(done: float, note: str = "") -> None:
    """A report that goes nowhere."""


def clock(seconds: float) -> str:
    """Hours, minutes and seconds, as in 1:02:03 or 02:03."""
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m:02d}:{s:02d}"


@contextlib.contextmanager
def progress(label: str, total: float) -> Iterator[Report]:
    """A report to call with the amount done so far; what is over in two seconds shows nothing."""
    with _bar(label, total) if sys.stderr.isatty() else _lines(label, total) as report:
        yield report


@contextlib.contextmanager
def _lines(label: str, total: float) -> Iterator[Report]:
    begun = time.monotonic()
    first: list[float] = []
    spoken = begun + PATIENCE - INTERVAL

    def report(done: float, note: str = "") -> None:
        nonlocal spoken
        now = time.monotonic()
        if not first:
            first.append(done)
        if now - spoken < INTERVAL:
            return
        spoken = now
        rate = (done - first[0]) / max(now - begun, 1e-9)
        eta = f"ETA {clock((total - done) / rate)}" if rate > 0 else "ETA unknown"
        print(f"{label}: {done:.0f}/{total:.0f} ({done / max(total, 1e-9):.0%}), {eta}{', ' * bool(note)}{note}",
              file=sys.stderr, flush=True)  # fmt: skip

    yield report


@contextlib.contextmanager
def _bar(label: str, total: float) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    done = "{task.percentage:3.0f}%, ETA"
    columns = (TextColumn("{task.description}"), BarColumn(12), TextColumn(done), TimeRemainingColumn(),
               TextColumn("{task.fields[note]}"))  # fmt: skip
    begun = time.monotonic()
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(label, total=total, note="")

    def report(done: float, note: str = "") -> None:
        if not bar.live.is_started and time.monotonic() - begun > PATIENCE:
            bar.start()
        bar.update(task, completed=done, note=note)

    try:
        yield report
    finally:
        bar.stop()
