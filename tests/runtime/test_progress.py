"""The duration of a long job is announced once, soon after its start."""

from __future__ import annotations

import pytest

from support.training import quick_train
from unbraid.runtime import progress
from unbraid.runtime.progress import announce_duration


def test_a_long_job_is_announced_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now, reported = 0.0, []
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    report = announce_duration(lambda done, note="": reported.append(done), 300_000, "Use fewer steps.")
    for now, done in ((0.0, 100), (1.0, 105), (2.0, 110), (3.0, 300), (9.0, 310)):  # noqa: B007  # read by the clock
        report(done)
    assert reported == [100, 105, 110, 300, 310]
    assert capsys.readouterr().err == "unbraid: this will take about 17 hours. Use fewer steps.\n"  # 299,890 at 5 per s


def test_a_short_job_is_not_announced(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    report = announce_duration(progress.ignore_progress, 3_000, "")
    for now, done in ((0.0, 0), (2.0, 10), (900.0, 2000)):  # noqa: B007
        report(done)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("quiet", [True, False])
def test_training_says_what_to_do(
    quiet: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "MEASURED_SECONDS", 0.0)
    monkeypatch.setattr(progress, "LONG_SECONDS", 0.0)
    monkeypatch.setattr("unbraid.training.loop.REPORT_SECONDS", 0.0)
    quick_train(steps=30, quiet=quiet)
    message = capsys.readouterr().err
    assert ("this will take about 0 minutes. Pass out= to keep checkpoints" in message) == (not quiet)
    assert ("--steps 5000 (steps=5000). With a GPU, use --device cuda." in message) == (not quiet)


@pytest.mark.parametrize("show", ["_progress_bar", "_progress_lines"])
def test_names_are_shown_as_they_are(
    show: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Brackets are no markup, and control characters are replaced."""
    for name in ("QUIET_SECONDS", "LINE_SECONDS"):
        monkeypatch.setattr(progress, name, 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")  # the bar is drawn as on a terminal
    monkeypatch.setenv("COLUMNS", "200")
    with getattr(progress, show)("a[/b]\x1b[31m", 2.0) as report:
        report(1.0, "c[/d]\x1b]0;")
        report(2.0, "c[/d]\x1b]0;")
    shown = capsys.readouterr().err
    assert "c[/d]\\x1b]0;" in shown
    assert "a[/b]\\x1b[31m" in shown
