"""Rankings of methods with known answers, and the agreement of metrics that rank alike or in opposite order."""

from __future__ import annotations

import numpy as np
import pytest
from pandas import DataFrame
from pandas.testing import assert_frame_equal
from scipy.stats import spearmanr, t

import unbraid as ub
from unbraid.analysis.ranking import resampled_ranks
from unbraid.errors import UserError
from unbraid.metrics import headline

METHODS = ("vae", "beta_vae", "pcl", "ada_gvae")
QUALITY = {"vae": 0.1, "beta_vae": 0.3, "pcl": 0.2, "ada_gvae": 0.6}


def ranked_table(spread: float = 0.01, seeds: int = 3) -> DataFrame:
    """Return runs whose MIG is the quality of their method. SAP and fairness rank the methods in the same order."""
    rows = [
        {
            "run": f"{method}{seed}", "data": "toy", "method": method, "strength": 0.0, "level": 0, "seed": seed,
            headline("mig"): quality + spread * seed, headline("sap"): quality**2, headline("fairness"): 1 - quality,
        }
        for method, quality in QUALITY.items()
        for seed in range(seeds)
    ]  # fmt: skip
    return DataFrame(rows)


def test_methods_are_ranked_by_their_means_with_intervals() -> None:
    found = ub.analysis.method_ranking(ranked_table(), ["mig", "fairness"])
    for _, part in found.table.groupby("metric"):
        assert part["method"].tolist() == ["ada_gvae", "beta_vae", "pcl", "vae"]
        assert part["rank"].tolist() == part["rank_low"].tolist() == part["rank_high"].tolist() == [1, 2, 3, 4]
    best = found.table.iloc[0]
    half = t.ppf(0.975, 2) * 0.01 / 3**0.5
    assert (best["mean"], best["low"], best["high"]) == pytest.approx((0.61, 0.61 - half, 0.61 + half))
    assert best["seeds"] == 3
    assert "Of 4 methods, Ada-GVAE has the best mean rank, 1.0. In 2 of 2 combinations" in found.text


def test_seeds_that_matter_more_than_the_method_widen_the_intervals_of_ranks() -> None:
    found = ub.analysis.method_ranking(ranked_table(spread=1.0), ["mig"])
    assert (found.table["rank_high"] - found.table["rank_low"]).min() >= 2
    assert "In 0 of 1 combinations" in found.text


def test_intervals_of_ranks_equal_an_exact_enumeration() -> None:
    """In 1 of 4 resamplings the first method is better, so the 95 % intervals contain both ranks."""
    first, second = np.array([0.0, 3.0]), np.array([2.0, 2.0])
    assert [(a + b) / 2 > 2 for a in first for b in first].count(True) == 1
    low, high = resampled_ranks([first, second])
    assert low.tolist() == [1, 1]
    assert high.tolist() == [2, 2]


def test_the_score_of_a_seed_is_the_mean_over_strengths() -> None:
    table = ranked_table()
    other = table.assign(run=table["run"] + "b", level=1, strength=1.0)
    other[headline("mig")] += 0.2
    both = ub.analysis.method_ranking(DataFrame([*table.to_dict("records"), *other.to_dict("records")]), ["mig"]).table
    alone = ub.analysis.method_ranking(table, ["mig"]).table
    assert both["mean"].to_numpy() == pytest.approx(alone["mean"].to_numpy() + 0.1)
    assert both["seeds"].tolist() == [3] * 4


def test_metrics_agree_or_disagree_in_their_rankings() -> None:
    table = ranked_table()
    table[headline("modularity")] = -table[headline("mig")]
    found = ub.analysis.ranking_agreement(table, ["mig", "sap", "fairness", "modularity"])
    value = found.table.set_index(["first", "second"])["correlation"]
    assert value["mig", "sap"] == value["mig", "fairness"] == value["mig", "mig"] == pytest.approx(1)
    assert value["mig", "modularity"] == value["modularity", "sap"] == pytest.approx(-1)
    assert set(found.table["methods"]) == {4}
    assert "The lowest is -1.00" in found.text


def test_agreement_equals_scipy_over_the_means_of_methods() -> None:
    table = ub.analysis.example_results(seeds=3, data=["dsprites"])
    found = ub.analysis.ranking_agreement(table, ["mig", "dci"]).table
    means = table.groupby("method")[[headline("mig"), headline("dci")]].mean()
    wanted = spearmanr(means.iloc[:, 0], means.iloc[:, 1]).statistic
    assert found.query("first == 'mig' and second == 'dci'")["correlation"].item() == pytest.approx(wanted)


def test_a_method_without_a_score_is_not_ranked_by_it() -> None:
    table = ranked_table()
    table.loc[table["method"] == "pcl", headline("sap")] = np.nan
    ranking = ub.analysis.method_ranking(table, ["mig", "sap"]).table
    assert ranking.query("metric == 'sap'")["rank"].tolist() == [1, 2, 3]
    assert set(ub.analysis.ranking_agreement(table, ["mig", "sap"]).table.query("first != second")["methods"]) == {3}


def test_rankings_do_not_depend_on_the_order_of_runs() -> None:
    table = ub.analysis.example_results(seeds=4, data=["dsprites"])
    shuffled = table.sample(frac=1, random_state=0)
    found, again = (ub.analysis.method_ranking(part, ["mig"]).table for part in (table, shuffled))
    assert_frame_equal(found, again)


def test_a_method_with_one_seed_has_no_intervals() -> None:
    table = ranked_table()
    found = ub.analysis.method_ranking(table[(table["method"] != "ada_gvae") | (table["seed"] == 0)], ["mig", "sap"])
    best = found.table[found.table["method"] == "ada_gvae"]
    assert best["rank"].tolist() == [1, 1]
    assert best[["rank_low", "rank_high", "low", "high"]].isna().all(axis=None)
    assert found.table[found.table["method"] != "ada_gvae"].notna().all(axis=None)
    assert "too few seeds for intervals" in found.text


def test_too_few_methods_or_seeds_are_rejected() -> None:
    table = ranked_table()
    few = table[table["method"].isin(["vae", "pcl"])]
    with pytest.raises(UserError, match=r"at least 3 methods. Got only vae, pcl instead"):
        ub.analysis.ranking_agreement(few, ["mig", "sap"])
    with pytest.raises(UserError, match="at least 2 different values of 'seed'"):
        ub.analysis.method_ranking(table[table["seed"] == 0], ["mig"])
