"""A study on several devices of one machine, shown with two processes on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import unbraid as ub
from unbraid.accel.devices import check_device
from unbraid.errors import UserError
from unbraid.runs.folder import find_runs
from unbraid.runs.results import load_results
from unbraid.runs.scores import read_scores
from unbraid.studies.devices import split_runs
from unbraid.studies.local import run_study
from unbraid.studies.runner import planned_runs

SPECS = [
    ub.RunSpec(method, "toy", seed=seed, steps=4, net="mlp", likelihood="gaussian")
    for method in (ub.methods.BetaVAE(beta=2.0), ub.methods.VAE())
    for seed in range(2)
]
SETTINGS: dict[str, Any] = {"metrics": ["mig"], "samples": 100, "quiet": True}


def test_two_devices_give_the_results_of_one(tmp_path: Path) -> None:
    one, two = (
        load_results(ub.study(SPECS, tmp_path / name, **SETTINGS, devices=devices))
        for name, devices in (("one", None), ("two", ["cpu", "cpu"]))
    )
    assert list(one["run"]) == list(two["run"])
    assert one["mig.discrete_mig"].tolist() == pytest.approx(two["mig.discrete_mig"].tolist(), abs=1e-4)
    assert {run.status for run in find_runs(tmp_path / "two")} == {"done"}


def test_each_process_scores_the_runs_that_it_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the metrics of groups is left when all processes have ended."""
    scored: list[list[str]] = []

    def finish(planned: Any, settings: Any, quiet: bool) -> Path:
        scored.extend([record["metric"] for record in read_scores(run.path)] for run in find_runs(settings.out))
        return run_study(planned, settings, quiet)

    monkeypatch.setattr("unbraid.studies.runner.run_study", finish)
    options: dict[str, Any] = {**SETTINGS, "metrics": ["mig", "udr"]}
    table = load_results(ub.study(SPECS, tmp_path, **options, devices=["cpu", "cpu"]))
    assert scored == [["mig"]] * 4
    assert table["udr.score"].notna().all()


def test_runs_are_divided_without_loss() -> None:
    runs = planned_runs(SPECS)
    for parts in (1, 2, 3, 9):
        split = split_runs(runs, parts)
        assert sorted(run.index for part in split for run in part) == [0, 1, 2, 3]
        assert len(split) <= parts
    assert [[run.spec.method for run in part] for part in split_runs(runs, 2)] == [
        [SPECS[0].method] * 2,
        [SPECS[2].method] * 2,
    ]


def test_bad_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="Got 'tpu' instead"):
        ub.study(SPECS, tmp_path, **SETTINGS, devices=["cpu", "tpu"])
    with pytest.raises(UserError, match="must be a list such as"):
        ub.study(SPECS, tmp_path, **SETTINGS, devices="cpu,cpu")
    with pytest.raises(UserError, match="Got both"):
        ub.study(SPECS, tmp_path, **SETTINGS, devices=["cpu"], cluster="auto")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    check_device("cuda:1")
    with pytest.raises(UserError, match="one of cuda:0 to cuda:1"):
        check_device("cuda:2")
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: True)
    with pytest.warns(RuntimeWarning, match="has not been tested on it"):
        check_device("mps")
