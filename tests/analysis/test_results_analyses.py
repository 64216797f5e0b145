"""Analyses of results tables: known answers, figures that can be saved, and errors."""

from __future__ import annotations

import io
import math
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from matplotlib.figure import Figure
from pandas import DataFrame

from oracles import analysis as oracle
from unbraid import analysis
from unbraid.analysis import ANALYSES, Result, plots
from unbraid.analysis.correlation import TASKS, UNSUPERVISED
from unbraid.analysis.demystifying import MANIPULATED
from unbraid.analysis.results_table import PAPER_METRICS, check_table, quartiles, score_columns, spearman
from unbraid.analysis.scores import worst_beats_best
from unbraid.errors import UserError
from unbraid.methods import METHODS
from unbraid.metrics import METRICS, headline

MIG, DCI = headline("mig"), headline("dci")
TC = headline("unsupervised")
OVER_SEEDS = ["total_correlation", "scores", "strengths", "distributions", "variance", "transfer", "capacity"]
OVER_RUNS = ["agreement", "selection", "downstream", "efficiency"]
PLAIN = [*OVER_SEEDS, *OVER_RUNS]  # the others, on modified images, are tested in test_demystifying
SINGLE_STUDIES = ("challenge", "pmp_comparison", "pmp_ablation", "stability")  # tested in test_paper_tables
RANKINGS = ("method_ranking", "ranking_agreement")  # tested in test_ranking


@cache
def full_table() -> DataFrame:
    return analysis.example_results()


@cache
def result(name: str) -> Result:
    return ANALYSES[name].run(full_table())


def as_png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=50)
    return file.getvalue()


def test_every_analysis_is_tested() -> None:
    assert {*PLAIN, *MANIPULATED, *SINGLE_STUDIES, *RANKINGS} == set(ANALYSES)


def test_import_needs_no_torch_and_no_pyplot() -> None:
    draw = "a.scores(a.example_results(seeds=2, data=['x'])).figure.savefig(io.BytesIO())"
    absent = "assert not {'torch', 'matplotlib.pyplot'} & {*sys.modules}"
    code = f"import io, sys, unbraid.analysis as a; {draw}; {absent}"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_columns_are_keys_of_metrics() -> None:
    points = np.random.default_rng(0).normal(size=(10_000, 2))
    labels = points > 0
    scores = METRICS["downstream_lr"](points, labels, points[:50], labels[:50])
    assert {column.split(".")[1] for column in TASKS.values()} <= set(scores)
    free = {column for column in UNSUPERVISED.values() if column.startswith("unsupervised.")}
    assert free <= {f"unsupervised.{key}" for key in METRICS["unsupervised"](points)}
    assert all(headline(name).split(".")[1] in METRICS[name](points, labels) for name in ("mig", "modularity"))


@pytest.mark.parametrize("name", PLAIN)
def test_result_for_a_full_study(name: str) -> None:
    table, figure, text = result(name)
    assert len(table) >= 42
    assert 20 < len(text) < 500
    assert "nan" not in text
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert {axes.get_title() for axes in shown} >= {"dsprites"} or name in ("variance", "transfer")
    assert all(
        axes.get_title() or axes.get_xlabel() or axes.get_ylabel() or axes.lines or axes.collections for axes in shown
    )
    picture = as_png(figure)
    assert picture[:4] == b"\x89PNG"
    assert len(picture) > 5_000


@pytest.mark.parametrize("name", PLAIN)
def test_table_is_not_changed_and_row_order_does_not_matter(name: str) -> None:
    table = analysis.example_results(seeds=2, data=["one", "two"], methods=["beta_vae", "annealed_vae"])
    before = table.copy()
    first = ANALYSES[name].run(table).table
    assert table.equals(before)
    second = ANALYSES[name].run(table.iloc[::-1]).table
    keys = [column for column in first.columns if first[column].dtype.kind not in "f"]
    ordered = [found.sort_values(keys, ignore_index=True) for found in (first, second)]
    for column in first.columns:
        if first[column].dtype.kind == "f":
            np.testing.assert_allclose(ordered[0][column], ordered[1][column], atol=1e-12)


@pytest.mark.parametrize("name", PLAIN)
def test_missing_values_are_left_out(name: str) -> None:
    table = analysis.example_results(seeds=4, data=["one", "two"], methods=["beta_vae", "annealed_vae"])
    numbers = table.columns[7:]
    rng = np.random.default_rng(0)
    for column in numbers:
        table.loc[rng.random(len(table)) < 0.1, column] = np.nan
    table.loc[0, MIG] = np.inf
    found = ANALYSES[name].run(table)
    assert len(as_png(found.figure)) > 5_000
    assert found.table.select_dtypes("float").notna().any(axis=None)


