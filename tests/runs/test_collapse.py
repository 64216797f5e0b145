"""Tests of the remarks about runs whose codes carry almost no information about the examples."""

from __future__ import annotations

from pathlib import Path

import unbraid as ub
from support.command_line import Capture, unbraid
from unbraid.runs.collapse import collapse_notes
from unbraid.scoring.rows import ScoreRows
from unbraid.scoring.score import score

SETTINGS = {"data": "toy", "steps": 60, "batch": 16, "latents": 3, "learning_rate": 3e-3, "quiet": True}


def test_collapsed_runs_are_named_by_training_scores_and_the_report(tmp_path: Path, capsys: Capture) -> None:
    """A very large weight of the KL makes the posterior equal to the prior. A weight of 0 does not."""
    common = ("--data", "toy", "--steps", 60, "--batch", 16, "--latents", 3, "--learning-rate", 3e-3, "--quiet")
    assert unbraid("train", "beta_vae", "--beta", "0,1000", *common, "--out", tmp_path) == 0
    trained = capsys.readouterr().out
    assert "1 of 2 run(s) have a KL below 0.1 nats" in trained
    assert "beta=1000" in trained.partition("KL below")[2]
    assert "beta=0" not in trained.partition("KL below")[2]
    assert unbraid("score", tmp_path, "--metrics", "factor_vae,mig", "--quiet") == 0
    scored = capsys.readouterr().out
    assert "No latent is active in 1 of 2 rows" in scored
    page = ub.report(tmp_path, tmp_path / "report.html", metrics=["mig"], quiet=True).read_text()
    assert "1 of 2 run(s) have a KL below" in page


def test_untrained_runs_and_methods_without_a_kl_are_not_named() -> None:
    runs = [*ub.train("vae", **{**SETTINGS, "steps": 0}), *ub.train("ae", **SETTINGS)]
    assert collapse_notes(runs) == []


def test_discrete_latents_count_and_learned_priors_do_not() -> None:
    settings = {**SETTINGS, "steps": 400, "batch": 64, "latents": 6}
    joint = ub.methods.JointVAE(c_max=0.0, c_max_discrete=1.0, iteration_threshold=1.0, gamma=100.0, categories=4)
    (run,) = ub.train(joint, **settings)
    assert run.log[-1]["kl"] < 0.1 < run.log[-1]["kl_discrete"]
    assert collapse_notes([run]) == []
    (run,) = ub.train(ub.methods.IVAE(beta=1000.0), **settings)
    assert run.log[-1]["kl"] < 0.1
    assert collapse_notes([run]) == []


def test_sampled_total_correlation_stands_beside_that_of_the_means() -> None:
    rows = score(ub.train("vae", **SETTINGS), ["unsupervised", "mig"], quiet=True)
    titles = list(rows.columns(["unsupervised", "mig"]))
    assert titles[-3:] == ["total corr. (low)", "total corr. sampled (low)", "mig"]
    assert "active" not in str(ScoreRows(rows))
