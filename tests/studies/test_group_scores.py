"""What a study adds at its end: nats and gaps of factors, active latents, UDR; once, whatever was killed or joined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import mutual_info_score
from test_study import SMALL, small, table_of
from test_study import order as quiet_order

import unbraid as ub
from unbraid.analysis import ANALYSES
from unbraid.analysis.demystifying import MANIPULATED
from unbraid.cli.study import STUDY_METRICS, wanted
from unbraid.errors import UserError
from unbraid.methods import METHODS, AnnealedVAE, BetaVAE
from unbraid.metrics import METRICS
from unbraid.runs.folder import find_runs
from unbraid.runs.results import load
from unbraid.runs.run import Run, load_runs
from unbraid.runs.scores import read_scores
from unbraid.runtime.files import write_lines
from unbraid.scoring.selection import drawn, rank
from unbraid.studies.cut import Cut
from unbraid.studies.group_scores import CLOSING, Closing, active_units, gaps_of
from unbraid.studies.planned import crossed, swept
from unbraid.studies.published import STUDIES
from unbraid.studies.runner import Order, run_study

NATS = [f"information.{name}" for name in "abcd"]


def order(out: Path, **options: Any) -> Order:
    """With what is added at the end."""
    return quiet_order(out, **{"closing": CLOSING, **options})


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight runs on toy data: four settings, two seeds."""
    out = tmp_path_factory.mktemp("study")
    run_study(small(), order(out), quiet=True)
    return out


def records(out: Path, metric: str) -> dict[str, list[dict[str, object]]]:
    """The records of one kind, by run."""
    return {
        run.path.name: [record for record in read_scores(run.path) if record["metric"] == metric]
        for run in find_runs(out)
    }


def literal(run: Run) -> list[float]:
    """Nats of each factor that the best code tells, by scikit-learn, on numpy's bins."""
    data = ub.data.load("toy")
    index = drawn(data, SMALL.train, SMALL.seed)
    codes, factors = run.encode(data.batch(index)).numpy(), data.factors(index).numpy()
    bins = [np.digitize(code, np.histogram(code, 20)[1][:-1]) for code in codes.T]
    return [max(mutual_info_score(column, factor) for column in bins) for factor in factors.T]


def test_the_table_has_nats_and_rankings(study: Path) -> None:
    table = load(study).set_index("run")
    runs = load_runs(study)
    for row in rank(runs, within="settings", examples=SMALL.train, quiet=True):
        assert table.loc[row["run"], "udr.score"] == pytest.approx(row["udr"], abs=1e-12)
        assert table.loc[row["run"], "udr.informative"] == row["informative"]
    for run in runs[:2]:
        assert table.loc[run.id, NATS].tolist() == pytest.approx(literal(run), abs=1e-9)
    assert table["udr.score"].nunique() > 2


def test_gaps_and_active_latents_by_hand(study: Path) -> None:
    """Gaps have the MIG of the same rows as their mean; a latent counts where its variance is below .8."""
    table, data = load(study).set_index("run"), ub.data.load("toy")
    index = drawn(data, SMALL.train, SMALL.seed)
    for run in load_runs(study):
        codes, factors = run.encode(data.batch(index)).numpy(), data.factors(index).numpy()
        gaps = table.loc[run.id, [f"gaps.{name}" for name in "abcd"]]
        assert gaps.mean() == pytest.approx(ub.metrics.mig(codes, factors)["discrete_mig"], abs=1e-9)
        narrow = run.posterior(data.batch(index)).logvar.exp().mean(0) < 0.8
        assert table.loc[run.id, "active.units"] == int(narrow.sum())
    assert (table["active.factors"] == 4).all()


def test_active_latents_are_counted_below_the_bound() -> None:
    data = ub.data.load("toy")
    assert active_units(np.array([0.79, 0.8, 1.0, 0.001]), data) == {"units": 2, "factors": 4}
    assert active_units(None, data) == {}
    assert gaps_of(np.zeros((8, 1)), np.zeros((8, 2), int), ["a", "b"]) == {}
    factors = np.indices((2, 4)).reshape(2, -1).T
    found = gaps_of(factors[:, [1, 1, 0]], np.c_[factors, 0 * factors[:, 0]], ["a", "b", "still"])
    assert found == pytest.approx({"a": 1.0, "b": 0.0})


def test_the_same_command_changes_nothing(study: Path) -> None:
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in study.glob("*/scores.jsonl")}
    run_study(small(), order(study), quiet=True)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in study.glob("*/scores.jsonl")} == before
    assert len(before) == 8


def test_what_a_kill_left_out_is_added(study: Path) -> None:
    """Some runs of a group written, some not: the next command makes the rest, and the same."""
    before = table_of(study)
    for run in find_runs(study)[::3]:
        write_lines(run.path / "scores.jsonl", [r for r in read_scores(run.path) if r["metric"] not in CLOSING])
    run_study(small(), order(study), quiet=True)
    assert table_of(study).equals(before)


def test_seeds_that_come_later_are_ranked_with_the_others(tmp_path: Path) -> None:
    run_study(small(seeds=2), order(tmp_path / "grown"), quiet=True)
    runs = [run for run in small(seeds=3) if run.spec.seed == 2]
    run_study(runs, order(tmp_path / "grown"), quiet=True)
    run_study(small(seeds=3), order(tmp_path / "whole"), quiet=True)
    for out in ("grown", "whole"):
        found = records(tmp_path / out, "udr")
        assert {len(kept) for kept in found.values()} == {1}
        assert {len(kept[0]["among"]) for kept in found.values()} == {3}  # type: ignore[arg-type]
    columns = ["run", "udr.score", *NATS]
    grown, whole = (load(tmp_path / out)[columns].sort_values("run", ignore_index=True) for out in ("grown", "whole"))
    assert grown.equals(whole)