@pytest.mark.parametrize("name", PLAIN)
def test_some_columns_may_be_missing(name: str) -> None:
    table = full_table().drop(columns=[headline("sap"), headline("beta_vae"), "train.rec", *list(TASKS.values())[:3]])
    table = table.drop(columns=[column for column in table if column.startswith("information.")])
    found = ANALYSES[name].run(table[table["data"].isin(["dsprites", "cars3d"])])
    assert len(as_png(found.figure)) > 5_000


@pytest.mark.parametrize("name", PLAIN)
def test_missing_columns_raise_an_error(name: str) -> None:
    with pytest.raises(UserError, match="no level"):
        ANALYSES[name].run(full_table().drop(columns="level"))
    keys = list(full_table().columns[:7])
    with pytest.raises(UserError, match=r"must h.*Got no"):
        ANALYSES[name].run(full_table()[keys])
    with pytest.raises(UserError, match="no rows"):
        check_table(full_table()[:0])


@pytest.mark.parametrize("name", OVER_SEEDS)
def test_one_seed_raises_an_error(name: str) -> None:
    with pytest.raises(UserError, match="seed"):
        ANALYSES[name].run(full_table()[full_table()["seed"] == 0])


@pytest.mark.parametrize("name", OVER_RUNS)
def test_few_runs_raise_an_error(name: str) -> None:
    with pytest.raises(UserError, match="at least 10 runs"):
        ANALYSES[name].run(analysis.example_results(seeds=1, data=["one", "two"], methods=["beta_vae"]))


@pytest.mark.parametrize("name", [n for n in PLAIN if n not in ("total_correlation", "capacity")])
def test_constant_scores_raise_an_error(name: str) -> None:
    table = full_table().copy()
    table[[headline(metric) for metric in PAPER_METRICS]] = 0.5
    for column in (*UNSUPERVISED.values(), *TASKS.values()):
        table[column] = 1.0
    with pytest.raises(UserError, match="must differ"):
        ANALYSES[name].run(table)


def test_transfer_needs_two_datasets() -> None:
    with pytest.raises(UserError, match="2 different values of 'data'"):
        analysis.transfer(full_table()[full_table()["data"] == "cars3d"])
    assert len(analysis.agreement(full_table()[full_table()["data"] == "cars3d"]).table) == 36


def test_duplicate_runs_and_mixed_strengths_raise_an_error() -> None:
    table = analysis.example_results(seeds=2, data=["one"], methods=["beta_vae"])
    again = table[:1].assign(run="again", steps=5)
    with pytest.raises(UserError, match="two of beta_vae, level 0, seed 0 on one"):
        analysis.scores(DataFrame([*table.to_dict("records"), *again.to_dict("records")]))
    table.loc[0, "strength"] = 77.0
    with pytest.raises(UserError, match="2 at level 0 of beta_vae"):
        analysis.scores(table)


def test_unknown_and_missing_metrics_raise_an_error() -> None:
    with pytest.raises(UserError, match="Did you mean 'mig'"):
        analysis.variance(full_table(), ["migg"])
    with pytest.raises(UserError, match=r"no irs\.avg_score"):
        analysis.variance(full_table(), ["irs"])
    assert score_columns(full_table()[[*full_table().columns[:7], MIG]]) == {"mig": MIG}
    with pytest.raises(UserError, match="At least 2"):
        analysis.agreement(full_table()[[*full_table().columns[:7], MIG]])


def test_styles_are_in_the_order_of_the_paper_and_distinct() -> None:
    found = plots.line_styles(["annealed_vae", "mine", "factor_vae", "beta_vae"])
    assert list(found) == ["beta_vae", "factor_vae", "annealed_vae", "mine"]
    assert found["annealed_vae"] == plots.line_styles(["annealed_vae"])["annealed_vae"]
    assert len({style["color"] for style in found.values()}) == 4
    assert list(plots.line_styles(["y", "x"])) == ["y", "x"]
    many = plots.line_styles(f"method {i}" for i in range(50))
    assert len({(style["color"], style["marker"]) for style in many.values()}) == 50


def test_every_method_has_a_name_for_figures() -> None:
    assert set(METHODS) <= set(plots.DISPLAY_NAMES)


def test_capacity_needs_annealed_vae() -> None:
    with pytest.raises(UserError, match="at least 2 strengths"):
        analysis.capacity(full_table()[full_table()["method"] == "beta_vae"])
    with pytest.raises(UserError, match="left out: annealed_vae"):
        analysis.total_correlation(full_table()[full_table()["method"] == "annealed_vae"])


