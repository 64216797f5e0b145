"""Progress of long jobs with an estimate of the remaining time.

Progress is shown as a bar on a terminal and in a notebook, and as plain lines elsewhere. Jobs of less than two seconds
show nothing.
"""

from __future__ import annotations

import contextlib
import html
import sys
import time
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

from unbraid.runtime.terminal import printable

QUIET_SECONDS = 2.0  # time before the first output
LINE_SECONDS = 5.0  # minimum time between two plain lines
NOTEBOOK_SECONDS = 0.5  # minimum time between two updates of a bar in a notebook
MEASURED_SECONDS = 1.5  # time over which the speed of a job is measured before its duration is announced
LONG_SECONDS = 600.0  # minimum remaining time that is announced


@runtime_checkable
class ProgressCallback(Protocol):
    """A function that a long job calls with the amount of work done so far and a short text to show beside it."""

    def __call__(self, done: float, note: str = "") -> None: ...


def ignore_progress(done: float, note: str = "") -> None:
    """Do nothing. This is a `ProgressCallback` that shows no progress."""


def ignore_message(message: str) -> None:
    """Do nothing. This is a callback for messages that shows none of them."""


def format_duration(seconds: float) -> str:
    """Format a duration as minutes and seconds, with hours if there are any.

    >>> format_duration(3723), format_duration(123)
    ('1:02:03', '02:03')
    """
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m:02d}:{s:02d}"


def describe_duration(seconds: float) -> str:
    """Describe a duration in words.

    >>> describe_duration(1300), describe_duration(150_000), describe_duration(864_000)
    ('22 minutes', '42 hours', '10 days')
    """
    for size, unit in ((86_400, "days"), (3_600, "hours")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 60:.0f} minutes"


def announce_duration(report: ProgressCallback, total: float, advice: str) -> ProgressCallback:
    """Return a callback that calls `report` and, if the job is long, prints the remaining time once.

    The remaining time is printed soon after the start of the job, if it is at least 10 minutes.

    Args:
        report: The callback that shows the progress.
        total: The amount of work at which the job is complete.
        advice: What the user can do about a long job. It is printed after the duration.
    """
    first: tuple[float, float] | None = None
    announced = False

    def report_and_announce(done: float, note: str = "") -> None:
        nonlocal first, announced
        now = time.monotonic()
        first = first or (now, done)
        if not announced and now - first[0] >= MEASURED_SECONDS and done > first[1]:
            announced = True
            remaining = (total - done) * (now - first[0]) / (done - first[1])
            if remaining >= LONG_SECONDS:
                print(f"unbraid: this will take about {describe_duration(remaining)}. {advice}", file=sys.stderr)
        report(done, note)

    return report_and_announce


@contextlib.contextmanager
def no_progress(label: str, total: float) -> Iterator[ProgressCallback]:
    """Show nothing. This context can be used in place of `progress`."""
    yield ignore_progress


@contextlib.contextmanager
def progress(label: str, total: float, quiet: bool = False) -> Iterator[ProgressCallback]:
    """Show the progress of a job on standard error, or in the output of a notebook, inside this context.

    Args:
        label: Short description of the job.
        total: The amount of work at which the job is complete.
        quiet: Whether to show nothing.

    Yields:
        The function to call with the amount of work done so far.
    """
    bar = _progress_bar if sys.stderr.isatty() else _notebook_bar if in_notebook() else _progress_lines
    with (no_progress if quiet else bar)(label, total) as report:
        yield report


def in_notebook() -> bool:
    """Return whether this process runs IPython, as the kernel of a notebook does."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None


class RemainingTime:
    """Estimates the remaining time of a job from its speed since the first report.

    Args:
        total: The amount of work at which the job is complete.
    """

    def __init__(self, total: float) -> None:
        self.total, self.started = total, time.monotonic()
        self.first: float | None = None

    def describe(self, done: float) -> str:
        """Return the work done so far and the remaining time, such as "30/100 (30%), ETA 00:12"."""
        self.first = done if self.first is None else self.first
        rate = (done - self.first) / max(time.monotonic() - self.started, 1e-9)
        eta = f"ETA {format_duration((self.total - done) / rate)}" if rate > 0 else "ETA unknown"
        return f"{done:.0f}/{self.total:.0f} ({done / max(self.total, 1e-9):.0%}), {eta}"


@contextlib.contextmanager
def _progress_lines(label: str, total: float) -> Iterator[ProgressCallback]:
    """Show progress as plain lines."""
    remaining = RemainingTime(total)
    last_line = remaining.started + QUIET_SECONDS - LINE_SECONDS

    def report(done: float, note: str = "") -> None:
        nonlocal last_line
        text = remaining.describe(done)
        if time.monotonic() - last_line >= LINE_SECONDS:
            last_line = time.monotonic()
            print(printable(f"{label}: {text}{', ' * bool(note)}{note}"), file=sys.stderr, flush=True)

    yield report


@contextlib.contextmanager
def _notebook_bar(label: str, total: float) -> Iterator[ProgressCallback]:
    """Show progress as a bar in the output of a notebook. When the job ends, its duration replaces the bar."""
    from IPython.display import HTML, display

    remaining = RemainingTime(total)
    handle: Any = None
    last = remaining.started + QUIET_SECONDS - NOTEBOOK_SECONDS

    def show(content: str) -> None:
        nonlocal handle
        if handle is None:
            handle = display(HTML(content), display_id=True)
        else:
            handle.update(HTML(content))

    def report(done: float, note: str = "") -> None:
        nonlocal last
        text = remaining.describe(done)
        if time.monotonic() - last >= NOTEBOOK_SECONDS:
            last = time.monotonic()
            bar = f'<progress value="{done:g}" max="{max(total, 1e-9):g}"></progress>'
            show(f"{html.escape(label)} {bar} {html.escape(text + ', ' * bool(note) + note)}")

    end = "stopped"
    try:
        yield report
        end = "finished"
    finally:
        if handle is not None:
            show(f"{html.escape(label)}: {end} after {format_duration(time.monotonic() - remaining.started)}")


@contextlib.contextmanager
def _progress_bar(label: str, total: float) -> Iterator[ProgressCallback]:
    """Show progress as a bar on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    done = "{task.percentage:3.0f}%, ETA"
    description, note = (TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[note]}"))
    columns = (description, BarColumn(12), TextColumn(done), TimeRemainingColumn(), note)
    started = time.monotonic()
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(printable(label), total=total, note="")

    def report(done: float, note: str = "") -> None:
        if not bar.live.is_started and time.monotonic() - started > QUIET_SECONDS:
            bar.start()
        bar.update(task, completed=done, note=printable(note))

    try:
        yield report
    finally:
        bar.stop()
