"""Analyses of single papers: the tables of PMP, the challenge study, efficiency and distributions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pandas import DataFrame
from pandas.testing import assert_frame_equal

import unbraid as ub
from unbraid.analysis import example_results
from unbraid.analysis.efficiency import EFFICIENCY
from unbraid.errors import UserError
from unbraid.metrics import headline
from unbraid.runs.results import write_results

MIG, DCI = headline("mig"), headline("dci")
TERMS = ("distance", "sparsity", "consistency", "regularisation")


def pmp_table(seeds: int = 5) -> DataFrame:
    """Scores with known medians. Seed 0 is an outlier, which a mean would show and a median does not."""
    methods = {("ada_gvae", ""): 0.3, ("pmp", ""): 0.5} | {("pmp", f"without {t}"): 0.4 for t in TERMS}
    methods["pmp", "without sparsity"] = 0.1
    rows = [
        {"run": f"{data}{method}{variant}{seed}", "data": data, "method": method, "variant": variant, "seed": seed,
         "strength": 1.0, "level": 0, MIG: value + shift + 0.01 * (seed - 2) - 5 * (seed == 0), DCI: 0.5}
        for data, shift in (("dsprites", 0.0), ("cars3d", 0.2))
        for (method, variant), value in methods.items() for seed in range(seeds)
    ]  # fmt: skip
    return DataFrame(rows)


def test_pmp_is_compared_with_ada_gvae_by_medians_over_seeds() -> None:
    result = ub.analysis.pmp_comparison(pmp_table(), ["mig", "dci"])
    found = result.table.set_index(["data", "method"])
    assert list(found.columns) == ["runs", "mig", "dci"]
    assert found["mig"].to_dict() == pytest.approx(
        {("dsprites", "ada_gvae"): 0.3, ("dsprites", "pmp"): 0.5, ("cars3d", "ada_gvae"): 0.5, ("cars3d", "pmp"): 0.7}
    )
    assert set(found["runs"]) == {5}
    assert "better than that of Ada-GVAE in 2 of 4 combinations" in result.text
    assert "over 5 runs" in result.text
    with pytest.raises(UserError, match=r"runs of pmp and ada_gvae.*unbraid study pmp2021"):
        ub.analysis.pmp_comparison(pmp_table().query("method == 'pmp'"), ["mig"])


def test_ablations_have_one_row_per_term_by_name() -> None:
    result = ub.analysis.pmp_ablation(pmp_table(), ["mig"])
    found = result.table[result.table["data"] == "dsprites"].set_index("removed")
    assert list(found.index) == ["", *TERMS]
    wanted = {"": 0.5} | {term: 0.1 if term == "sparsity" else 0.4 for term in TERMS}
    assert found["mig"].to_dict() == pytest.approx(wanted)
    assert set(found["runs"]) == {5}
    assert "fall most without the term sparsity, by 0.40" in result.text
    for _, rows in ub.analysis.pmp_ablation(pmp_table().iloc[::-1], ["mig"]).table.groupby("data"):
        assert list(rows["removed"]) == ["", *TERMS[::-1]]  # the full method comes first in any order of the runs
    with pytest.raises(UserError, match="without one of its terms"):
        ub.analysis.pmp_ablation(pmp_table().query("variant == ''"), ["mig"])


def challenge_table() -> DataFrame:
    rows = [
        {"run": f"{latents}{beta}{capacity}{walk}{seed}", "data": "cars3d", "method": "diffusion_vae", "level": level,
         "variant": f"d = {latents - 1}, C {capacity}, L {walk}", "strength": beta, "seed": seed, "latents": latents,
         "setting.space": "sphere", "setting.c_max": capacity, "setting.walk_steps": walk, "setting.beta": beta,
         "train.kl": capacity + 0.1 * (seed - 1), MIG: latents / 100 + walk / 1000 + seed / 10000}
        for latents in (11, 21) for level, beta in enumerate((1.0, 2.5, 10.0)) for capacity in (15.0, 25.0)
        for walk in (5, 10) for seed in range(3)
    ]  # fmt: skip
    return DataFrame(rows)


def test_challenge_has_one_row_per_dimension_capacity_walk_and_weight() -> None:
    result = ub.analysis.challenge(challenge_table(), ["mig"])
    scored = result.table[result.table["quantity"] == "mig"].set_index(["d", "C_max", "L", "beta"])
    assert len(scored) == 2 * 2 * 2 * 3
    assert scored.loc[(10, 15.0, 5, 2.5), "median"] == pytest.approx(0.11 + 0.005 + 0.0001)
    assert set(scored["runs"]) == {3}
    reached = result.table[result.table["quantity"] == "KL [nats]"].set_index(["d", "C_max", "L", "beta"])
    assert reached.loc[(20, 25.0, 10, 1.0), "median"] == pytest.approx(25.0)
    assert "Dimension 20 has the best median score most often, in 1 of 1" in result.text
    with pytest.raises(UserError, match=r"runs of diffusion_vae.*unbraid study diffusion2019"):
        ub.analysis.challenge(example_results(seeds=2, data=["dsprites"]), ["mig"])


def test_challenge_separates_settings_without_variants() -> None:
    table = challenge_table()
    named, unnamed = (ub.analysis.challenge(part, ["mig"]) for part in (table, table.drop(columns="variant")))
    assert_frame_equal(named.table, unnamed.table)
    other = table.assign(**{"setting.space": "projective", "variant": "projective", "run": table["run"] + "p"})
    with pytest.raises(UserError, match="one run per dataset, setting and seed"):
        ub.analysis.challenge(DataFrame([*table.to_dict("records"), *other.to_dict("records")]), ["mig"])


@pytest.mark.parametrize(
    ("space", "latents", "dimension"),
    [("sphere", 11, 10), ("projective", 4, 3), ("torus", 3, 2), ("flat_torus", 4, 2), ("rotations", 9, 3)],
)
def test_challenge_knows_the_dimension_of_every_space(space: str, latents: int, dimension: int) -> None:
    """The dimensions are those of the spaces themselves."""
    from unbraid.spaces import SPACES

    table = challenge_table().query("latents == 11").assign(latents=latents, **{"setting.space": space})
    assert set(ub.analysis.challenge(table, ["mig"]).table["d"]) == {dimension}
    assert SPACES[space](latents).dimension == dimension


def test_efficiency_has_one_point_per_run_and_metric() -> None:
    table = example_results(seeds=2, data=["dsprites"], methods=["beta_vae"])
    table[EFFICIENCY] = 1 - table[MIG]
    result = ub.analysis.efficiency(table, ["mig", "dci"])
    assert len(result.table) == 2 * len(table)
    points = result.table[result.table["metric"] == "mig"]
    assert np.allclose(points["score"] + points["efficiency"], 1)
    only_mig = ub.analysis.efficiency(table, ["mig"])
    assert "is -1.00 in the median" in only_mig.text
    axes = only_mig.figure.axes[0]
    assert len(axes.collections[0].get_offsets()) == len(table)
    with pytest.raises(UserError, match="downstream_gbt"):
        ub.analysis.efficiency(table.drop(columns=EFFICIENCY), ["mig"])


def test_distributions_have_one_violin_per_method_and_strength() -> None:
    table = example_results(seeds=4, data=["dsprites"], methods=["beta_vae", "dip_vae_i"])
    table[MIG] = 0.1 * table["level"] + 0.001 * table["seed"]
    result = ub.analysis.distributions(table, ["mig"])
    assert len(result.table) == 12
    first = result.table.set_index(["method", "level"]).loc[("beta_vae", 2)]
    assert (first["strength"], first["runs"], first["least"], first["most"]) == pytest.approx((4.0, 4, 0.2, 0.203))
    violins = result.figure.axes[0].collections
    assert len([body for body in violins if type(body).__name__ == "FillBetweenPolyCollection"]) == 12
    assert "In 0 of 2 combinations" in result.text


def test_general_analyses_of_the_tables_do_not_pool_ablations() -> None:
    medians = ub.analysis.scores(pmp_table(), ["mig"]).table
    assert len(medians) == 2 * 6
    assert pd.Series(medians["method"]).nunique() == 6


def stability_table() -> DataFrame:
    """Two parametrisations at three learning rates. One of them diverges at the highest, always or once."""
    rows = [
        {"run": f"{name}{rate}{seed}", "data": "mnist", "method": "c_vitae", "variant": name, "level": level,
         "strength": rate, "seed": seed, "learning_rate": rate, "setting.transform": name, "train.elbo": elbo,
         "status": "diverged" if level == 2 and seed <= last else "done"}
        for name, shift, last in (("affine", 0.0, 2), ("affine_diffeomorphic", 5.0, 0))
        for level, rate in enumerate((1e-4, 1e-3, 1e-2)) for seed in range(3)
        for elbo in [1e9 if level == 2 and seed <= last else -100.0 + shift + level + 0.1 * seed]
    ]  # fmt: skip
    return DataFrame(rows)


def test_stability_has_the_elbo_of_the_runs_that_did_not_diverge() -> None:
    result = ub.analysis.stability(stability_table())
    found = result.table.set_index(["parametrisation", "learning_rate"])
    assert found["diverged"].tolist() == [0, 0, 3, 0, 0, 1]
    assert set(found["runs"]) == {3}
    assert found.loc[("affine", 1e-3), "median"] == pytest.approx(-98.9)
    assert np.isnan(found.loc[("affine", 1e-2), "median"])
    assert found.loc[("affine_diffeomorphic", 1e-2), "median"] == pytest.approx(-92.85)
    assert "4 of 18 runs diverged" in result.text
    assert "did not diverge: affine 0.001, affine_diffeomorphic 0.01." in result.text
    assert "-92.8 nats (affine_diffeomorphic, learning rate 0.01)" in result.text
    (top,) = result.figure.axes  # without the folder of the runs there are no learning curves
    assert [np.isfinite(line.get_ydata()).sum() for line in top.lines] == [2, 3]
    low, high = ub.analysis.stability(stability_table().query("level == 2 or level == 0")).figure.axes[0].get_xlim()
    assert low < 1e-4 < 1e-2 < high
    with pytest.raises(UserError, match=r"several learning rates.*unbraid study vitae_stability"):
        ub.analysis.stability(stability_table().query("level == 0"))


def test_stability_leaves_out_runs_that_are_not_finished() -> None:
    table = stability_table()
    unfinished = (table["setting.transform"] == "affine") & (table["learning_rate"] == 1e-3)
    found = ub.analysis.stability(table.assign(status=table["status"].mask(unfinished, "partial")))
    assert found.table["runs"].sum() == 15
    assert "4 of 15 runs diverged" in found.text
    assert "did not diverge: affine 0.0001, affine_diffeomorphic 0.01." in found.text


def test_stability_draws_the_logs_at_the_lowest_learning_rate(tmp_path: Path) -> None:
    methods = [ub.methods.CVITAE(transform="affine"), ub.methods.CVITAE(bound="none")]
    for rate in (1e-4, 1e-3):
        ub.train(methods, "sprites", steps=3, batch=4, latents=4, net="vitae_mlp_half", learning_rate=rate,
                 out=tmp_path, add=True, quiet=True)  # fmt: skip
    write_results(tmp_path)
    result = ub.analyse(tmp_path, ["stability"])["stability"]
    curves = result.figure.axes[1].lines
    low = [run for run in ub.load_runs(tmp_path) if run.spec.learning_rate == 1e-4]
    wanted = {tuple(-line["rec"] - line["kl"] for line in run.log) for run in low}
    assert len(curves) == len(wanted) == 2
    assert {tuple(np.asarray(line.get_ydata())) for line in curves} == wanted
