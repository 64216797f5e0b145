"""Analyses know variants by name, and accept strengths that differ between datasets."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from pandas import DataFrame

import unbraid as ub
from unbraid.analysis import ANALYSES, example_results
from unbraid.analysis.results_table import check_table, name_variants
from unbraid.analysis.transfer import ScoreCube
from unbraid.errors import UserError
from unbraid.metrics import headline

MIG = headline("mig")
GENERAL = ("total_correlation", "agreement", "scores", "strengths", "distributions", "variance", "selection",
           "transfer", "downstream", "efficiency")  # fmt: skip


def variants_table() -> DataFrame:
    """Two variants of one method with the same level, strength and seeds; the second scores 0.5 higher."""
    table = example_results(seeds=3, data=["dsprites", "cars3d"], methods=["beta_vae"])
    table[MIG] = 0.1 + 0.01 * table["seed"] + 0.02 * table["level"]
    other = table.assign(variant="d = 20", run="second-" + table["run"])
    other[MIG] += 0.5
    return pd.concat([table.assign(variant="d = 10"), other], ignore_index=True)


@pytest.mark.parametrize("name", GENERAL)
def test_general_analyses_accept_variants(name: str) -> None:
    result = ANALYSES[name].answer(variants_table())
    for column in {"method"} & set(result.table):
        assert set(result.table[column]) == {"beta_vae (d = 10)", "beta_vae (d = 20)"}


def test_variants_are_methods_of_their_own() -> None:
    """They are neither pooled nor levels: each has its own median, and the objective explains their difference."""
    table = variants_table()
    scores = ub.analysis.scores(table, ["mig"]).table.set_index(["data", "method"])["median"]
    gap = scores["dsprites", "beta_vae (d = 20)"] - scores["dsprites", "beta_vae (d = 10)"]
    assert gap == pytest.approx(0.5)
    explained = ub.analysis.variance(table, ["mig"]).table.set_index("data").loc["dsprites"]
    assert explained["objective"] > 0.9
    with pytest.raises(
        UserError, match=r"one run per dataset, setting and seed.*variants names in the column 'variant'"
    ):
        ub.analysis.scores(table.drop(columns="variant"), ["mig"])


def test_runs_without_a_variant_keep_their_method() -> None:
    table = DataFrame({"method": ["pmp", "pmp", "vae"], "variant": ["", "without sparsity", None]})
    assert list(name_variants(table)["method"]) == ["pmp", "pmp (without sparsity)", "vae"]
    assert name_variants(table.drop(columns="variant")).equals(table.drop(columns="variant"))


def other_strengths() -> DataFrame:
    """A table whose strengths on Shapes3D are four times those on dSprites, as in `demystifying2021`."""
    table = example_results(seeds=3, data=["dsprites", "shapes3d"], methods=["beta_vae", "factor_vae"])
    table.loc[table["data"] == "shapes3d", "strength"] *= 4
    return table


@pytest.mark.parametrize("name", GENERAL)
def test_strengths_may_differ_between_datasets(name: str) -> None:
    result = ANALYSES[name].answer(other_strengths())
    assert len(result.table)
    if "strength" in result.table and "level" in result.table:
        found = set(map(tuple, result.table[["data", "method", "level", "strength"]].drop_duplicates().to_numpy()))
        assert len({key[:3] for key in found}) == len(found)
        assert ("shapes3d", "beta_vae", 0, 4.0) in found


def test_a_level_has_one_strength_on_each_dataset() -> None:
    table = other_strengths()
    table.loc[(table["data"] == "shapes3d") & (table["seed"] == 1), "strength"] *= 2
    with pytest.raises(UserError, match=r"one strength on a dataset. Got 2 at level 0 of beta_vae on shapes3d"):
        check_table(table)


def test_transfer_compares_settings_of_equal_strength() -> None:
    """Level 2 on dSprites has the strength of level 0 on Shapes3D, but only equal levels and strengths are matched."""
    table = other_strengths()
    cube = ScoreCube.of(check_table(table, [MIG]), {"mig": MIG})
    present = np.isfinite(cube.values).any((0, 3))
    assert present.shape == (2, 24)
    assert not (present[0] & present[1]).any()
    cases = ub.analysis.win_rates(ub.analysis.transfer(table).table)
    assert np.isfinite(cases.loc["same metric, same data", "by_mean"])
    assert np.isnan(cases.loc["same metric, other data", "by_mean"])


def test_metrics_can_be_chosen() -> None:
    table = example_results(seeds=3, data=["dsprites", "cars3d"])
    results = ub.analyse(table, ["scores", "agreement", "total_correlation"], metrics=["mig", "sap"])
    assert set(results["scores"].table["metric"]) == {"mig", "sap"}
    assert set(results["agreement"].table["first"]) == {"mig", "sap"}
    assert len(results["total_correlation"].table)
    with pytest.raises(UserError, match="Unknown metric 'mgi'"):
        ub.analyse(table, metrics=["mgi"])
