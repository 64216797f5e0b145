"""Studies: their published numbers, how they are reduced, and that interrupted and shared studies are complete."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
import pytest
import torch

import unbraid as ub
from support.meshes import write_faust
from support.studies import assert_same_weights, small_settings, small_study, sorted_results
from unbraid.errors import UserError
from unbraid.methods import METHODS, PMP, AdaGVAE, AnnealedVAE, BetaVAE, Method, SemiVAE
from unbraid.nets.conv import locatello
from unbraid.nets.mlp import mlp
from unbraid.runs.only import text_as_typed
from unbraid.runs.results import RESULTS_FILE, load_results, write_results
from unbraid.runs.spec import RunSpec
from unbraid.studies.checking import trainable_runs
from unbraid.studies.estimate import estimate_study, estimated_tasks
from unbraid.studies.local import run_study
from unbraid.studies.planned import PlannedRun, grid, replace_spec, scale_schedules, sweep
from unbraid.studies.pmp import EXAMPLES, TERMS, steps_of_epochs
from unbraid.studies.published import SEVEN_DATASETS, STUDIES
from unbraid.studies.reduction import Reduction, select_shard
from unbraid.studies.runner import plan_study, study
from unbraid.studies.stacks import StudyStack, claim_stack, merge_small_stacks, study_stacks
from unbraid.training.active import RunInTraining
from unbraid.training.schedule import stack_groups


@pytest.mark.parametrize(("device", "wanted"), [("cuda", [64, 10, 8, 70, 2]), ("cpu", [32, 32, 10, 8, 70, 2])])
def test_small_stacks_are_merged_on_a_gpu(device: str, wanted: list[int]) -> None:
    """Merged stacks have up to 64 runs of one dataset and network; the order is kept. On a CPU nothing is merged."""
    a, b = SimpleNamespace(name="a"), SimpleNamespace(name="b")
    sizes = [(a, mlp, 32), (a, mlp, 32), (a, mlp, 10), (b, mlp, 8), (b, mlp, 70), (b, locatello, 2)]
    runs = grid(["toy"], sweep(BetaVAE, "beta", (1.0,)), 154)
    stacks: list[Any] = [StudyStack([next(runs) for _ in range(n)], data, net) for data, net, n in sizes]  # type: ignore
    merged = list(merge_small_stacks(iter(stacks), device))
    assert [len(stack.runs) for stack in merged] == wanted
    assert [run.index for stack in merged for run in stack.runs] == list(range(154))
    assert [stack.data.name for stack in merged] == ["a"] * (len(wanted) - 3) + ["b"] * 3
    assert [stack.builder for stack in merged][-2:] == [mlp, locatello]


def test_a_study_forms_the_stacks_of_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU with memory for four runs, six runs are two stacks of three in a study and in `train`."""
    data = ub.data.load("toy")
    monkeypatch.setattr(type(data), "device", torch.device("cuda"))
    monkeypatch.setattr("unbraid.training.schedule.max_runs_in_memory", lambda *_: 4)
    monkeypatch.setattr("unbraid.studies.stacks.load_data", lambda *_: data)
    monkeypatch.setattr("unbraid.studies.stacks.fields_from_data", lambda *_: {"net": "mlp"})
    planned = small_study(seeds=3)
    stacks = list(study_stacks(planned, small_settings(tmp_path, device="cuda")))
    assert [len(stack.runs) for stack in stacks] == [3, 3, 3, 3]
    specs = [run.spec for stack in stacks for run in stack.runs]
    training = [RunInTraining(spec, None) for spec in specs]
    groups = list(stack_groups(training, data, mlp))
    ids = [[[run.spec.id for run in runs] for runs in group.stacks] for group in groups]
    assert ids == [[[run.spec.id for run in stack.runs] for stack in stacks]]


# Published numbers.


