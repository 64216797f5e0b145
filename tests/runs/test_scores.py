"""Scores in run folders: no record is lost if several processes write at the same time."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import unbraid as ub
from unbraid.data.dataset import FactorData
from unbraid.runs.folder import RunFolder
from unbraid.runs.results import latest_scores
from unbraid.runs.scores import add_scores, find_score, read_scores
from unbraid.scoring.sides import ScoredRun


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


def half_of_toy() -> FactorData:
    """Return other data that runs on `toy` can encode."""
    toy = ub.data.load("toy")
    half = range(0, len(toy), 2)
    return ub.data.from_arrays(toy.images(half), toy.factors(half), name="half")


def test_records_without_draws_are_kept_as_they_are(folder: RunFolder) -> None:
    """Older records do not say how rows were drawn. They are read with `draws`, and their lines never change."""
    old = {"metric": "mig", "codes": "mean", "rows": {"train": 10}, "seed": 0, "values": {"discrete_mig": 0.5}}
    add_scores(folder.path, [old])
    before = (folder.path / "scores.jsonl").read_bytes()
    new = {**old, "metric": "sap", "draws": "disjoint"}
    assert add_scores(folder.path, [new, {**old, "draws": "reference"}]) == [{**old, "draws": "reference"}, new]
    assert (folder.path / "scores.jsonl").read_bytes().startswith(before)
    assert read_scores(folder.path) == [{**old, "draws": "reference"}, new]


def test_scores_on_other_data_do_not_replace_those_on_the_data_of_the_run(folder: RunFolder, tmp_path: Path) -> None:
    [own] = ub.score(folder.path, "mig", quiet=True)
    [other] = ub.score(folder.path, "mig", data=half_of_toy(), quiet=True)
    assert own["mig.discrete_mig"] != other["mig.discrete_mig"]
    assert ScoredRun.read(folder).value("mig") == own["mig.discrete_mig"]
    assert latest_scores(folder)["mig.discrete_mig"] == own["mig.discrete_mig"]
    ub.load_run(folder.path).save_pretrained(tmp_path / "shared")
    assert f"| mig | {own['mig.discrete_mig']:.4f} |" in (tmp_path / "shared" / "README.md").read_text()


def test_scores_on_other_data_are_used_if_there_are_no_others(folder: RunFolder) -> None:
    [row] = ub.score(folder.path, "mig", data=half_of_toy(), quiet=True)
    assert ScoredRun.read(folder).value("mig") == row["mig.discrete_mig"]


TRIALS = [0, *(pytest.param(trial, marks=pytest.mark.slow) for trial in range(1, 20))]


@pytest.mark.parametrize("trial", TRIALS)
def test_two_concurrent_score_commands_lose_nothing(folder: RunFolder, trial: int) -> None:
    metrics = ("mig,sap,modularity", "jemmig,mig_sup,mcc")
    command = [sys.executable, "-m", "unbraid", "score", str(folder.path.parent), "--no-bounds", "--quiet"]
    processes = [subprocess.Popen([*command, "--metrics", names], stdout=subprocess.DEVNULL) for names in metrics]
    assert [process.wait(timeout=300) for process in processes] == [0, 0]
    assert {record["metric"] for record in read_scores(folder.path)} == set(",".join(metrics).split(","))


def test_a_later_record_replaces_all_values_of_an_earlier_one(folder: RunFolder) -> None:
    """Accuracies with 200 training rows must not stay beside those of a later protocol with 80."""
    for train in (200, 80):
        ub.score(folder.path, "downstream_lr", protocol=ub.Protocol(train=train, test=40), codes="mean", quiet=True)
    names = [name for name in latest_scores(folder) if name.endswith(":mean_test_accuracy")]
    assert names == ["downstream_lr.10:mean_test_accuracy", "downstream_lr.80:mean_test_accuracy"]
