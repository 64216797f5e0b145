"""Loading trained runs from folders."""

from __future__ import annotations

from pathlib import Path

import pytest

import unbraid as ub
from support.training import Killed, assert_same_run, kill_at, quick_train
from unbraid.errors import UserError


def test_load_run_returns_the_trained_run(tmp_path: Path) -> None:
    (run,) = quick_train(tmp_path)
    assert run.path is not None
    for folder in (run.path, str(run.path), tmp_path):
        assert_same_run(ub.load_run(folder), run)


def test_load_run_needs_exactly_one_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"exactly one run\. Got no run instead"):
        ub.load_run(tmp_path)
    quick_train(tmp_path, seeds=range(2))
    with pytest.raises(UserError, match=r"exactly one run\. Got 2 runs instead.*load_runs loads several"):
        ub.load_run(tmp_path)
    assert len(ub.load_runs(tmp_path)) == 2


def test_load_run_rejects_an_unfinished_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, 7)
        quick_train(tmp_path, checkpoint_seconds=0)
    with pytest.raises(UserError, match=r"is not finished.*resume"):
        ub.load_run(tmp_path)
