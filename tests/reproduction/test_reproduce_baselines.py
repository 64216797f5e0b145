"""The published numbers of baselines, and how our runs are compared with them."""

from __future__ import annotations

import math

import pandas as pd
import pytest
import torch
from torch import Tensor

from unbraid.distributions import Gaussian
from unbraid.methods import BetaTCVAE
from unbraid.methods.beta_tcvae import ESTIMATORS, decompose_kl
from unbraid.reproduction import TARGETS, reproduce
from unbraid.reproduction.baselines import (
    LOSS_SETTINGS,
    LOSSES,
    published_critic,
    published_losses,
    published_scores,
)
from unbraid.studies.published import STUDIES


def scores_table(shift: float = 0.0) -> pd.DataFrame:
    """Return runs of FactorVAE whose MIG has the published mean plus a shift."""
    rows = []
    for gamma, mig in ((1.0, 0.27), (10.0, 0.40)):
        for seed, offset in enumerate((-0.01, 0.01)):
            row = {"run": f"{gamma}-{seed}", "status": "done", "method": "factor_vae", "data": "dsprites", "seed": seed}
            rows.append({**row, "steps": 311_040, "setting.gamma": gamma, "mig.discrete_mig": mig + shift + offset})
    return pd.DataFrame(rows)


def losses_table(factor: float = 1.0) -> pd.DataFrame:
    """Return one run per method whose losses are the published ones times a factor."""
    rows = [
        {"run": name, "status": "done", "method": name, "data": "dsprites", "seed": 0, "steps": 345_600,
         "train.rec": factor * rec, "train.kl": factor * kl, **LOSS_SETTINGS[name]}
        for name, (rec, kl) in LOSSES.items()
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_tables_have_all_cells() -> None:
    assert [len(list(cells())) for cells in (published_scores, published_losses, published_critic)] == [28, 10, 9]


def test_scores_are_compared_for_each_gamma() -> None:
    cells = reproduce("lin2020", scores_table()).table().set_index(["row", "column"])
    found = cells.loc[("factor_vae gamma=10, dsprites", "MIG")]
    assert found["ours"] == pytest.approx(0.40)
    assert (found["verdict"], found["runs"]) == ("agree", 2)
    assert found["reach"] == pytest.approx(2 * 0.01 * math.sqrt(10) + 0.005)
    assert cells.loc[("factor_vae gamma=20, dsprites", "MIG"), "note"] == "no such runs"
    assert "random forest" in cells.loc[("factor_vae gamma=10, dsprites", "DCI"), "note"]
    shifted = reproduce("lin2020", scores_table(shift=0.3)).table()
    assert (shifted["verdict"] == "differ").sum() == 2


def test_losses_agree_within_five_percent() -> None:
    assert reproduce("dubois2019", losses_table(1.04)).table()["verdict"].eq("agree").all()
    assert reproduce("dubois2019", losses_table(1.06)).table()["verdict"].eq("differ").all()


def test_only_runs_with_the_published_hyperparameters_are_compared() -> None:
    table = losses_table()
    other = table[table["method"] == "beta_vae"].assign(**{"setting.beta": 16.0, "train.rec": 90.0})
    found = reproduce("dubois2019", pd.concat([table, other])).table().set_index(["row", "column"])
    assert found.loc[("beta_vae, dsprites", "reconstruction"), "ours"] == LOSSES["beta_vae"][0]
    changed = pd.concat([table[table["method"] != "beta_vae"], other])
    found = reproduce("dubois2019", changed).table().set_index(["row", "column"])
    assert found.loc[("beta_vae, dsprites", "reconstruction"), "note"] == "no such runs"
    gamma = scores_table().replace({"setting.gamma": {1.0: 30.0}})
    assert reproduce("lin2020", gamma).deviations[0] == "only 2 of 40 runs"


def test_settings_are_compared_with_those_that_the_study_has_for_the_same_method() -> None:
    table = losses_table().assign(steps=345_600, learning_rate=1e-3, **{"setting.warmup": math.nan})
    deviations = reproduce("dubois2019", table).deviations
    assert "learning rate 0.001 instead of 0.0005 for vae, beta_vae, beta_tcvae" in deviations
    assert "learning rate 0.001 instead of 0.0001 for factor_vae" in deviations
    assert "warmup 0 instead of 0.0289352 for vae, beta_vae, beta_tcvae" in deviations
    assert not any("annealed_vae" in phrase for phrase in deviations)


@pytest.mark.parametrize(("name", "runs", "methods"), [("lin2020", 40, 1), ("dubois2019", 15, 5)])
def test_a_study_trains_what_its_target_compares(name: str, runs: int, methods: int) -> None:
    planned = list(STUDIES[name]())
    assert len(planned) == runs
    assert len({run.facts()["method"] for run in planned}) == methods
    assert {TARGETS[name].published_data(run.spec.data) for run in planned} == {"dsprites"}


def dubois_total_correlation(q: Gaussian, z: Tensor, n: int) -> Tensor:
    """Return the estimate of Dubois et al. (2019): 1 / N in column 0, and the log weights are added to each latent."""
    b = len(z)
    m = b - 1
    last = (n - m) / (n * m)
    weights = torch.full((b, b), 1 / m)
    weights[:, 0], weights[:, 1], weights[b - 2, 0] = 1 / n, last, last
    terms = torch.stack([q.log_prob(row) for row in z]) + weights.log()[:, :, None]
    return (terms.sum(2).logsumexp(1) - terms.logsumexp(1).sum(1)).mean()


def test_the_authors_code_of_dubois2019_has_gradients_like_those_of_the_weighted_estimator() -> None:
    """They are far from those of the estimator of Chen et al. (2018), with which the study trains."""
    planned = [run.spec.method for run in STUDIES["dubois2019"]()]
    estimators = {method.estimator for method in planned if isinstance(method, BetaTCVAE)}
    b, n = 64, 737_280
    torch.manual_seed(0)
    mean = torch.randn(b, 10)
    deviations = torch.tensor([0.1] * 5 + [1.0] * 5)
    q = Gaussian(mean, deviations.square().log().expand(b, -1))
    z = (mean + deviations * torch.randn(b, 10)).requires_grad_()
    (expected,) = torch.autograd.grad(dubois_total_correlation(q, z, n), z)
    errors = {}
    for name, log_weights in ESTIMATORS.items():
        (found,) = torch.autograd.grad(decompose_kl(q, z, log_weights(b, n)).total_correlation, z)
        errors[name] = float((found - expected)[1:].norm() / expected[1:].norm())
    assert estimators == {"stratified"}
    assert errors["weighted"] < 0.1
    assert errors["stratified"] > 0.5
