"""Scoring: protocols, identities of scores, bounds of metrics, ranking, and scoring in several processes."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import inspect
import json
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unbraid as ub
from support.edges import WITH_TWO_CODES
from support.known_codes import GRID, NOISY, factor_grid, noise
from unbraid.errors import UserError
from unbraid.metrics import DEFAULT_METRICS, METRICS, TRAITS, bounds, known_codes
from unbraid.metrics.identity import _library_versions
from unbraid.metrics.protocol import Protocol, Rows, check_comparable, differences, identity, identity_digest
from unbraid.runs.scores import read_protocol
from unbraid.scoring import tasks
from unbraid.scoring.selection import group_runs, select

SMALL = Protocol(train=300, test=200)
QUICK = ["mig", "sap", "dci"]


def all_rows(codes: Any, factors: Any = GRID) -> Rows:
    """Rows that are all used both to fit and to test."""
    return Rows(codes, factors, np.arange(len(codes)), np.arange(len(codes)))


def train_runs(count: int = 3, steps: int = 2, **options: Any) -> list[ub.Run]:
    return ub.train(ub.methods.VAE(), data="toy", seeds=range(count), steps=steps, quiet=True, **options)


def test_identity_has_all_fields_and_survives_json() -> None:
    for name in METRICS:
        found = identity(name, 3, {"train": 10, "test": 5, "table": 20})
        assert set(found) - {"interventions"} == {"metric", "estimator", "options", "rows", "draws", "seed", "versions"}
        assert found["estimator"]
        assert {"python", "unbraid", "numpy", "scipy", "scikit-learn", "numba"} <= set(found["versions"])
        assert json.loads(json.dumps(found)) == found
    assert identity("dci", 0, {})["options"] == {"trees": "fast", "importances": "mean"}


@pytest.fixture
def new_version(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pretend that a later version of unbraid is installed."""
    original = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "9.9" if name == "unbraid" else original(name))
    _library_versions.cache_clear()
    yield
    _library_versions.cache_clear()


