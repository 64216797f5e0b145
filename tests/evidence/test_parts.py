"""The plan of the evidence, and how the results of its parts are collected."""

from __future__ import annotations

import importlib.util
import itertools
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
import torch

import unbraid as ub
from unbraid.errors import UserError
from unbraid.methods import METHODS
from unbraid.runs.results import load_results
from unbraid.studies.beyond import DATASETS
from unbraid.studies.runner import planned_runs

SCRIPT = Path(__file__).parents[2] / "evidence" / "parts.py"


@pytest.fixture(scope="module")
def parts() -> ModuleType:
    spec = importlib.util.spec_from_file_location("evidence_parts", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def plan(parts):
    return parts.read_plan()


def test_no_run_belongs_to_two_parts(plan):
    ids = [run for part in plan.values() for run in part.run_ids]
    assert len(ids) == len(set(ids)) > 300


def test_every_collected_run_belongs_to_the_part_of_its_row(parts, plan):
    table = pd.read_csv(parts.RESULTS)
    assert not table["run"].duplicated().any()
    for name, rows in table.groupby("part"):
        assert set(rows["run"]) <= set(plan[name].run_ids)
        assert rows[["commit", "device"]].notna().all(axis=None)


def test_the_next_part_is_the_first_that_is_not_finished(parts, plan):
    first, second, *_ = plan.values()
    assert parts.next_part(plan, set()) is first
    assert parts.next_part(plan, set(first.run_ids)) is second
    assert parts.next_part(plan, {run for part in plan.values() for run in part.run_ids}) is None


def test_a_part_stays_within_ten_minutes(plan):
    """Checked for the new parts at the speeds of the plan. The first five were planned at higher ones."""
    for part in list(plan.values())[5:]:
        assert part.seconds <= 600, part.name


def test_estimates_count_steps_batches_and_methods(plan):
    assert plan["locatello-dsprites-factor-vae"].seconds == 30 * 150_000 / 10_000
    large = plan["hsu-shapes3d-vaes"]
    assert {run.spec.batch for run in large.runs} == {128}
    assert large.steps_to_train == 10 * 200_000
    assert large.seconds == pytest.approx(2 * large.steps_to_train / 18_000)


def test_every_method_of_the_library_has_a_part_on_each_dataset(plan):
    """Each method is trained with 5 seeds on 3 datasets, and all methods but PCA and ICA for equally many steps."""
    runs = [run for name, part in plan.items() if name.startswith("beyond-") for run in part.runs]
    counts = Counter((run.facts()["method"], run.spec.data) for run in runs)
    assert set(counts) == set(itertools.product(METHODS, DATASETS))
    assert set(counts.values()) == {5}
    steps = {(run.spec.steps, run.facts()["method"]) for run in runs}
    assert {method for count, method in steps if count != 100_000} == {"pca", "ica"}


def test_runs_without_labels_are_in_the_parts_of_another_study(plan):
    """The study of 100 labels has 30 runs with labels of its own. The other 30 are runs of `locatello2019`."""
    planned = {run.spec.id for run in planned_runs("locatello2020_labels")}
    parts = {name: {run.spec.id for run in part.runs} for name, part in plan.items()}
    own = set().union(*(ids for name, ids in parts.items() if name.startswith("labels-dsprites-")))
    other = set().union(*(ids for name, ids in parts.items() if name.startswith("locatello-dsprites-")))
    assert own <= planned
    assert len(own) == 30
    assert planned - own <= other


def test_an_entry_varies(parts):
    vary = {"data": ["cars3d"], "method": ["beta_vae", "factor_vae"]}
    first, second = parts.expand({"name": "a-{method}", "paper": "{data}", "only": {}, "vary": vary})
    assert (first["name"], second["name"], first["paper"]) == ("a-beta-vae", "a-factor-vae", "cars3d")
    assert second["only"] == {"data": ["cars3d"], "method": ["factor_vae"]}


def test_stand_ins_replace_datasets(plan):
    runs = plan["slow-vae-shapes3d-rendered"].runs
    assert {run.spec.data for run in runs} == {"shapes3d_rendered"}
    originals = [run for run in planned_runs("klindt2021") if run.spec.data == "shapes3d"]
    assert [(run.spec.seed, run.level) for run in runs] == [(run.spec.seed, run.level) for run in originals]


def test_a_part_trains_the_runs_that_no_other_machine_has_finished(parts, tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "PRECISION", "fp32")
    monkeypatch.setattr(parts, "FOLDER", tmp_path)
    selection = {"method": ["beta_vae"], "level": ["5"], "data": ["toy"]}
    part = parts.Part("small", "test", "small", selection, ["mig"], seeds=[0, 1], steps=2)
    first, second = part.run_ids
    folder = part.run({first}, "cpu")
    assert {run.spec.id for run in ub.load_runs(folder)} == {second}
    assert parts.collect(part, folder, tmp_path / "results.csv", device="cpu") == 1
    if not torch.cuda.is_available():
        assert pd.read_csv(tmp_path / "results.csv")["device"].tolist() == ["cpu"]
    by_name = tmp_path / "by_name"
    ub.study("small", by_name, only=selection, seeds=[1], steps=2, metrics=["mig"], precision="fp32", quiet=True)
    pd.testing.assert_frame_equal(load_results(folder), load_results(by_name))


def test_a_part_uses_the_stored_manipulation_unless_there_is_one(parts, plan, tmp_path, monkeypatch):
    monkeypatch.setenv("UNBRAID_DATA", str(tmp_path))
    file, stored = tmp_path / "modified" / "dsprites.safetensors", SCRIPT.parent / "modified" / "dsprites.safetensors"
    parts.provide_manipulations(plan["demystifying-dsprites-original"].runs)
    assert not file.exists()
    parts.provide_manipulations(plan["demystifying-dsprites-manipulated-pairs"].runs)
    assert file.read_bytes() == stored.read_bytes()
    assert ub.data.load("dsprites?modified=default").shape == (1, 64, 64)
    file.write_bytes(b"mine")
    parts.provide_manipulations(plan["demystifying-dsprites-manipulated-pairs"].runs)
    assert file.read_bytes() == b"mine"


def test_an_unknown_part_is_an_error(parts, plan):
    with pytest.raises(UserError, match="demystifying-dsprites-original"):
        parts.find_part("demystifying-dsprites-orginal", plan)


def test_collecting_twice_adds_each_finished_run_once(parts, tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "PRECISION", "fp32")
    selection = {"method": ["beta_vae"], "level": ["0"], "data": ["toy"]}
    part = parts.Part("small", "test", "small", selection, ["mig"], seeds=[0, 1], steps=2)
    folder, results = tmp_path / "runs", tmp_path / "results.csv"
    ub.study("small", folder, only=selection, seeds=[0], steps=2, metrics=["mig"], samples=50, quiet=True)
    assert parts.collect(part, folder, results) == 1
    ub.study("small", folder, only=selection, seeds=[0, 1], steps=2, metrics=["mig"], samples=50, quiet=True)
    assert parts.collect(part, folder, results) == 1
    assert parts.collect(part, folder, results) == 0
    table = pd.read_csv(results)
    assert set(table["run"]) == set(part.run_ids)
    assert table["mig.discrete_mig"].notna().all()
    other = parts.Part("other", "test", "small", selection, ["mig"], seeds=[0], steps=3)
    assert parts.collect(other, folder, results) == 0


def test_a_folder_without_runs_adds_nothing(parts, tmp_path):
    part = parts.Part("small", "test", "small", {"data": ["toy"]}, ["mig"], seeds=[0], steps=2)
    assert parts.collect(part, tmp_path / "runs", tmp_path / "results.csv", running=True) == 0
    assert not (tmp_path / "results.csv").exists()


def test_a_part_whose_runs_are_missing_is_an_error(parts, tmp_path, monkeypatch):
    """For example because its dataset must be downloaded, so the study leaves all runs out."""
    monkeypatch.setattr(parts, "FOLDER", tmp_path)
    monkeypatch.setattr(parts, "RESULTS", tmp_path / "results.csv")
    monkeypatch.setattr(parts.Part, "run", lambda *arguments: None)
    part = parts.Part("small", "test", "small", {"data": ["toy"]}, ["mig"], seeds=[0], steps=2)
    with pytest.raises(UserError, match=r"All \d+ runs of small must be trained and scored"):
        parts.run_part(part)


def test_adding_rows_keeps_the_digits_of_others(parts, tmp_path):
    results, value = tmp_path / "results.csv", 0.2322243813571281
    parts.add_rows(results, pd.DataFrame({"run": ["a"], "score": [value]}))
    before = results.read_text()
    for name in "bcdefgh":
        parts.add_rows(results, pd.DataFrame({"run": [name], "score": [value / 3]}))
    assert results.read_text().startswith(before)


def test_runs_without_all_scores_are_not_collected_while_a_part_runs(parts, tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "PRECISION", "fp32")
    selection = {"method": ["beta_vae"], "level": ["0"], "data": ["toy"]}
    part = parts.Part("small", "test", "small", selection, ["mig", "sap"], seeds=[0, 1], steps=2)
    folder, results = tmp_path / "runs", tmp_path / "results.csv"
    ub.study("small", folder, only=selection, seeds=[0, 1], steps=2, metrics=["mig"], samples=50, quiet=True)
    assert parts.collect(part, folder, results, running=True) == 0
    ub.study("small", folder, only=selection, seeds=[1], steps=2, metrics=["mig", "sap"], samples=50, quiet=True)
    assert parts.collect(part, folder, results, running=True) == 1
    assert set(pd.read_csv(results)["seed"]) == {1}
    assert parts.collect(part, folder, results) == 1


ADD_ROWS = """
import sys
from pathlib import Path

import pandas as pd

sys.path.insert(0, {folder!r})
import parts

name, table, start = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
print("ready", flush=True)
while not start.exists():
    pass
for index in range(25):
    row = pd.DataFrame({{"run": [f"{{name}}{{index}}"], "score": [1 / 3 + index], "part": [name], name: [index]}})
    assert parts.add_rows(table, row) == 1
"""


def test_parts_that_end_at_the_same_time_keep_all_their_rows(parts, tmp_path):
    """Two processes add 25 rows each, one at a time, to the same table. No row is lost, and no number changes."""
    results, start = tmp_path / "results.csv", tmp_path / "start"
    program = ADD_ROWS.format(folder=str(SCRIPT.parent))
    workers = [
        subprocess.Popen([sys.executable, "-c", program, name, results, start], stdout=subprocess.PIPE, text=True)
        for name in ("first", "second")
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    start.touch()
    for worker in workers:
        worker.communicate(timeout=120)
    assert [worker.returncode for worker in workers] == [0, 0]
    table = pd.read_csv(results).set_index("run")
    assert sorted(table.index) == sorted(f"{name}{index}" for name in ("first", "second") for index in range(25))
    assert all(table.loc[f"{name}7", "score"] == 1 / 3 + 7 for name in ("first", "second"))
    assert parts.collected_runs(results) == set(table.index)