def test_explained_variance_of_thirty_and_seventy_per_cent() -> None:
    def score(d: int, m: int, level: int, seed: int, c: int) -> float:
        signs = [1 - 2 * (i % 2) for i in (m, level, seed)]
        return float(np.sqrt([0.3, 0.4, 0.3]) @ signs)

    table = oracle.results_grid(score, methods=("m", "n"), levels=2, seeds=4)
    (row,) = analysis.variance(table).table.to_dict("records")
    assert row["objective"] == pytest.approx(0.3, abs=1e-12)
    assert row["setting"] == pytest.approx(0.7, abs=1e-12)
    assert (row["objective_chance"], row["setting_chance"], row["runs"]) == (1 / 15, 3 / 15, 16)


def test_explained_variance_equals_least_squares_on_indicators() -> None:
    found = result("variance").table
    part = full_table()[full_table()["data"] == "cars3d"]
    row = found[(found["data"] == "cars3d") & (found["metric"] == "mig")].iloc[0]
    settings = list(zip(part["method"], part["level"], strict=True))
    assert row["objective"] == pytest.approx(oracle.explained_share(list(part[MIG]), list(part["method"])))
    assert row["setting"] == pytest.approx(oracle.explained_share(list(part[MIG]), settings))


def test_chance_level_equals_the_share_explained_for_noise() -> None:
    rng = np.random.default_rng(0)
    table = oracle.results_grid(
        lambda *_: rng.normal(), data=[str(i) for i in range(200)], methods="ab", levels=3, seeds=4
    )
    found = analysis.variance(table).table.mean(numeric_only=True)
    assert found["objective"] == pytest.approx(found["objective_chance"], abs=0.01)
    assert found["setting"] == pytest.approx(found["setting_chance"], abs=0.02)


def test_known_rank_correlations() -> None:
    columns = [headline(name) for name in PAPER_METRICS[:4]]
    shapes = (lambda i: i, lambda i: math.exp(i), lambda i: -(i**3), lambda i: abs(i - 7))
    table = oracle.results_grid(
        lambda d, m, level, seed, c: float(shapes[c](3 * level + seed)), levels=5, seeds=3, columns=columns
    )
    found = analysis.agreement(table).table.pivot(index="first", columns="second", values="correlation")
    expected = [[1, 1, -1, 0], [1, 1, -1, 0], [-1, -1, 1, 0], [0, 0, 0, 1]]
    np.testing.assert_allclose(found.loc[list(PAPER_METRICS[:4]), list(PAPER_METRICS[:4])], expected, atol=1e-12)


def test_rank_correlation_equals_the_reference() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 8, 40).astype(float), rng.integers(0, 8, 40).astype(float)
    a[3] = b[5] = np.nan
    assert spearman(a, b) == pytest.approx(oracle.spearman(list(a), list(b)), abs=1e-12)
    assert math.isnan(spearman(a, np.ones(40)))
    assert math.isnan(spearman(a[:9], b[:9]))


def test_selection_and_downstream_use_their_columns() -> None:
    table = full_table().copy()
    table["train.elbo"] = table[MIG] * 3 - 100
    table["downstream_gbt.statistical_efficiency"] = -table[DCI]
    chosen = analysis.selection(table).table.set_index(["first", "second"])
    assert (chosen.loc[("ELBO", "mig"), "correlation"] == 1).all()
    tasks = analysis.downstream(table)
    assert (tasks.table.set_index(["first", "second"]).loc[("GBT efficiency", "dci"), "correlation"] == -1).all()
    assert "between GBT efficiency and DCI, with a median of -1.00 over 7 datasets" in tasks.text


def test_total_correlation_of_means_and_of_samples() -> None:
    table = oracle.results_grid(
        lambda d, m, level, seed, c: float(10 * c + (1 - 2 * c) * level + 0.01 * seed),
        data=("one",), methods=("beta_vae", "annealed_vae"), levels=3, seeds=3, columns=(TC, f"{TC}.sampled"),
    )  # fmt: skip
    found = analysis.total_correlation(table)
    assert set(found.table["method"]) == {"beta_vae"}
    medians = found.table.set_index(["codes", "level"])["median"]
    np.testing.assert_allclose(medians["mean"], [0.01, 1.01, 2.01])
    np.testing.assert_allclose(medians["sampled"], [10.01, 9.01, 8.01])
    assert "falls for sampled codes in 1 of 1 and for mean codes in 0 of 1" in found.text
    assert len(analysis.total_correlation(table, without=()).table) == 12


def test_quartiles_and_extremes_of_scores() -> None:
    table = oracle.results_grid(
        lambda d, m, level, seed, c: float(m + [0, 1, 2, 3, 10][seed]), methods=("m", "n"), seeds=5
    )
    found = analysis.scores(table)
    first = found.table[found.table["method"] == "m"].iloc[0]
    assert first[["low", "median", "high", "least", "most", "runs"]].tolist() == [1, 2, 3, 0, 10, 5]
    assert found.text.startswith("n has the best median score most often, in 1 of 1")
    assert quartiles(table, MIG, ["method"])["median"].tolist() == [2, 3]


