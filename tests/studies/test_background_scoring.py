"""Scoring in the background of training: after Ctrl-C, a study says what it waits for."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from unbraid.studies import run_scores
from unbraid.studies.run_scores import WAITING, BackgroundScoring
from unbraid.studies.settings import StudySettings


@pytest.mark.parametrize("scoring", [True, False])
def test_an_interrupted_study_says_that_it_waits_for_scores(
    scoring: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started, message_seen, finished = threading.Event(), threading.Event(), []

    def score() -> None:
        started.set()
        assert message_seen.wait(20)
        finished.append(True)

    def show(*texts: Any, **options: Any) -> None:
        shown.append(texts)
        message_seen.set()

    shown: list[Any] = []
    monkeypatch.setattr(run_scores, "print", show, raising=False)
    with pytest.raises(KeyboardInterrupt), BackgroundScoring(StudySettings(tmp_path, device="cuda")) as background:
        if scoring:
            background.pending.append(background.pool.submit(score))
            assert started.wait(20)
        raise KeyboardInterrupt
    assert shown == ([(WAITING,)] if scoring else [])
    assert finished == [True] * scoring