def test_large_study_has_the_published_numbers() -> None:
    """Index = ((dataset * 36) + model) * 50 + seed; six methods with six strengths each."""
    runs = list(STUDIES["locatello2019"]())
    assert len(runs) == 12_600
    assert [run.index for run in runs] == list(range(12_600))
    assert len({run.spec.id for run in runs}) == 12_600
    strengths = {
        "beta_vae": [1, 2, 4, 6, 8, 16], "factor_vae": [10, 20, 30, 40, 50, 100], "dip_vae_i": [1, 2, 5, 10, 20, 50],
        "dip_vae_ii": [1, 2, 5, 10, 20, 50], "beta_tcvae": [1, 2, 4, 6, 8, 10],
        "annealed_vae": [5, 10, 25, 50, 75, 100],
    }  # fmt: skip
    models = [(name, value) for name, values in strengths.items() for value in values]
    for dataset, model, seed in ((0, 0, 0), (0, 35, 49), (3, 13, 7), (6, 35, 49)):
        run = runs[((dataset * 36) + model) * 50 + seed]
        facts = run.facts()
        assert (facts["data"], facts["seed"]) == (SEVEN_DATASETS[dataset], seed)
        assert (facts["method"], run.strength) == models[model]
        assert run.level == model % 6
    spec = runs[0].spec
    assert (spec.steps, spec.batch, spec.learning_rate, spec.latents) == (300_000, 64, 1e-4, 10)
    shorter = {run.facts()["method"]: run.spec.steps for run in runs if run.spec.steps != spec.steps}
    assert shorter == {"factor_vae": 150_000}  # the authors' code counts each update as two steps
    dip = [run.spec.method for run in runs if run.index in (12 * 50, 18 * 50)]
    assert [m.lambda_d_factor for m in dip] == [10, 1]  # type: ignore[attr-defined]
    annealed = runs[30 * 50].spec.method
    assert isinstance(annealed, AnnealedVAE)
    assert (annealed.gamma, annealed.iteration_threshold, annealed.c_max) == (1000, 100_000, 5)


@pytest.mark.parametrize("name", STUDIES)
def test_studies_are_numbered_and_without_repeats(name: str) -> None:
    runs = list(STUDIES[name]())
    assert [run.index for run in runs] == list(range(len(runs)))
    assert len({run.spec.id for run in runs}) == len(runs)
    assert STUDIES[name].__doc__
    assert "Reference:" in str(STUDIES[name].__doc__)


# Reduced studies.


def test_runs_are_selected_by_properties_seeds_and_steps() -> None:
    wanted = {"data": ["dsprites"], "method": ["beta_vae"], "beta": ["4", "16.0"]}
    runs = Reduction(wanted, seeds=[0, 3], steps=900).apply(STUDIES["locatello2019"]())
    assert [run.index for run in runs] == [100, 103, 250, 253]
    assert {run.spec.steps for run in runs} == {900}
    rescaled = Reduction({"method": ["annealed_vae"], "data": ["cars3d"]}, seeds=[0], steps=3000).apply(
        STUDIES["locatello2019"]()
    )
    assert {run.spec.method.iteration_threshold for run in rescaled} == {1000}  # type: ignore[attr-defined]


@pytest.mark.parametrize(("scale", "seeds", "steps"), [(1.0, 50, 300_000), (0.01, 5, 30_000), (1e-8, 2, 100)])
def test_scale_is_the_fraction_of_the_work(scale: float, seeds: int, steps: int) -> None:
    runs = Reduction({"data": ["dsprites"], "method": ["beta_vae"]}, scale=scale).apply(STUDIES["locatello2019"]())
    assert len(runs) == 6 * seeds
    assert {run.spec.steps for run in runs} == {steps}