def test_one_seed_has_no_ranking_and_says_so(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="left out: udr of 4 runs.*Train more seeds"):
        run_study(small(seeds=1), order(tmp_path), quiet=True)
    table = load(tmp_path)
    assert "udr.score" not in table
    assert table[NATS].notna().all(axis=None)
    assert (table[NATS] > 0).all(axis=None)


def test_only_what_is_asked_for(tmp_path: Path) -> None:
    run_study(small(seeds=1), order(tmp_path, closing=["information"]), quiet=True)  # a warning would be an error
    assert not any(records(tmp_path, "udr").values())
    run_study(small(seeds=1), order(tmp_path / "none", scored=False), quiet=True)
    assert not list((tmp_path / "none").glob("*/scores.jsonl"))


def test_data_without_factors_is_ranked_only(tmp_path: Path) -> None:
    np.save(tmp_path / "mine.npy", np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32))
    runs = list(crossed([str(tmp_path / "mine.npy")], swept(BetaVAE, "beta", (1.0,)), 2, steps=3, batch=8, latents=3))
    run_study(runs, Order(tmp_path / "out", metrics=["unsupervised"], protocol=SMALL, jobs=1), quiet=True)
    table = load(tmp_path / "out")
    assert table["udr.score"].notna().all()
    assert not [name for name in table if name.startswith("information.")]


def test_runs_of_others_are_left_alone(study: Path) -> None:
    """A group is looked at only where one of its runs is asked for."""
    mine = next(run for run in find_runs(study))
    Closing(study, protocol=SMALL, names=["udr"]).close([mine.spec.id])
    assert all(len(kept) == 1 for kept in records(study, "udr").values())
    Closing(study, protocol=SMALL).close(["nobody"])


@pytest.mark.parametrize(
    ("text", "metrics", "closing"),
    [
        (None, [name for name in STUDY_METRICS if name in METRICS], list(CLOSING)),
        ("mig,udr", ["mig"], ["udr"]),
        ("+irs,mig", [*(name for name in STUDY_METRICS if name in METRICS), "irs"], list(CLOSING)),
        ("none", [], []),
    ],
)
def test_metrics_of_the_command(text: str | None, metrics: list[str], closing: list[str]) -> None:
    assert wanted(text) == (metrics, closing)


def test_unknown_metrics_are_refused_before_anything_is_made() -> None:
    with pytest.raises(UserError, match="Did you mean 'udr'"):
        wanted("udrr")
    assert {"downstream_lr", "downstream_gbt", *CLOSING} <= set(STUDY_METRICS)


def test_several_datasets_take_the_place_of_the_first() -> None:
    runs = Cut(data=["sprites", "toy"], seeds=[0], steps=5).of(STUDIES["locatello2019"]())
    assert list(dict.fromkeys(run.spec.data for run in runs)) == ["sprites", "toy"]
    assert [run.index for run in runs] == [50 * i for i in range(72)]
    with pytest.raises(UserError, match=r"has 1 datasets to be replaced\. Got 2"):
        Cut(data=["sprites", "toy"]).of(crossed(["dsprites"], swept(BetaVAE, "beta", (1.0,)), 1))


def test_the_small_study_has_what_analyses_need() -> None:
    runs = list(STUDIES["small"]())
    assert len(runs) == 72
    facts = [run.facts() for run in runs]
    assert {(f["data"], f["likelihood"]) for f in facts} == {("sprites", "bernoulli"), ("toy", "gaussian")}
    assert len({f["method"] for f in facts}) == 6
    assert {f["level"] for f in facts} == {0, 2, 5}
    annealed = {f["iteration_threshold"] / f["steps"] for f in facts if f["method"] == "annealed_vae"}
    assert annealed == {1 / 3}


def test_every_analysis_answers_from_a_real_study(tmp_path: Path) -> None:
    """Untrained but for two steps, on two datasets: nothing is refused, and nothing has to be made up."""
    settings = [*swept(METHODS["dip_vae_i"], "lambda_od", (1.0, 50.0)), *swept(AnnealedVAE, "c_max", (5.0, 100.0))]
    data = ["toy", "toy?correlate=a:b:0.2"]
    runs = list(crossed(data, settings, 3, steps=2, batch=8, latents=3))
    names = ["mig", "modularity", "sap", "unsupervised", "downstream_gbt"]
    run_study(runs, Order(tmp_path, metrics=names, protocol=SMALL, jobs=1), quiet=True)
    table = load(tmp_path)
    assert len(table) == 24
    for name, analysis in ANALYSES.items():
        if name not in MANIPULATED:  # which need images: tests/test_demystifying.py
            assert len(analysis.run(table).table), name
    assert "information.a" in set(ANALYSES["capacity"].run(table).table["quantity"])
    assert "UDR" in set(ANALYSES["selection"].run(table).table["first"])


def test_records_say_how_they_were_made(study: Path) -> None:
    (kept,) = records(study, "information")[find_runs(study)[0].path.name]
    assert kept["rows"] == {"examples": SMALL.train}
    assert kept["options"] == {"bins": 20}
    assert json.loads(json.dumps(kept)) == kept
