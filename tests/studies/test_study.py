"""Studies: their numbers, how they are cut, and what is left after kills and with company."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas
import pytest
import torch

import unbraid as ub
from unbraid import errors
from unbraid.errors import UserError
from unbraid.methods import METHODS, AnnealedVAE, BetaVAE
from unbraid.metrics.protocol import Protocol
from unbraid.nets.conv import locatello
from unbraid.nets.mlp import mlp
from unbraid.runs.folder import find_runs
from unbraid.runs.results import NAME, index, load
from unbraid.runs.spec import RunSpec
from unbraid.studies.cut import Cut, shard, stacked, written
from unbraid.studies.plan import plan
from unbraid.studies.planned import Planned, changed, crossed, swept
from unbraid.studies.published import SEVEN, STUDIES
from unbraid.studies.runner import Order, Stackful, available, claimed, fleets, prepared, run_study

SMALL = Protocol(train=200, test=100, table=300)


def small(seeds: int = 2, steps: int = 6) -> list[Planned]:
    """Two methods at two strengths on toy data."""
    settings = [*swept(BetaVAE, "beta", (1.0, 4.0)), *swept(METHODS["dip_vae_i"], "lambda_od", (1.0, 10.0))]
    return list(crossed(["toy"], settings, seeds, steps=steps, batch=8, latents=3))


def order(out: Path, **options: Any) -> Order:
    """Two metrics of small samples, and nothing at the end unless it is asked for."""
    return Order(out, metrics=["mig", "unsupervised"], protocol=SMALL, jobs=1, **{"closing": (), **options})


@pytest.mark.parametrize(("device", "wanted"), [("cuda", [64, 10, 8, 70, 2]), ("cpu", [32, 32, 10, 8, 70, 2])])
def test_small_stacks_are_claimed_together_on_a_gpu(device: str, wanted: list[int]) -> None:
    """Up to 64 runs of one dataset and network, in their order, none lost; on a CPU each stack alone."""
    a, b = SimpleNamespace(name="a"), SimpleNamespace(name="b")
    sizes = [(a, mlp, 32), (a, mlp, 32), (a, mlp, 10), (b, mlp, 8), (b, mlp, 70), (b, locatello, 2)]
    runs = crossed(["toy"], swept(BetaVAE, "beta", (1.0,)), 154)
    stacks: list[Any] = [Stackful([next(runs) for _ in range(n)], data, net) for data, net, n in sizes]  # type: ignore
    found = list(fleets(iter(stacks), device))
    assert [len(one.runs) for one in found] == wanted
    assert [run.index for one in found for run in one.runs] == list(range(154))
    assert [one.data.name for one in found] == ["a"] * (len(wanted) - 3) + ["b"] * 3
    assert [one.builder for one in found][-2:] == [mlp, locatello]


# Numbers.


def test_large_study_has_the_published_numbers() -> None:
    """Index = ((dataset * 36) + model) * 50 + seed; six methods of six strengths each."""
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
        assert (facts["data"], facts["seed"]) == (SEVEN[dataset], seed)
        assert (facts["method"], run.strength) == models[model]
        assert run.level == model % 6
    spec = runs[0].spec
    assert (spec.steps, spec.batch, spec.learning_rate, spec.latents) == (300_000, 64, 1e-4, 10)
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


# Cuts.


def test_cut_by_facts_seeds_and_steps() -> None:
    wanted = {"data": ["dsprites"], "method": ["beta_vae"], "beta": ["4", "16.0"]}
    runs = Cut(wanted, seeds=[0, 3], steps=900).of(STUDIES["locatello2019"]())
    assert [run.index for run in runs] == [100, 103, 250, 253]
    assert {run.spec.steps for run in runs} == {900}
    kept = Cut({"method": ["annealed_vae"], "data": ["cars3d"]}, seeds=[0], steps=3000).of(STUDIES["locatello2019"]())
    assert {run.spec.method.iteration_threshold for run in kept} == {1000}  # type: ignore[attr-defined]


@pytest.mark.parametrize(("scale", "seeds", "steps"), [(1.0, 50, 300_000), (0.01, 5, 30_000), (1e-8, 2, 100)])
def test_scale_is_the_share_of_the_work(scale: float, seeds: int, steps: int) -> None:
    runs = Cut({"data": ["dsprites"], "method": ["beta_vae"]}, scale=scale).of(STUDIES["locatello2019"]())
    assert len(runs) == 6 * seeds
    assert {run.spec.steps for run in runs} == {steps}


def test_other_data_takes_the_place_of_all() -> None:
    runs = Cut(data="sprites", scale=1e-4).of(STUDIES["locatello2019"]())
    assert {run.spec.data for run in runs} == {"sprites"}
    assert len(runs) == 36 * 2
    assert {run.spec.learning_rate for run in runs} == {1e-4}
    faster = Cut(data="sprites", scale=1e-4, learning_rate=5e-4).of(STUDIES["locatello2019"]())
    assert {run.spec.learning_rate for run in faster} == {5e-4}


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (lambda: Cut({"metod": ["vae"]}), "Unknown fact of a run 'metod'.*method"),
        (lambda: Cut({"data": ["mnist"]}), "Nothing of the study is left"),
        (lambda: Cut(seeds=[4, 5, 7]), "must be the study's, 0 to 4. Got 5, 7, which it does not have"),
        (lambda: Cut(scale=0), "above 0 and at most 1"),
        (lambda: Cut(steps=-1), "must not be negative"),
    ],
)
def test_bad_cuts_are_refused(cut: Any, message: str) -> None:
    with pytest.raises((UserError, ValueError), match=message):
        cut().of(STUDIES["pmp2021"]())


def test_shards_part_the_study_by_stacks() -> None:
    runs = Cut({"data": ["dsprites", "cars3d"]}, seeds=[0, 1]).of(STUDIES["locatello2019"]())
    parts = [shard(runs, i, 5) for i in range(1, 6)]
    assert sorted(run.index for part in parts for run in part) == [run.index for run in runs]
    keys = [{run.spec.stack_key() for run in part} for part in parts]
    assert sum(map(len, keys)) == len(set().union(*keys)) == 12
    with pytest.raises(ValueError, match=r"i from 1 to n\. Got 6/5"):
        shard(runs, 6, 5)


def test_stacks_keep_the_order_and_the_size() -> None:
    runs = small(seeds=5)
    assert [len(stack) for stack in stacked(runs)] == [10, 10]
    groups = stacked(runs, most=4)
    assert [len(group) for group in groups] == [4, 4, 2, 4, 4, 2]
    assert [run.index for group in groups for run in group] == list(range(20))
    assert all(len({run.spec.stack_key() for run in group}) == 1 for group in groups)


def test_schedules_follow_the_length() -> None:
    run = Planned(0, RunSpec(AnnealedVAE(), "toy", steps=1000), 1.0, 0)
    assert changed(run, steps=100).spec.method.iteration_threshold == 10_000  # type: ignore[attr-defined]
    assert changed(run, steps=1000).spec == run.spec
    assert changed(changed(run, steps=0), steps=5).spec.steps == 5
    assert changed(run, precision="bf16").spec.method == run.spec.method
    assert written(1e-4) == "0.0001"


# Running.


def table_of(out: Path) -> Any:
    return load(out).sort_values("index").reset_index(drop=True)


def test_a_study_runs_and_its_table_is_complete(tmp_path: Path) -> None:
    runs = small()
    path = run_study(runs, order(tmp_path), quiet=True)
    assert path == tmp_path / NAME
    table = table_of(tmp_path)
    assert len(table) == len(runs) == 8
    assert list(table["strength"]) == [run.strength for run in runs]
    assert list(table["level"]) == [run.level for run in runs]
    assert set(table["status"]) == {"done"}
    assert table["mig.discrete_mig"].between(0, 1).all()
    assert table["unsupervised.gaussian_total_correlation.sampled"].notna().all()
    assert (table["train.elbo"] + table["train.rec"] + table["train.kl"]).abs().max() < 1e-6
    again = run_study(runs, order(tmp_path), quiet=True)
    assert table_of(again).equals(table)


def test_the_table_is_rebuilt_from_folders_and_merged_copies(tmp_path: Path) -> None:
    """Two halves made apart, copied together: the same table as of a whole study."""
    runs = small()
    run_study(runs, order(tmp_path / "whole"), quiet=True)
    for i in (1, 2):
        run_study(shard(runs, i, 2), order(tmp_path / f"part{i}"), quiet=True)
    merged = tmp_path / "merged"
    for part in ("part1", "part2"):
        subprocess.run(["cp", "-r", f"{tmp_path / part}/.", str(merged)], check=True)
    index(merged, runs_as_made(runs, tmp_path / "whole"))
    assert table_of(merged).equals(table_of(tmp_path / "whole"))
    with pytest.raises(UserError, match="No results table"):
        load(tmp_path)
    with pytest.raises(UserError, match="No runs in"):
        index(tmp_path / "nowhere")


def runs_as_made(runs: list[Planned], out: Path) -> list[Planned]:
    """The runs as the machine made them (precision and network), by their folders."""
    return [run for stack in prepared(runs, order(out)) for run in stack.runs]


def test_a_table_may_be_a_csv(tmp_path: Path) -> None:
    rows = [
        {"run": f"r{seed}", "data": "toy", "method": "vae", "seed": seed, "mig.discrete_mig": 0.25} for seed in (0, 1)
    ]
    path = tmp_path / "table.csv"
    pandas.DataFrame(rows).to_csv(path, index=False)
    assert load(path).to_dict("records") == rows
    path.write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match=r"columns run, data, method, seed too\. Got a, b"):
        load(path)
    path.write_bytes(b"")
    with pytest.raises(UserError, match="cannot be read"):
        load(path)
    path.write_bytes(b"\xff\xfe\x00run")
    with pytest.raises(UserError, match="cannot be read"):
        load(path)


def test_levels_are_numbered_without_a_study(tmp_path: Path) -> None:
    run_study(small(), order(tmp_path), quiet=True)
    (tmp_path / "study.json").unlink()
    table = load(index(tmp_path))
    beta = table[table["method"] == "beta_vae"]
    assert dict(zip(beta["strength"], beta["level"], strict=True)) == {1.0: 0, 4.0: 1}


def test_a_stack_is_claimed_by_one(tmp_path: Path) -> None:
    stack = next(iter(prepared(small(), order(tmp_path))))
    with claimed(tmp_path, stack) as first, claimed(tmp_path, stack) as second:
        assert first
        assert not second
    with claimed(tmp_path, stack) as again:
        assert again


def test_missing_data_is_left_out_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNBRAID_DATA", str(tmp_path))
    runs = list(crossed(["toy", "smallnorb"], swept(BetaVAE, "beta", (1.0,)), 1))
    kept, reasons = available(runs)
    assert [run.spec.data for run in kept] == ["toy"]
    assert "smallnorb" in reasons
    with pytest.raises(errors.UserError):
        available(runs[1:])


def test_plan_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unbraid.studies.plan.TRIAL_SECONDS", 0.05)
    found = plan(small(steps=1000), order(tmp_path))
    assert [(e.data, e.method, e.runs, e.stacks, e.steps) for e in found] == [
        ("toy", "beta_vae", 4, 1, 1000), ("toy", "dip_vae_i", 4, 1, 1000),
    ]  # fmt: skip
    assert all(e.seconds == pytest.approx(4000 / e.rate) for e in found)
    numbers = sum(p.numel() for p in ub.train(BetaVAE(), "toy", steps=0, latents=3, quiet=True)[0].net.parameters())
    assert [e.memory for e in found] == [4 * 4 * 4 * numbers] * 2  # four runs; weights, gradients and two moments
    assert not list(tmp_path.iterdir())


def command(out: Path, *more: str) -> list[str]:
    flags = ["--data", "toy", "--only", "level=0,5", "--seeds", "0-1", "--steps", "150"]
    return [
        sys.executable,
        "-m",
        "unbraid",
        "study",
        "locatello2019",
        "--out",
        str(out),
        "--samples",
        "200",
        "--metrics",
        "mig,information,udr",
        *flags,
        *more,
    ]


def weights(out: Path) -> dict[str, dict[str, torch.Tensor]]:
    return {run.path.name: run.weights() for run in find_runs(out)}


@pytest.mark.slow
def test_killed_again_and_again_it_ends_as_undisturbed(tmp_path: Path) -> None:
    """Ten kills at odd moments, two processes at once at the end: every run once, bit for bit that of a whole study."""
    only = ("--only", "method=beta_vae,dip_vae_i,annealed_vae", "--quiet")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command(tmp_path / "whole", *only), check=True, env=environment)
    for i in range(10):
        child = subprocess.Popen(command(tmp_path / "cut", *only), env=environment)
        time.sleep(3 + 0.7 * i)
        child.send_signal(signal.SIGKILL)
        child.wait()
    pair = [subprocess.Popen(command(tmp_path / "cut", *only), env=environment) for _ in range(2)]
    assert [child.wait() for child in pair] == [0, 0]
    whole, cut = weights(tmp_path / "whole"), weights(tmp_path / "cut")
    assert whole.keys() == cut.keys()
    for name, parts in whole.items():
        assert all(torch.equal(value, cut[name][key]) for key, value in parts.items()), name
    assert table_of(tmp_path / "cut").equals(table_of(tmp_path / "whole"))