def test_one_dataset_replaces_all_datasets_of_the_study() -> None:
    runs = Reduction(data="sprites", scale=1e-4).apply(STUDIES["locatello2019"]())
    assert {run.spec.data for run in runs} == {"sprites"}
    assert len(runs) == 36 * 2
    assert {run.spec.learning_rate for run in runs} == {1e-4}
    faster = Reduction(data="sprites", scale=1e-4, learning_rate=5e-4).apply(STUDIES["locatello2019"]())
    assert {run.spec.learning_rate for run in faster} == {5e-4}


@pytest.mark.parametrize(
    ("reduction", "message"),
    [
        (lambda: Reduction({"metod": ["vae"]}), "Unknown property of a run 'metod'.*method"),
        (lambda: Reduction({"data": ["mnist"]}), "None of the 120 runs has data=mnist"),
        (lambda: Reduction(seeds=[4, 5, 7]), "must be seeds of the study, 0 to 4. Got also 5, 7"),
        (lambda: Reduction(scale=0), "above 0 and at most 1"),
        (lambda: Reduction(steps=-1), "must not be negative"),
    ],
)
def test_invalid_selections_raise(reduction: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        reduction().apply(STUDIES["pmp2021"]())


def test_shards_divide_the_study_by_stacks() -> None:
    runs = Reduction({"data": ["dsprites", "cars3d"]}, seeds=[0, 1]).apply(STUDIES["locatello2019"]())
    parts = [select_shard(runs, i, 5) for i in range(1, 6)]
    assert sorted(run.index for part in parts for run in part) == [run.index for run in runs]
    keys = [{run.spec.stack_key() for run in part} for part in parts]
    assert sum(map(len, keys)) == len(set().union(*keys)) == 12
    with pytest.raises(UserError, match=r"i from 1 to n\. Got 6/5"):
        select_shard(runs, 6, 5)


def test_stacks_keep_the_order_and_the_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = small_study(seeds=5)
    assert [len(stack.runs) for stack in study_stacks(runs, small_settings(tmp_path))] == [10, 10]
    monkeypatch.setattr("unbraid.training.schedule.MAX_RUNS_PER_STACK_ON_CPU", 4)
    stacks = list(study_stacks(runs, small_settings(tmp_path)))
    assert [len(stack.runs) for stack in stacks] == [4, 4, 2, 4, 4, 2]
    assert [run.index for stack in stacks for run in stack.runs] == list(range(20))
    assert all(len({run.spec.stack_key() for run in stack.runs}) == 1 for stack in stacks)


def test_schedules_are_rescaled_with_the_steps() -> None:
    run = PlannedRun(0, RunSpec(AnnealedVAE(), "toy", steps=1000), 1.0, 0)
    assert replace_spec(run, steps=100).spec.method.iteration_threshold == 10_000  # type: ignore[attr-defined]
    assert replace_spec(run, steps=1000).spec == run.spec
    assert replace_spec(replace_spec(run, steps=0), steps=5).spec.steps == 5
    assert replace_spec(run, precision="bf16").spec.method == run.spec.method


@pytest.mark.parametrize("method", [*(make() for make in METHODS.values()), SemiVAE(family="annealed_vae")])
def test_all_schedules_that_are_measured_in_steps_are_rescaled(method: Method) -> None:
    assert scale_schedules(method, 0.01).schedule_end(0) == pytest.approx(method.schedule_end(0) / 100)
    assert method.schedule_end(0) or scale_schedules(method, 0.01) == method


def test_numbers_are_written_as_typed() -> None:
    assert text_as_typed(1e-4) == "0.0001"


# Running studies.


def test_a_study_runs_and_its_table_is_complete(tmp_path: Path) -> None:
    runs = small_study()
    path = run_study(runs, small_settings(tmp_path), quiet=True)
    assert path == tmp_path / RESULTS_FILE
    table = sorted_results(tmp_path)
    assert len(table) == len(runs) == 8
    assert list(table["strength"]) == [run.strength for run in runs]
    assert list(table["level"]) == [run.level for run in runs]
    assert set(table["status"]) == {"done"}
    assert table["mig.discrete_mig"].between(0, 1).all()
    assert table["unsupervised.gaussian_total_correlation.sampled"].notna().all()
    assert (table["train.elbo"] + table["train.rec"] + table["train.kl"]).abs().max() < 1e-6
    again = run_study(runs, small_settings(tmp_path), quiet=True)
    assert sorted_results(again).equals(table)


def test_study_takes_a_name_a_file_or_specs(tmp_path: Path) -> None:
    """The public function selects, trains, scores and writes; published studies use the draws of the reference."""
    options: dict[str, Any] = {"steps": 3, "metrics": ["mig"], "samples": 100, "quiet": True}
    only = {"method": "beta_vae", "level": ["0", "5"]}
    path = study("locatello2019", tmp_path / "name", data="toy", only=only, seeds=[0], **options)
    table = load_results(path)
    assert (len(table), set(table["steps"]), set(table["strength"])) == (2, {3}, {1.0, 16.0})
    assert table["mig.discrete_mig"].notna().all()
    assert '"draws": "reference"' in (tmp_path / "name" / "study.json").read_text()
    (tmp_path / "mine.toml").write_text('data = "toy"\nlatents = 3\n[[method]]\nname = "vae"\n')
    assert len(load_results(study(tmp_path / "mine.toml", tmp_path / "file", **options))) == 1
    assert '"draws": "disjoint"' in (tmp_path / "file" / "study.json").read_text()
    specs = [RunSpec(BetaVAE(), "toy", seed, steps=9, latents=3) for seed in range(3)]
    path = study(specs, tmp_path / "specs", shard=(1, 1), **{**options, "metrics": []})
    assert len(load_results(path)) == 3
    assert not list((tmp_path / "specs").glob("*/scores.jsonl"))


def test_study_rejects_invalid_arguments(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cluster_shared needs a cluster"):
        study("small", tmp_path, cluster_shared=True)
    with pytest.raises(UserError, match="must be cpu, or cuda"):
        study("small", tmp_path, device="tpu")
    with pytest.raises(UserError, match="Unknown metric 'mgi'"):
        study("small", tmp_path, metrics=["mgi"])
    with pytest.raises(UserError, match="at least one run"):
        study([], tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_table_is_written_again_from_merged_copies(tmp_path: Path) -> None:
    """Two halves made separately and copied into one folder give the same table as the whole study."""
    runs = small_study()
    run_study(runs, small_settings(tmp_path / "whole"), quiet=True)
    for i in (1, 2):
        run_study(select_shard(runs, i, 2), small_settings(tmp_path / f"part{i}"), quiet=True)
    merged = tmp_path / "merged"
    for part in ("part1", "part2"):
        subprocess.run(["cp", "-r", f"{tmp_path / part}/.", str(merged)], check=True)
    trained = [run for stack in study_stacks(runs, small_settings(tmp_path / "whole")) for run in stack.runs]
    write_results(merged, {run.spec.id: run.facts() for run in trained})
    assert sorted_results(merged).equals(sorted_results(tmp_path / "whole"))
    with pytest.raises(UserError, match="No results table"):
        load_results(tmp_path)
    with pytest.raises(UserError, match="No runs in"):
        write_results(tmp_path / "nowhere")


def test_a_table_may_be_a_csv(tmp_path: Path) -> None:
    rows = [
        {"run": f"r{seed}", "data": "toy", "method": "vae", "seed": seed, "mig.discrete_mig": 0.25} for seed in (0, 1)
    ]
    path = tmp_path / "table.csv"
    pandas.DataFrame(rows).to_csv(path, index=False)
    assert load_results(path).to_dict("records") == rows
    path.write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match=r"columns run, data, method, seed.*Got a, b"):
        load_results(path)
    path.write_bytes(b"")
    with pytest.raises(UserError, match="cannot be read"):
        load_results(path)
    path.write_bytes(b"\xff\xfe\x00run")
    with pytest.raises(UserError, match="cannot be read"):
        load_results(path)


def test_levels_are_numbered_without_a_study_file(tmp_path: Path) -> None:
    run_study(small_study(), small_settings(tmp_path), quiet=True)
    (tmp_path / "study.json").unlink()
    table = load_results(write_results(tmp_path))
    beta = table[table["method"] == "beta_vae"]
    assert dict(zip(beta["strength"], beta["level"], strict=True)) == {1.0: 0, 4.0: 1}


def test_a_stack_is_claimed_by_one_process(tmp_path: Path) -> None:
    stack = next(iter(study_stacks(small_study(), small_settings(tmp_path))))
    with claim_stack(tmp_path, stack) as first, claim_stack(tmp_path, stack) as second:
        assert first
        assert not second
    with claim_stack(tmp_path, stack) as again:
        assert again


def test_missing_data_is_left_out_with_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNBRAID_DATA", str(tmp_path))
    runs = list(grid(["toy", "smallnorb"], sweep(BetaVAE, "beta", (1.0,)), 1))
    with pytest.warns(RuntimeWarning, match="left out: smallnorb: The files of smallnorb"):
        trainable = trainable_runs(runs, small_settings(tmp_path))
    assert [run.spec.data for run in trainable] == ["toy"]
    with pytest.raises(UserError):
        trainable_runs(runs[1:], small_settings(tmp_path))


def test_runs_that_cannot_be_trained_are_left_out_and_the_others_go_on(tmp_path: Path) -> None:
    """Ada-GVAE cannot draw pairs from data that are not a grid. All runs are checked before the first is trained."""
    images = np.random.default_rng(0).integers(0, 256, (12, 64, 64), dtype=np.uint8)
    np.savez(tmp_path / "mine.npz", images=images, factors=np.arange(12)[:, None] % 5, names=["a"])
    settings = [*sweep(AdaGVAE, "beta", (1.0,)), *sweep(BetaVAE, "beta", (1.0,))]
    runs = list(grid([str(tmp_path / "mine.npz"), "toy"], settings, 1, steps=2, batch=4, latents=3))
    with pytest.warns(
        RuntimeWarning, match=r"left out: ada_gvae on .*mine.npz: AdaGVAE draws pairs by changing factors"
    ):
        path = study(runs, tmp_path / "out", metrics=[], quiet=True)
    table = load_results(path)
    assert sorted(table["method"]) == ["ada_gvae", "beta_vae", "beta_vae"]
    assert set(table["status"]) == {"done"}
    with pytest.raises(UserError, match="draws pairs by changing factors"):
        study(runs[:1], tmp_path / "none", metrics=[], quiet=True)
    assert not (tmp_path / "none").exists()


def test_the_table_keeps_the_positions_of_runs_that_an_earlier_command_trained(tmp_path: Path) -> None:
    """The strengths of level 1 stay at level 1 when another part of the study is added to the folder."""
    runs = small_study()
    for method in ("beta_vae", "dip_vae_i"):
        path = study(runs, tmp_path, only={"method": method, "level": "1"}, metrics=[], quiet=True)
    assert set(load_results(path)["level"]) == {1}


# Published settings of single papers.


def test_pmp_study_converts_epochs_and_names_its_ablations() -> None:
    """30 epochs of 32 pairs per step; an epoch has as many pairs as the data have examples."""
    runs = [run for run in STUDIES["pmp2021"]() if run.spec.seed == 0]
    pmp = [run for run in runs if isinstance(run.spec.method, PMP)]
    steps = {"dsprites": 691_200, "shapes3d": 450_000, "cars3d": 16_470, "smallnorb?instance=factor": 45_570}
    assert {run.spec.data: run.spec.steps for run in pmp} == steps
    assert steps == {name: steps_of_epochs(30, EXAMPLES[name], 32) for name in EXAMPLES}
    assert {(run.spec.learning_rate, run.spec.batch, run.spec.net) for run in pmp} == {(5e-4, 64, "fumero")}
    assert {run.spec.data for run in pmp if run.spec.likelihood == "bernoulli"} == {"dsprites"}
    assert {run.spec.likelihood for run in pmp if run.spec.data != "dsprites"} == {"gaussian"}
    for run in pmp:
        removed = [term for term in TERMS if getattr(run.spec.method, term) == 0]
        assert run.variant == (f"without {removed[0]}" if removed else "")
    ada = [run.spec for run in runs if isinstance(run.spec.method, AdaGVAE)]
    assert len(ada) == 4
    assert {(s.steps, s.learning_rate, s.net, s.likelihood) for s in ada} == {(300_000, 1e-4, "locatello", "bernoulli")}


def test_mesh_study_uses_faust_if_its_files_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it uses the built-in bodies. The settings of both are the same: PointNet, and those of table 4."""
    monkeypatch.setenv("UNBRAID_DATA", str(tmp_path))
    without = list(STUDIES["pmp_meshes"]())
    assert {run.spec.data for run in without} == {"bodies"}
    write_faust(tmp_path)
    runs = list(STUDIES["pmp_meshes"]())
    assert {run.spec.data for run in runs} == {"faust"}
    assert [replace(run.spec, data="bodies") for run in runs] == [run.spec for run in without]
    assert [run.variant for run in runs[::5]] == ["", *(f"without {term}" for term in TERMS)]
    for run in runs:
        method, spec = run.spec.method, run.spec
        assert isinstance(method, PMP)
        assert (spec.net, spec.likelihood, spec.learning_rate, spec.batch) == ("pointnet", "gaussian", 5e-4, 64)
        assert (spec.latents, spec.steps, method.subspaces, method.pairs) == (10, 16_470, 2, "sharing")
        removed = run.variant.removeprefix("without ")
        weights = {"distance": 0.1, "sparsity": 0.1, "consistency": 100.0, "regularisation": 1e-4}
        wanted = [0.0 if term == removed else weights[term] for term in TERMS]
        assert [getattr(method, term) for term in TERMS] == wanted


def test_challenge_study_has_the_settings_of_its_table() -> None:
    runs = list(STUDIES["diffusion2019"]())
    assert {run.variant: run.spec.latents for run in runs} == {"d = 10": 11, "d = 20": 21}
    assert {run.spec.likelihood for run in runs} == {"gaussian"}
    assert {run.spec.data for run in runs} == {"mpi3d_toy", "mpi3d_realistic", "mpi3d_real", "cars3d"}
    assert {(run.level, run.strength) for run in runs} == {(0, 1.0), (1, 2.5), (2, 10.0)}
    keys = [(run.spec.data, run.variant, run.level, run.spec.seed) for run in runs]
    assert len(set(keys)) == len(keys)


def test_likelihood_of_a_study_can_be_replaced(tmp_path: Path) -> None:
    options: dict[str, Any] = {"seeds": [0], "only": {"level": "0"}, "steps": 2, "metrics": [], "quiet": True}
    for likelihood, wanted in ((None, "gaussian"), ("normal", "normal")):
        path = study("diffusion2019", tmp_path / str(likelihood), data="toy", likelihood=likelihood, **options)
        table = load_results(path)
        assert set(table["likelihood"]) == {wanted}
        assert sorted(table["variant"]) == ["d = 10", "d = 20"]


def test_estimates_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unbraid.studies.estimate.TRIAL_SECONDS", 0.05)
    estimates = estimate_study(small_study(steps=1000), small_settings(tmp_path))
    assert [(e.data, e.method, e.runs, e.stacks, e.steps) for e in estimates] == [
        ("toy", "beta_vae", 4, 1, 1000), ("toy", "dip_vae_i", 4, 1, 1000),
    ]  # fmt: skip
    assert all(e.seconds == pytest.approx(4000 / e.rate) for e in estimates)
    numbers = sum(p.numel() for p in ub.train(BetaVAE(), "toy", steps=0, latents=3, quiet=True)[0].net.parameters())
    assert [e.memory for e in estimates] == [4 * 4 * 4 * numbers] * 2  # four runs; weights, gradients and two moments
    (first,) = plan_study(small_study(steps=1000), only={"method": "beta_vae"}, seeds=[0])
    assert (first.runs, first.steps) == (2, 1000)
    assert not list(tmp_path.iterdir())


def test_stacks_that_train_at_the_same_time_are_measured_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two small stacks of a GPU are one task with the rate of both. In this test the GPU is a CPU."""
    monkeypatch.setattr("unbraid.studies.estimate.TRIAL_SECONDS", 0.05)
    monkeypatch.setattr("unbraid.studies.stacks.load_data", lambda *_: ub.data.load("toy"))
    (estimate,) = estimate_study(small_study(steps=1000), small_settings(tmp_path, device="cuda"))
    assert estimate.method == "beta_vae + dip_vae_i"
    assert (estimate.runs, estimate.stacks, estimate.concurrent, estimate.tasks) == (8, 2, 2, ((8, 8000),))
    assert estimate.seconds == pytest.approx(8000 / estimate.rate)
    (task,) = estimated_tasks([estimate])
    assert (task.runs, task.seconds) == (8, pytest.approx(estimate.seconds))


@pytest.mark.slow
def test_a_study_that_is_killed_often_ends_with_the_same_runs(tmp_path: Path) -> None:
    """Ten kills at different times, then two processes at once: each run exists once and equals that of one process."""
    command = [
        sys.executable, "-m", "unbraid", "study", "locatello2019", "--samples", "200", "--metrics",
        "mig,information,udr", "--data", "toy", "--only", "level=0,5", "--seeds", "0-1", "--steps", "150",
        "--only", "method=beta_vae,dip_vae_i,annealed_vae", "--quiet", "--out",
    ]  # fmt: skip
    whole, killed = [*command, str(tmp_path / "whole")], [*command, str(tmp_path / "killed")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(whole, check=True, env=environment)
    for i in range(10):
        child = subprocess.Popen(killed, env=environment)
        time.sleep(3 + 0.7 * i)
        child.send_signal(signal.SIGKILL)
        child.wait()
    pair = [subprocess.Popen(killed, env=environment) for _ in range(2)]
    assert [child.wait() for child in pair] == [0, 0]
    assert_same_weights(tmp_path / "whole", tmp_path / "killed")
    assert sorted_results(tmp_path / "killed").equals(sorted_results(tmp_path / "whole"))


def test_metrics_of_a_study_may_have_options(tmp_path: Path) -> None:
    """Scores of different options are columns of their own, and a repeated study computes none of them again."""
    settings: dict[str, Any] = {"seeds": [0, 1], "steps": 3, "samples": 100, "quiet": True, "data": "toy"}
    only = {"method": "beta_vae", "level": "0"}
    metrics = ["mig", "mig?bins=3", "mig?bins=20", "udr"]
    table = load_results(ub.study("locatello2019", tmp_path, only=only, metrics=metrics, **settings))
    assert (table["mig.discrete_mig"] != table["mig?bins=3.discrete_mig"]).all()
    assert "mig?bins=20.discrete_mig" not in table
    stored = [(run.path / "scores.jsonl").read_bytes() for run in ub.load_runs(tmp_path) if run.path]
    ub.study("locatello2019", tmp_path, only=only, metrics=metrics, **settings)
    assert stored == [(run.path / "scores.jsonl").read_bytes() for run in ub.load_runs(tmp_path) if run.path]
    with pytest.raises(UserError, match=r"Unknown option of mig 'bans'\. Did you mean 'bins'"):
        ub.study("locatello2019", tmp_path, only=only, metrics=["mig?bans=3"], **settings)