def test_a_new_version_of_unbraid_keeps_scores_whose_numbers_are_the_same(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = train_runs(1, out=tmp_path)
    file = tmp_path / runs[0].id / "scores.jsonl"
    first = ub.score(tmp_path, ["mig", "mcc"], quiet=True)
    before = file.read_text()
    request.getfixturevalue("new_version")
    assert ub.score(tmp_path, ["mig", "mcc"], quiet=True) == first
    assert file.read_text() == before
    monkeypatch.setitem(TRAITS, "mcc", TRAITS["mcc"]._replace(revision="9.9"))
    changed = ub.score(tmp_path, ["mig", "mcc"], quiet=True)
    new = [json.loads(line) for line in file.read_text().splitlines()[len(before.splitlines()) :]]
    assert {(record["metric"], record["versions"]["unbraid"]) for record in new} == {("mcc", "9.9")}
    assert changed[0]["protocol"] != first[0]["protocol"]


def test_scores_computed_differently_are_not_compared() -> None:
    sizes = {"train": 10, "test": 5}
    one, same = identity("dci", 0, sizes), identity("dci", 0, dict(sizes))
    check_comparable([one, same])
    assert identity_digest([one]) == identity_digest([same])
    for other, field in [
        (identity("dci", 1, sizes), "seed"),
        (identity("dci", 0, {**sizes, "train": 11}), "rows"),
        (identity("dci", 0, sizes, "reference"), "draws"),
        ({**one, "options": {"trees": "sklearn"}}, "options"),
        ({**one, "versions": {"numpy": "0"}}, "versions"),
    ]:
        assert set(differences(one, other)) == {field}
        assert identity_digest([one]) != identity_digest([other])
        with pytest.raises(ValueError, match=f"These differ in {field}: "):
            check_comparable([one, other])


def test_table_of_a_large_grid_contains_complete_lines() -> None:
    sizes = (3, 6, 40, 32, 32)
    index = Protocol().grid_indices(sizes)
    assert len(index) == len(np.unique(index))
    assert 65_536 + 9_000 < len(index) < 65_536 + 100 * sum(sizes)
    factors = np.stack(np.unravel_index(index, sizes), axis=1)
    for j, size in enumerate(sizes):
        others = np.delete(factors, j, axis=1)
        _, counts = np.unique(others, axis=0, return_counts=True)
        assert (counts == size).sum() >= 95  # 100 lines; a few may coincide
        shares = np.bincount(factors[:, j], minlength=size) / len(factors)
        assert shares == pytest.approx(np.full(size, 1 / size), rel=0.15)


TESTED = {  # accuracies of metrics that are fitted to some rows and tested on others
    "dci": ["informativeness_test"],
    "downstream_gbt": ["mean_test_accuracy"],
    "downstream_lr": ["mean_test_accuracy"],
    "explicitness": ["explicitness_score_test"],
    "sap": ["SAP_score"],
    "reduced_downstream": ["mean_test_accuracy_reduced_factor", "mean_test_accuracy_other_factors"],
    "unified": ["accuracy_svm:sap"],
    "dci_es": ["mean_informativeness"],
    "snc": ["snc"],
    "nk": ["mean_test_accuracy", "mean_knockout_accuracy"],
}


def test_every_metric_with_test_rows_is_tested() -> None:
    taking = {name for name, metric in METRICS.items() if "test_codes" in inspect.signature(metric).parameters}
    assert set(TESTED) == taking


@pytest.mark.parametrize("name", TESTED)
@pytest.mark.parametrize("count", [200, 2_000, 20_000])
def test_noise_scores_at_chance_level(name: str, count: int) -> None:
    """With disjoint samples, accuracies of pure noise are at chance level for any number of rows."""
    factors = np.random.default_rng(1).integers((2, 3), size=(count, 2))
    rows = Protocol(train=3_000, test=1_500).rows(noise(count, 5), factors)
    values = rows.score([name], 0).values_or_raise()[name]
    accuracy = (1 / 2 + 1 / 3) / 2  # the mean over two factors, with 2 and 3 equally likely values
    gaps = dict.fromkeys(("sap", "unified", "dci_es"), 0.0)  # differences from other latents, or from chance
    chance = {"explicitness": 0.5, **gaps}.get(name, accuracy)  # explicitness is an area under the ROC curve
    for key in TESTED[name]:
        assert values[key] == pytest.approx(chance, abs=4 / math.sqrt(len(rows.test)) * 0.5 + 0.01)


def test_samples_are_disjoint_and_shrink_in_proportion() -> None:
    for count in (3, 200, 14_999, 15_000, 70_000):
        rows = Protocol().rows(np.zeros((count, 1)), np.zeros((count, 1), dtype=int))
        train, test = set(rows.train.tolist()), set(rows.test.tolist())
        assert not train & test
        assert len(train) + len(test) == min(count, 15_000)
        assert len(train) == pytest.approx(2 * len(test), abs=2)
        assert rows.sizes() == Protocol().sizes(count)
    with pytest.raises(ValueError, match="Unknown way to draw rows 'twice'"):
        Protocol(draws="twice")


@pytest.mark.parametrize("name", ["train", "test", "table", "seed"])
def test_numbers_of_a_protocol_are_whole(name: str) -> None:
    values: list[Any] = [1e2, np.int64(100), np.float32(100)]
    for value in values:
        assert repr(dataclasses.asdict(Protocol(**{name: value}))[name]) == "100"
    wrong: list[Any] = [-1, 2.5, float("nan"), float("inf"), True, "100", None]
    for value in wrong:
        with pytest.raises(UserError, match=f"The '{name}' of a protocol must be a whole number from"):
            Protocol(**{name: value})


def test_a_kind_of_codes_that_is_named_twice_is_scored_once() -> None:
    runs = ub.train("vae", data="toy", seeds=range(2), steps=2, quiet=True)
    rows = ub.score(runs, "mig", codes=["mean", "sampled", "mean"], quiet=True)
    assert [list(row) for row in rows] == [list(row) for row in ub.score(runs, "mig", quiet=True)]


def test_reference_draws_are_those_of_the_large_study() -> None:
    rows = Protocol(draws="reference").rows(np.zeros((50, 1)), np.zeros((50, 1), dtype=int))
    assert (len(rows.train), len(rows.test)) == (10_000, 5_000)
    assert rows.train.tolist() == np.random.default_rng(0).integers(50, size=10_000).tolist()


def test_a_study_is_scored_with_its_own_protocol(tmp_path: Path) -> None:
    (run,) = train_runs(1, out=tmp_path)
    (row,) = ub.score(run, ["mig"], quiet=True)
    assert (row["train_rows"], row["test_rows"], row["draws"]) == (640, 320, "disjoint")
    (tmp_path / "study.json").write_text(json.dumps({"places": {}, "protocol": {"train": 7, "draws": "reference"}}))
    (row,) = ub.score(run, ["mig"], quiet=True)
    assert (row["train_rows"], row["test_rows"], row["draws"]) == (7, 5_000, "reference")
    assert run.path is not None
    assert read_protocol(run.path) == read_protocol(tmp_path) == Protocol(train=7, draws="reference")
    (tmp_path / "study.json").write_text('{"places": {}}')  # written before protocols were recorded
    assert ub.score(run, ["mig"], quiet=True)[0]["draws"] == "reference"


def test_table_of_a_small_grid_is_the_grid() -> None:
    assert Protocol().grid_indices((3, 4)).tolist() == list(range(12))


def test_fits_are_shared_within_a_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    """DCI, the downstream task and fairness use the same sample, so trees are fitted once per factor."""
    from unbraid.metrics.trees import boosting

    fitted = []
    fit = boosting.FITS["fast"]

    def counted(codes: Any, *rest: Any) -> Any:
        fitted.append(len(codes))
        return fit(codes, *rest)

    monkeypatch.setitem(boosting.FITS, "fast", counted)
    factors = factor_grid(2, 3)
    rows = Rows.sample_with_replacement(factors + 0.3 * noise(6, 2), factors, 10_000, 500, 0)
    together = rows.score(["dci", "downstream_gbt", "fairness"], 0).values_or_raise()
    assert sorted(fitted) == [10] * 2 + [100] * 2 + [1000] * 2 + [10_000] * 2
    alone = {name: rows.score([name], 0).values_or_raise()[name] for name in together}
    assert alone == together


def test_errors_of_metrics_are_returned_or_raised() -> None:
    outcome = all_rows(NOISY[:, :1]).score(["mig", "modularity"], 0)
    assert set(outcome.values) == {"modularity"}
    assert "at least 2 columns" in outcome.errors["mig"]
    with pytest.raises(ValueError, match=r"mig: Codes must have at least 2 columns. Got 1"):
        outcome.values_or_raise()


def test_bounds_equal_the_scores_of_known_codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path))
    rows = SMALL.rows_with_zero_codes((3, 4, 5), 6)
    found = bounds.bounds(rows, QUICK)
    assert (
        found["perfect"]
        == rows.with_codes(known_codes.make_perfect_codes(rows.factors)).score(QUICK, 0).values_or_raise()
    )
    assert (
        found["noise"]
        == rows.with_codes(known_codes.make_noise_codes(rows.factors, 0, d=6)).score(QUICK, 0).values_or_raise()
    )
    files = {file: file.read_bytes() for file in tmp_path.glob("bounds/*.json")}
    assert len(files) == 2
    monkeypatch.setattr(Rows, "score", lambda *a, **k: pytest.fail("computed twice"))
    assert bounds.bounds(rows, QUICK) == found
    assert files == {file: file.read_bytes() for file in tmp_path.glob("bounds/*.json")}


