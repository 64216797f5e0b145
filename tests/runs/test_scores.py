"""Scores in run folders: no record is lost if several processes write at the same time."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import unbraid as ub
from unbraid.runs.folder import RunFolder
from unbraid.runs.scores import add_scores, find_score, read_scores


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    (run,) = ub.train(ub.methods.VAE(), data="toy", steps=2, latents=4, out=tmp_path, quiet=True)
    assert run.path is not None
    return RunFolder.open(run.path)


def test_records_written_concurrently_are_all_stored(folder: RunFolder) -> None:
    records = [
        {"metric": "mig", "codes": "mean", "seed": seed, "values": {"discrete_mig": seed / 50}} for seed in range(50)
    ]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda record: add_scores(folder.path, [record]), records))
    assert sorted(read_scores(folder.path), key=lambda record: record["seed"]) == records


def test_a_key_is_stored_once_and_replaced_on_request(folder: RunFolder) -> None:
    first = {"metric": "udr", "codes": "mean", "among": [1], "values": {"score": 0.5}}
    assert add_scores(folder.path, [first, {**first, "values": {"score": 0.6}}]) == [first]
    second = {"metric": "udr", "codes": "mean", "among": [1, 2], "values": {"score": 0.7}}
    assert add_scores(folder.path, [second], replaced=lambda record: record["metric"] == "udr") == [second]
    assert find_score(read_scores(folder.path), {"metric": "udr", "among": [1]}) is None


TRIALS = [0, *(pytest.param(trial, marks=pytest.mark.slow) for trial in range(1, 20))]


@pytest.mark.parametrize("trial", TRIALS)
def test_two_concurrent_score_commands_lose_nothing(folder: RunFolder, trial: int) -> None:
    metrics = ("mig,sap,modularity", "jemmig,mig_sup,mcc")
    command = [sys.executable, "-m", "unbraid", "score", str(folder.path.parent), "--no-bounds", "--quiet"]
    processes = [subprocess.Popen([*command, "--metrics", names], stdout=subprocess.DEVNULL) for names in metrics]
    assert [process.wait(timeout=300) for process in processes] == [0, 0]
    assert {record["metric"] for record in read_scores(folder.path)} == set(",".join(metrics).split(","))
