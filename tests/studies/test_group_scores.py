"""Metrics of groups of runs: information and gaps per factor, active latents and the UDR, each computed once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import mutual_info_score

import unbraid as ub
from support.studies import SMALL_PROTOCOL, small_settings, small_study, sorted_results
from unbraid.analysis import ANALYSES
from unbraid.analysis.demystifying import MANIPULATED
from unbraid.cli.study import parse_metric_names
from unbraid.errors import UserError
from unbraid.methods import METHODS, AnnealedVAE, BetaVAE
from unbraid.metrics import METRICS
from unbraid.runs.folder import find_runs
from unbraid.runs.results import load_results
from unbraid.runs.run import Run, load_runs
from unbraid.runs.scores import read_scores
from unbraid.runtime.files import write_jsonl
from unbraid.scoring.code_statistics import count_active_latents, factor_gaps
from unbraid.scoring.selection import draw_examples, select
from unbraid.studies.group_scores import GROUP_METRICS, GroupScoring
from unbraid.studies.local import run_study
from unbraid.studies.planned import grid, sweep
from unbraid.studies.published import STUDIES
from unbraid.studies.reduction import Reduction
from unbraid.studies.settings import STUDY_METRICS, StudySettings, split_metrics

NATS = [f"information.{name}" for name in "abcd"]


def group_settings(out: Path, **options: Any) -> StudySettings:
    """Settings with all metrics of groups."""
    return small_settings(out, **{"group_metrics": GROUP_METRICS, **options})


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight runs on toy data: four settings, two seeds."""
    out = tmp_path_factory.mktemp("study")
    run_study(small_study(), group_settings(out), quiet=True)
    return out


def records(out: Path, metric: str) -> dict[str, list[dict[str, object]]]:
    """The records of one kind, by run."""
    return {
        run.path.name: [record for record in read_scores(run.path) if record["metric"] == metric]
        for run in find_runs(out)
    }


def reference_information(run: Run) -> list[float]:
    """The information of the best code about each factor in nats, by scikit-learn with the bins of numpy."""
    data = ub.data.load("toy")
    index = draw_examples(data, SMALL_PROTOCOL.train, SMALL_PROTOCOL.seed)
    codes, factors = run.encode(data.batch(index)).numpy(), data.factors(index).numpy()
    bins = [np.digitize(code, np.histogram(code, 20)[1][:-1]) for code in codes.T]
    return [max(mutual_info_score(column, factor) for column in bins) for factor in factors.T]


def test_the_table_has_information_and_udr(study: Path) -> None:
    table = load_results(study).set_index("run")
    runs = load_runs(study)
    for row in select(runs, within="settings", examples=SMALL_PROTOCOL.train, quiet=True):
        assert table.loc[row["run"], "udr.score"] == pytest.approx(row["udr"], abs=1e-12)
        assert table.loc[row["run"], "udr.informative"] == row["informative"]
    for run in runs[:2]:
        assert table.loc[run.id, NATS].tolist() == pytest.approx(reference_information(run), abs=1e-9)
    assert table["udr.score"].nunique() > 2


def test_gaps_and_active_latents_equal_direct_computation(study: Path) -> None:
    """The mean gap is the MIG of the same rows. A latent is active if its mean posterior variance is below .8."""
    table, data = load_results(study).set_index("run"), ub.data.load("toy")
    index = draw_examples(data, SMALL_PROTOCOL.train, SMALL_PROTOCOL.seed)
    for run in load_runs(study):
        codes, factors = run.encode(data.batch(index)).numpy(), data.factors(index).numpy()
        gaps = table.loc[run.id, [f"gaps.{name}" for name in "abcd"]]
        assert gaps.mean() == pytest.approx(ub.metrics.mig(codes, factors)["discrete_mig"], abs=1e-9)
        narrow = run.posterior(data.batch(index)).logvar.exp().mean(0) < 0.8
        assert table.loc[run.id, "active.units"] == int(narrow.sum())
    assert (table["active.factors"] == 4).all()