def test_bounds_with_damaged_cache_and_metrics_that_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path))
    one_factor = SMALL.rows_with_zero_codes((7,), 3)
    found = bounds.bounds(one_factor, ["mig"])
    assert found["perfect"]["mig"] == {}  # a perfect code of one factor has no second code
    assert found["noise"]["mig"]["discrete_mig"] < 0.1
    for file in tmp_path.glob("bounds/*.json"):
        file.write_text("{")
    assert bounds.bounds(one_factor, ["mig"]) == found
    for damaged in (3, {"discrete_mig": "text"}, {"discrete_mig": 10**400}):
        for file in tmp_path.glob("bounds/*.json"):
            file.write_text(json.dumps(dict.fromkeys(json.loads(file.read_text()), damaged)))
        assert bounds.bounds(one_factor, ["mig"]) == found


def test_bounds_without_a_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path / "file"))
    with pytest.warns(RuntimeWarning, match="could not be stored"):
        assert bounds.bounds(SMALL.rows_with_zero_codes((3, 4), 2), ["mig"])["perfect"]["mig"]["discrete_mig"] > 0.9


def test_published_ceilings() -> None:
    """MIG .896 and SAP .245 of a perfect dSprites code, modularity .677 of noise: disentanglement_lib at 86a644d."""
    rows = Protocol().rows_with_zero_codes((3, 6, 40, 32, 32), 10)
    best = rows.with_codes(known_codes.make_perfect_codes(rows.factors)).score(["mig", "sap"], 0).values_or_raise()
    assert best["mig"]["discrete_mig"] == pytest.approx(0.896, abs=0.002)
    assert best["sap"]["SAP_score"] == pytest.approx(0.245, abs=0.01)
    floor = rows.with_codes(known_codes.make_noise_codes(rows.factors)).score(["modularity"], 0).values_or_raise()
    assert floor["modularity"]["modularity_score"] == pytest.approx(0.677, abs=0.04)


