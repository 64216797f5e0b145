"""The studies of published claims have the settings of their papers, and differ only in what they compare."""

from __future__ import annotations

import dataclasses

from unbraid.methods import HFS, METHODS, QLAE, SemiVAE, Tripod
from unbraid.methods.semi_vae import FAMILIES
from unbraid.studies.beyond import LABELS, PAIRS, supervision
from unbraid.studies.published import STUDIES


def test_supervised_runs_differ_from_unsupervised_ones_only_in_the_labels() -> None:
    runs = list(STUDIES["locatello2020_labels"]())
    semi = [run for run in runs if isinstance(run.spec.method, SemiVAE)]
    assert (len(runs), len(semi)) == (60, 30)
    for run in semi:
        assert isinstance(run.spec.method, SemiVAE)
        assert (run.spec.method.labels, run.spec.method.form) == (100, "xent")
    plain = {run.spec.id for run in runs if not isinstance(run.spec.method, SemiVAE)}
    assert {dataclasses.replace(run.spec, method=run.spec.method.base()).id for run in semi} == plain  # type: ignore[attr-defined]
    assert {run.spec.method.family for run in semi} == set(FAMILIES)  # type: ignore[attr-defined]


def test_unsupervised_runs_are_runs_of_the_large_study() -> None:
    large = {run.spec.id for run in STUDIES["locatello2019"]() if run.spec.data == "dsprites" and run.level == 2}
    own = [run for run in STUDIES["locatello2020_labels"]() if not isinstance(run.spec.method, SemiVAE)]
    assert {run.spec.id for run in own} <= large
    assert {run.spec.steps for run in own if run.facts()["method"] == "factor_vae"} == {150_000}


def test_correlated_runs_have_three_strengths_per_method() -> None:
    runs = list(STUDIES["roth2023"]())
    assert {run.spec.data for run in runs} == {"dsprites?correlate=x:y:0.1"}
    assert {(run.facts()["method"], run.level) for run in runs} == {
        (method, level) for method in ("beta_vae", "beta_tcvae", "hfs") for level in range(3)
    }
    assert {run.spec.method.beta for run in runs if isinstance(run.spec.method, HFS)} == {4.0}


def test_quantised_runs_have_the_published_settings() -> None:
    runs = list(STUDIES["hsu2024"]())
    qlae = next(run.spec for run in runs if isinstance(run.spec.method, QLAE))
    tripod = next(run.spec for run in runs if isinstance(run.spec.method, Tripod))
    assert (qlae.steps, qlae.batch, qlae.learning_rate, qlae.weight_decay) == (200_000, 128, 1e-3, 0.1)
    assert (tripod.steps, tripod.batch, tripod.learning_rate, tripod.weight_decay) == (250_000, 64, 2e-4, 0.0)
    assert (qlae.method.count, tripod.method.levels) == (10, 12)  # type: ignore[attr-defined]
    assert (tripod.method.multi_information, tripod.method.hessian) == (1e-4, 1e-2)  # type: ignore[attr-defined]
    assert {run.spec.latents for run in runs} == {12}


def test_each_method_has_one_class_of_supervision() -> None:
    assert set(PAIRS) | set(LABELS) <= set(METHODS)
    assert not set(PAIRS) & set(LABELS)
    assert {name for name in METHODS if supervision(name) == "images"} == set(METHODS) - set(PAIRS) - set(LABELS)