def test_active_latents_have_a_variance_below_the_bound() -> None:
    data = ub.data.load("toy")
    assert count_active_latents(np.array([0.79, 0.8, 1.0, 0.001]), data) == {"units": 2, "factors": 4}
    assert count_active_latents(None, data) == {}
    assert factor_gaps(np.zeros((8, 1)), np.zeros((8, 2), int), ["a", "b"]) == {}
    factors = np.indices((2, 4)).reshape(2, -1).T
    found = factor_gaps(factors[:, [1, 1, 0]], np.c_[factors, 0 * factors[:, 0]], ["a", "b", "still"])
    assert found == pytest.approx({"a": 1.0, "b": 0.0})


def test_running_a_study_again_changes_nothing(study: Path) -> None:
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in study.glob("*/scores.jsonl")}
    run_study(small_study(), group_settings(study), quiet=True)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in study.glob("*/scores.jsonl")} == before
    assert len(before) == 8


def test_scores_lost_in_a_kill_are_computed_again(study: Path) -> None:
    """If only some runs of a group have their scores, the next call computes the same scores for the others."""
    before = sorted_results(study)
    for run in find_runs(study)[::3]:
        write_jsonl(run.path / "scores.jsonl", [r for r in read_scores(run.path) if r["metric"] not in GROUP_METRICS])
    run_study(small_study(), group_settings(study), quiet=True)
    assert sorted_results(study).equals(before)


def test_seeds_added_later_are_ranked_with_the_others(tmp_path: Path) -> None:
    run_study(small_study(seeds=2), group_settings(tmp_path / "grown"), quiet=True)
    runs = [run for run in small_study(seeds=3) if run.spec.seed == 2]
    run_study(runs, group_settings(tmp_path / "grown"), quiet=True)
    run_study(small_study(seeds=3), group_settings(tmp_path / "whole"), quiet=True)
    for out in ("grown", "whole"):
        found = records(tmp_path / out, "udr")
        assert {len(kept) for kept in found.values()} == {1}
        assert {len(kept[0]["among"]) for kept in found.values()} == {3}  # type: ignore[arg-type]
    columns = ["run", "udr.score", *NATS]
    grown, whole = (
        load_results(tmp_path / out)[columns].sort_values("run", ignore_index=True) for out in ("grown", "whole")
    )
    assert grown.equals(whole)


def test_a_single_seed_has_no_udr_and_gives_a_warning(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="left out: udr of 4 runs.*Train more seeds"):
        run_study(small_study(seeds=1), group_settings(tmp_path), quiet=True)
    table = load_results(tmp_path)
    assert "udr.score" not in table
    assert table[NATS].notna().all(axis=None)
    assert (table[NATS] > 0).all(axis=None)


def test_only_the_wanted_metrics_are_computed(tmp_path: Path) -> None:
    run_study(small_study(seeds=1), group_settings(tmp_path, group_metrics=["information"]), quiet=True)
    assert not any(records(tmp_path, "udr").values())
    run_study(small_study(seeds=1), group_settings(tmp_path / "none", scored=False), quiet=True)
    assert not list((tmp_path / "none").glob("*/scores.jsonl"))


def test_data_without_factors_have_only_the_udr(tmp_path: Path) -> None:
    np.save(tmp_path / "mine.npy", np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32))
    runs = list(grid([str(tmp_path / "mine.npy")], sweep(BetaVAE, "beta", (1.0,)), 2, steps=3, batch=8, latents=3))
    run_study(
        runs, StudySettings(tmp_path / "out", metrics=["unsupervised"], protocol=SMALL_PROTOCOL, jobs=1), quiet=True
    )
    table = load_results(tmp_path / "out")
    assert table["udr.score"].notna().all()
    assert not [name for name in table if name.startswith("information.")]