def test_known_codes_have_their_described_properties() -> None:
    perfect, rotated = known_codes.make_perfect_codes(GRID), known_codes.make_rotated_codes(GRID)
    assert perfect.mean(axis=0) == pytest.approx(np.zeros(3))
    assert np.cov(rotated.T) == pytest.approx(np.eye(3) * 120 / 119)
    assert math.isclose(np.abs(np.corrcoef(rotated.T, perfect.T)[:3, 3:]).max(), 1 - 2 / 14, rel_tol=0.2)
    assert np.array_equal(known_codes.make_duplicated_codes(GRID)[:, ::2], perfect)
    assert len(np.unique(known_codes.make_merged_codes(GRID)[:, 0])) == 20
    assert np.ptp(known_codes.make_collapsed_codes(GRID)[:, 2]) == 0
    for code, factor in zip(known_codes.make_scrambled_codes(GRID).T, GRID.T, strict=True):
        assert len(np.unique(np.c_[code, factor], axis=0)) == len(np.unique(factor)) == len(np.unique(code))
    assert not np.array_equal(known_codes.make_scrambled_codes(GRID), perfect)
    assert known_codes.make_codes_with_outliers(GRID)[0].min() > 1000


def test_scores_of_many_runs_do_not_depend_on_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = train_runs(4)
    alone = ub.score(runs, QUICK, protocol=SMALL, jobs=1, quiet=True)
    monkeypatch.setattr(tasks, "PARALLEL_SECONDS", 0.0)  # start processes after the first task
    monkeypatch.setattr(tasks, "QUEUED_RUNS_PER_PROCESS", 1)
    calls = []
    run_in_processes = tasks.run_tasks_in_processes

    def counted(remaining: Any, *rest: Any) -> Any:
        calls.append(len(remaining))
        return run_in_processes(remaining, *rest)

    monkeypatch.setattr(tasks, "run_tasks_in_processes", counted)
    assert ub.score(runs, QUICK, protocol=SMALL, jobs=2, quiet=True) == alone
    assert calls == [7]  # four runs with two kinds of codes; one task ran in this process


