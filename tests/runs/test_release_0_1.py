"""Files written by release 0.1 keep their meaning: ids of specs, finished runs, scores and checkpoints.

The runs in tests/fixtures/release_0_1 were made by that release on one thread, with data "toy", batch 16 and 2 latents.
Two are finished and scored. The third, BetaVAE(beta=4) with seed 1, was stopped before its 40 steps were done, and
resumed.safetensors holds the weights with which that release finished it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import unbraid as ub
from unbraid.methods import BetaVAE
from unbraid.runs.folder import find_runs
from unbraid.runs.spec import RunSpec
from unbraid.runtime.provenance import library_versions
from unbraid.training.stack import Stack

RELEASE = Path(__file__).parents[1] / "fixtures" / "release_0_1"
FINISHED, HALF_TRAINED = {"3fe523498aa2", "eaf28c748fc0"}, "60f1276c2530"
IDS = json.loads((RELEASE / "ids.json").read_text())


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A copy of the folder of runs, which a test may change."""
    return Path(shutil.copytree(RELEASE / "runs", tmp_path / "runs"))


@pytest.mark.parametrize("entry", IDS, ids=[entry["id"] for entry in IDS])
def test_ids_of_specs_are_unchanged(entry: dict[str, Any]) -> None:
    assert RunSpec.from_dict(entry["spec"]).id == entry["id"]


def test_finished_runs_load(runs: Path, toy: ub.data.FactorData) -> None:
    loaded = ub.load_runs(runs)
    assert {run.id for run in loaded} == FINISHED
    for run in loaded:
        stored = load_file(RELEASE / "runs" / run.id / "weights.safetensors")
        assert all(torch.equal(stored[name], value) for name, value in run.net.state_dict().items())
        assert run.log
        assert run.encode(toy.images([0, 1])).shape == (2, 2)


def test_stored_scores_are_not_computed_again(runs: Path) -> None:
    loaded = ub.load_runs(runs)
    scores = ub.score(loaded, ["mig", "dci"], quiet=True)
    for run, row in zip(loaded, scores, strict=True):
        before = RELEASE / "runs" / run.id / "scores.jsonl"
        stored = [json.loads(line) for line in before.read_text().splitlines()]
        recorded = stored[0]["versions"]
        libraries = tuple(name for name in recorded if name not in ("python", "unbraid"))
        installed = {**library_versions(libraries), "unbraid": recorded["unbraid"]}  # any version of unbraid
        if recorded != installed:
            pytest.skip(f"the scores were computed with {recorded}, and {installed} is installed")
        assert row["mig.discrete_mig"] in [record["values"].get("discrete_mig") for record in stored]
        assert (runs / run.id / "scores.jsonl").read_bytes() == (
            RELEASE / "runs" / run.id / "scores.jsonl"
        ).read_bytes()


def test_a_checkpoint_resumes(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder,) = (run for run in find_runs(runs) if run.spec.id == HALF_TRAINED)
    first = folder.checkpoint_step()
    steps, advance = [], Stack.advance
    monkeypatch.setattr(Stack, "advance", lambda stack: (steps.append(stack.step), advance(stack)))
    settings: dict[str, Any] = {"steps": 40, "batch": 16, "latents": 2, "quiet": True}
    (run,) = ub.train(BetaVAE(beta=4.0), "toy", seeds=[1], out=runs, add=True, **settings)
    assert run.id == HALF_TRAINED
    assert steps == list(range(first, 40))
    assert 0 < first < 40
    wanted, resumed = load_file(RELEASE / "resumed.safetensors"), load_file(runs / HALF_TRAINED / "weights.safetensors")
    assert wanted.keys() == resumed.keys()
    for name, value in wanted.items():  # PyTorch's fused Adam, which that release did not use, rounds differently
        torch.testing.assert_close(resumed[name], value, rtol=0, atol=1e-5)