def test_groups_without_a_wanted_run_are_not_scored(study: Path) -> None:
    """A group is scored only if one of its runs is wanted."""
    mine = next(run for run in find_runs(study))
    GroupScoring(study, protocol=SMALL_PROTOCOL, names=["udr"]).score([mine.spec.id])
    assert all(len(kept) == 1 for kept in records(study, "udr").values())
    GroupScoring(study, protocol=SMALL_PROTOCOL).score(["nobody"])


@pytest.mark.parametrize(
    ("text", "metrics", "group_metrics"),
    [
        (None, [name for name in STUDY_METRICS if name in METRICS], list(GROUP_METRICS)),
        ("mig,udr", ["mig"], ["udr"]),
        ("+irs,mig", [*(name for name in STUDY_METRICS if name in METRICS), "irs"], list(GROUP_METRICS)),
        ("none", [], []),
    ],
)
def test_metrics_of_the_command(text: str | None, metrics: list[str], group_metrics: list[str]) -> None:
    assert split_metrics(parse_metric_names(text)) == (metrics, group_metrics)


def test_unknown_metrics_raise() -> None:
    with pytest.raises(UserError, match="Did you mean 'udr'"):
        split_metrics(["udrr"])
    assert {"downstream_lr", "downstream_gbt", *GROUP_METRICS} <= set(STUDY_METRICS)


def test_several_datasets_replace_the_first_ones() -> None:
    runs = Reduction(data=["sprites", "toy"], seeds=[0], steps=5).apply(STUDIES["locatello2019"]())
    assert list(dict.fromkeys(run.spec.data for run in runs)) == ["sprites", "toy"]
    assert [run.index for run in runs] == [50 * i for i in range(72)]
    with pytest.raises(UserError, match=r"has 1 datasets that can be replaced\. Got 2 instead"):
        Reduction(data=["sprites", "toy"]).apply(grid(["dsprites"], sweep(BetaVAE, "beta", (1.0,)), 1))


def test_the_small_study_has_the_runs_that_analyses_need() -> None:
    runs = list(STUDIES["small"]())
    assert len(runs) == 72
    facts = [run.facts() for run in runs]
    assert {(f["data"], f["likelihood"]) for f in facts} == {("sprites", "bernoulli"), ("toy", "gaussian")}
    assert len({f["method"] for f in facts}) == 6
    assert {f["level"] for f in facts} == {0, 2, 5}
    annealed = {f["iteration_threshold"] / f["steps"] for f in facts if f["method"] == "annealed_vae"}
    assert annealed == {1 / 3}


def test_every_analysis_answers_from_a_real_study(tmp_path: Path) -> None:
    """Runs of two steps on two datasets are enough for every analysis of the large study.

    The exceptions need images, other studies, or 10,000 labelled rows, and have tests of their own.
    """
    other_studies = {"challenge", "pmp_comparison", "pmp_ablation", "stability", "ranking_agreement"}
    exceptions = {*MANIPULATED, *other_studies, "efficiency"}
    settings = [*sweep(METHODS["dip_vae_i"], "lambda_od", (1.0, 50.0)), *sweep(AnnealedVAE, "c_max", (5.0, 100.0))]
    data = ["toy", "toy?correlate=a:b:0.2"]
    runs = list(grid(data, settings, 3, steps=2, batch=8, latents=3))
    names = ["mig", "modularity", "sap", "unsupervised", "downstream_gbt"]
    run_study(runs, StudySettings(tmp_path, metrics=names, protocol=SMALL_PROTOCOL, jobs=1), quiet=True)
    table = load_results(tmp_path)
    assert len(table) == 24
    for name, analysis in ANALYSES.items():
        if name not in exceptions:
            assert len(analysis.run(table).table), name
    assert "information.a" in set(ANALYSES["capacity"].run(table).table["quantity"])
    assert "UDR" in set(ANALYSES["selection"].run(table).table["first"])


def test_records_contain_their_options(study: Path) -> None:
    (kept,) = records(study, "information")[find_runs(study)[0].path.name]
    assert kept["rows"] == {"examples": SMALL_PROTOCOL.train}
    assert kept["options"] == {"bins": 20}
    assert json.loads(json.dumps(kept)) == kept