def test_scores_are_stored_with_their_identity(tmp_path: Path) -> None:
    runs = train_runs(1, out=tmp_path)
    ub.score(runs, ["mig", "irs"], protocol=SMALL, quiet=True)
    (file,) = tmp_path.glob("*/scores.jsonl")
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(r["metric"], r["codes"]) for r in records] == [
        ("mig", "mean"),
        ("irs", "mean"),
        ("mig", "sampled"),
        ("irs", "sampled"),
    ]
    assert records[0]["rows"] == {"train": 300, "test": 200, "table": 960, "sample": 300}
    assert records[1]["options"] == {"bins": 20, "quantile": 0.99}
    before = file.read_bytes()
    (first,) = ub.score(runs, ["mig"], protocol=SMALL, quiet=True)
    assert file.read_bytes() == before
    (other,) = ub.score(runs, ["mig"], protocol=Protocol(train=301, test=200), quiet=True)
    assert first["protocol"] != other["protocol"]
    assert len(file.read_text().splitlines()) == 6


def test_metrics_that_fail_are_left_out_or_raise_an_error() -> None:
    runs = ub.train(ub.methods.VAE(), data="toy", latents=1, steps=0, quiet=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (row,) = ub.score(runs, protocol=SMALL, codes=["mean"], quiet=True)
    left = [str(warning.message) for warning in caught]
    assert any(text.startswith("left out: mig: Codes must have at least 2 columns. Got 1") for text in left)
    assert len(left) == len({*WITH_TWO_CODES} & {*DEFAULT_METRICS})  # these metrics compare codes
    assert "mig.discrete_mig" not in row
    assert "modularity.modularity_score" in row
    with pytest.raises(ValueError, match=r"mig: Codes must have at least 2 columns"):
        ub.score(runs, ["mig"], protocol=SMALL, quiet=True)


def test_ranking_finds_the_different_run() -> None:
    """Three equal untrained models and one with another seed: the three agree with each other."""
    runs = train_runs(2, steps=0)
    equal = [dataclasses.replace(runs[0]) for _ in range(3)]
    rows = select([*equal, runs[1]], within="data", examples=500, quiet=True)
    assert rows[-1]["seed"] == 1
    assert rows[0]["udr"] > rows[-1]["udr"] + 0.1
    assert [row["udr"] for row in rows] == sorted((row["udr"] for row in rows), reverse=True)


def test_ranking_groups_runs_that_differ_only_in_the_seed() -> None:
    runs = train_runs(2, steps=0) + ub.train(
        ub.methods.BetaVAE(beta=2.0), data="toy", seeds=range(2), steps=0, quiet=True
    )
    assert [len(group) for group in group_runs(runs)] == [2, 2]
    assert [len(group) for group in group_runs(runs[:3])] == [3]
    assert [len(group) for group in group_runs(runs, "data")] == [4]
    with pytest.raises(UserError, match="differ only in the seed"):
        group_runs(runs[:3], "settings")
    with pytest.raises(UserError, match="at least 2 runs on the same data"):
        group_runs(runs[:1])
    with pytest.raises(ValueError, match=r"Unknown method of ranking 'lassso'\. Did you mean 'lasso'\?"):
        select(runs, method="lassso")


def test_metrics_with_interventions_use_the_whole_table() -> None:
    rows = Rows(noise(60, 3), factor_grid(3, 4, 5), np.arange(5), np.arange(5, 9))
    with pytest.raises(ValueError, match="at least 2 values"):
        rows.with_codes(rows.codes).score(
            ["mig"], 0
        ).values_or_raise()  # five rows have only one value of the first factor
    assert rows.score(["beta_vae"], 0).values_or_raise()["beta_vae"]["eval_accuracy"] > 0
