"""Training curves of a page: means and standard deviations over seeds."""

from __future__ import annotations

import numpy as np

import unbraid as ub
from unbraid.reporting.curves import CURVE_POINTS, training_curves
from unbraid.reporting.runs_table import short_labels


def test_runs_that_differ_in_their_seed_are_one_curve() -> None:
    methods = [ub.methods.BetaVAE(beta=beta) for beta in (1.0, 2.0)]
    runs = ub.train(methods, data="toy", seeds=range(3), steps=40, quiet=True)
    curves = training_curves(runs, short_labels(runs))
    assert [(curve["label"], curve["seeds"]) for curve in curves] == [("beta_vae beta=1", 3), ("beta_vae beta=2", 3)]
    logs = [run.log for run in runs if run.spec.method == methods[1]]
    losses = np.array([[row["loss"] for row in log] for log in logs])
    assert 1 < len(logs[0]) <= CURVE_POINTS
    assert curves[1]["step"] == [row["step"] for row in logs[0]]
    np.testing.assert_allclose(curves[1]["terms"]["loss"]["mean"], losses.mean(0), rtol=1e-4)
    np.testing.assert_allclose(curves[1]["terms"]["loss"]["deviation"], losses.std(0, ddof=1), rtol=1e-3)


def test_runs_that_differ_in_their_seed_and_in_another_setting_are_several_curves() -> None:
    settings = [{"latents": 3, "seeds": [0, 1]}, {"latents": 6, "seeds": [2]}]
    runs = [run for own in settings for run in ub.train("vae", data="toy", steps=20, quiet=True, **own)]
    labels = short_labels(runs)
    assert list(labels.values()) == ["vae latents=3 seed=0", "vae latents=3 seed=1", "vae latents=6 seed=2"]
    found = [(curve["label"], curve["seeds"]) for curve in training_curves(runs, labels)]
    assert found == [("vae latents=3", 2), ("vae latents=6", 1)]


def test_one_seed_has_no_deviation() -> None:
    runs = ub.train(ub.methods.VAE(), data="toy", steps=40, quiet=True)
    (curve,) = training_curves(runs, short_labels(runs))
    assert set(curve["terms"]["loss"]) == {"mean"}