def test_tied_methods_and_capacities_all_count_as_best() -> None:
    saturated = oracle.results_grid(lambda d, m, level, seed, c: float(m > 0), data="ab", methods="mno", seeds=2)
    text = analysis.scores(saturated).text
    assert "in 2 of 2 combinations" in text
    assert "2 of 3 methods have the best median, alone or tied" in text
    table = oracle.results_grid(
        lambda d, m, level, seed, c: float(level > 0) if d else float(level), data="ab", methods=("annealed_vae",),
        levels=3, seeds=2,
    )  # fmt: skip
    assert analysis.capacity(table).text.startswith(
        "A final capacity of 2 nats has the best median score most often, in 2"
    )


def test_how_often_the_worst_strength_beats_the_best() -> None:
    clear = oracle.results_grid(lambda d, m, level, seed, c: float(10 * level + seed), levels=3, seeds=3)
    assert "in 0 % of pairs" in analysis.strengths(clear).text
    # Without seed 0 or 1, the medians of both levels are 3 or 2.5. Without seed 2, level 0 is worst, but 5 is above 2.
    mixed = oracle.results_grid(lambda d, m, level, seed, c: [[0, 1, 5], [3, 4, 2]][level][seed], levels=2, seeds=3)
    assert "in 67 % of pairs" in analysis.strengths(mixed).text
    single = mixed[mixed["level"] == mixed["seed"]]
    assert analysis.strengths(single).text == "No method has at least two strengths with at least two seeds."
    assert analysis.distributions(single).text == "No method has at least two strengths with at least two seeds."


def test_if_only_the_seed_matters_the_worst_strength_beats_the_best_half_the_time() -> None:
    rng = np.random.default_rng(0)
    parts = [DataFrame({"level": level, "seed": seed}) for level, seed in [np.indices((6, 4)).reshape(2, -1)] * 400]
    found = [worst_beats_best(part.assign(score=rng.normal(size=24)), "score") for part in parts]
    assert np.mean(found) == pytest.approx(0.5, abs=0.04)


def test_methods_with_one_strength_are_not_counted() -> None:
    table = oracle.results_grid(
        lambda d, m, level, seed, c: float(m - level + 0.1 * seed), methods=("m", "n"), levels=2, seeds=3,
        columns=(MIG, TC, f"{TC}.sampled"),
    )  # fmt: skip
    table = table[(table["method"] == "m") | (table["level"] == 0)]
    assert "falls for sampled codes in 1 of 1" in analysis.total_correlation(table).text
    assert "In 0 of 1 combinations" in analysis.distributions(table).text
    one = analysis.total_correlation(table[table["level"] == 0]).text
    assert one.startswith("Every method has only one strength. The median total correlation is 0.6 nats")


def test_terms_of_diverged_and_unfinished_runs_are_left_out() -> None:
    table = oracle.results_grid(
        lambda d, m, level, seed, c: [level, 10.0 + 100 * (seed == 2)][c] + 0.1 * seed,
        methods=("annealed_vae",), levels=2, seeds=3, columns=(MIG, "train.kl"),
    )  # fmt: skip
    table["status"] = np.where(table["seed"] == 2, "diverged", "done")
    found = analysis.capacity(table).table
    assert found.loc[found["quantity"] == "train.kl", "runs"].tolist() == [2, 2]
    assert found.loc[found["quantity"] == "train.kl", "median"].tolist() == pytest.approx([10.05, 10.05])


def test_tables_with_missing_keys_or_a_metric_without_values() -> None:
    table = analysis.example_results(seeds=2, data=["dsprites"], methods=["beta_vae", "annealed_vae"])
    for name in ("strength", "level"):
        with pytest.raises(UserError, match=f"must have a value of '{name}'"):
            analysis.scores(table.assign(**{name: math.nan}))
    empty = table.assign(**{MIG: math.inf})
    for name in ("scores", "strengths", "distributions", "capacity"):
        found = ANALYSES[name].run(empty, ["mig", "dci"])
        assert "mig" not in found.table[found.table.columns.intersection(["metric", "quantity"])].to_numpy()
        assert as_png(found.figure)


def test_capacity_with_the_best_scores() -> None:
    table = oracle.results_grid(
        lambda d, m, level, seed, c: [float(level == 1) + seed, level + 0.5][c],
        methods=("annealed_vae", "beta_vae"), levels=3, seeds=2, columns=(MIG, "train.kl"),
    )  # fmt: skip
    found = analysis.capacity(table)
    assert len(found.table) == 6
    assert found.text.startswith("A final capacity of 1 nats has the best median score most often, in 1 of 1")
    assert "final KL from its target is 0.5 nats" in found.text
