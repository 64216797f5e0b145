"""The study of all methods has each method once per dataset and seed, with equal budgets, and runs when reduced."""

from __future__ import annotations

from pathlib import Path

import pytest

import unbraid as ub
from unbraid.analysis import analyse
from unbraid.methods import METHODS, BetaVAE
from unbraid.runs.results import load_results
from unbraid.studies.beyond import DATASETS
from unbraid.studies.published import STUDIES


def test_every_method_is_in_the_study_with_the_same_budget() -> None:
    runs = list(STUDIES["beyond2026"]())
    assert len(runs) == 15 * len(METHODS)
    facts = [run.facts() for run in runs]
    combinations = {(f["data"], f["method"], f["seed"]) for f in facts}
    assert combinations == {(data, method, seed) for data in DATASETS for method in METHODS for seed in range(5)}
    assert {f["latents"] for f in facts} == {10, 11}
    assert {(f["steps"], f["batch"], f["net"], f["likelihood"]) for f in facts} == {
        (300_000, 64, "locatello", "bernoulli")
    }
    assert {f["method"] for f in facts if f["latents"] == 11} >= {"diffusion_vae", "s_vae"}


def test_a_new_method_becomes_part_of_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(METHODS, "pcl")
    monkeypatch.setitem(METHODS, "mine", type("Mine", (BetaVAE,), {}))
    methods = {run.facts()["method"] for run in STUDIES["beyond2026"]()}
    assert "mine" in methods
    assert "pcl" not in methods


def test_a_reduced_study_is_ranked_and_names_what_it_leaves_out(tmp_path: Path) -> None:
    chosen = "method=ae,vae,ada_gvae,u_vitae"
    with pytest.warns(RuntimeWarning, match="left out: u_vitae on toy: UVITAE needs images"):
        ub.study(
            "beyond2026", tmp_path, only=chosen, data="toy", seeds=[0, 1], steps=2, metrics=["mig", "sap"],
            samples=200, jobs=1, quiet=True,
        )  # fmt: skip
    assert set(load_results(tmp_path)["method"]) == {"ae", "vae", "ada_gvae"}
    results = analyse(tmp_path, ["method_ranking", "ranking_agreement"], metrics="mig,sap", out=tmp_path / "out")
    assert len(results["method_ranking"].table) == 6
    assert (tmp_path / "out" / "ranking_agreement.png").stat().st_size > 1_000
