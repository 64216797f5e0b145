"""Small studies on toy data, and how their results are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from unbraid.methods import METHODS, BetaVAE
from unbraid.metrics.protocol import Protocol
from unbraid.runs.folder import find_runs
from unbraid.runs.results import load_results
from unbraid.studies.planned import PlannedRun, grid, sweep
from unbraid.studies.settings import StudySettings

SMALL_PROTOCOL = Protocol(train=200, test=100, table=300)


def small_study(seeds: int = 2, steps: int = 6) -> list[PlannedRun]:
    """Two methods at two strengths on toy data."""
    settings = [*sweep(BetaVAE, "beta", (1.0, 4.0)), *sweep(METHODS["dip_vae_i"], "lambda_od", (1.0, 10.0))]
    return list(grid(["toy"], settings, seeds, steps=steps, batch=8, latents=3))


def small_settings(out: Path, **options: Any) -> StudySettings:
    """Two metrics on few rows, and no metrics of groups unless they are given."""
    changed = {"group_metrics": (), **options}
    return StudySettings(out, metrics=["mig", "unsupervised"], protocol=SMALL_PROTOCOL, jobs=1, **changed)


def sorted_results(out: Path) -> Any:
    """The results table of a study, ordered by the index of its runs."""
    return load_results(out).sort_values("index").reset_index(drop=True)


def weights_by_run(out: Path) -> dict[str, dict[str, torch.Tensor]]:
    """The weights of all runs in a folder, by run."""
    return {run.path.name: run.weights() for run in find_runs(out)}


def assert_same_weights(a: Path, b: Path) -> None:
    """Assert that two folders have the same runs with bitwise equal weights."""
    first, second = weights_by_run(a), weights_by_run(b)
    assert first.keys() == second.keys()
    for name, parts in first.items():
        assert all(torch.equal(value, second[name][key]) for key, value in parts.items()), name


def assert_same_studies(a: Path, b: Path) -> None:
    """Assert that two folders have bitwise equal weights, logs and scores, and the same results table."""
    assert_same_weights(a, b)
    for run in find_runs(a):
        for file in ("log.jsonl", "scores.jsonl"):
            assert (a / run.path.name / file).read_bytes() == (b / run.path.name / file).read_bytes()
    assert sorted_results(a).equals(sorted_results(b))
