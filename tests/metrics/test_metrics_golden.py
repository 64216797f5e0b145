"""Metrics, compared with golden values of the reference implementation, within the tolerances stated there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.golden import GOLDEN_CASES, Golden, golden_case
from support.known_codes import (
    factor_grid,
    score,
)
from unbraid.metrics import METRICS
from unbraid.metrics.factor_vae import vote_accuracy, vote_counts
from unbraid.metrics.information import discretise, entropy, mutual_information
from unbraid.metrics.linear import svm_accuracies
from unbraid.metrics.sap import squared_correlation


@pytest.fixture(params=GOLDEN_CASES)
def golden(request: pytest.FixtureRequest, shared: Path) -> Golden:
    return golden_case(shared, request.param)


def test_golden_information(golden: Golden) -> None:
    codes, factors, _, _ = golden.points
    assert mutual_information(discretise(codes), factors) == pytest.approx(np.array(golden.want["mi_matrix"]), abs=1e-9)
    assert entropy(factors) == pytest.approx(np.array(golden.want["factor_entropy"]), abs=1e-9)
    assert score("mig", codes, factors)["discrete_mig"] == pytest.approx(golden.want["discrete_mig"], abs=1e-9)
    assert score("modularity", codes, factors) == {
        "modularity_score": pytest.approx(golden.want["modularity_score"], abs=1e-9)
    }


def test_golden_sap(golden: Golden) -> None:
    codes, factors, test_codes, test_factors = golden.points
    matrix = svm_accuracies(codes, factors, test_codes, test_factors)
    assert matrix == pytest.approx(np.array(golden.want["sap_matrix"]), abs=0.01)
    correlations = squared_correlation(codes, factors)
    assert correlations == pytest.approx(np.array(golden.want["sap_continuous_matrix"]), abs=1e-9)
    got = METRICS["sap"](*golden.points) | METRICS["sap"](*golden.points, continuous=True)
    assert got["SAP_score"] == pytest.approx(golden.want["SAP_score"], abs=0.01)
    assert got["SAP_score_continuous"] == pytest.approx(golden.want["SAP_score_continuous"], abs=1e-9)


def test_golden_factor_vae(golden: Golden) -> None:
    want, arrays = golden.want["factor_vae"], golden.arrays
    variances = arrays["factorvae_global_variances"]
    active = np.sqrt(variances) >= want["prune_threshold"]
    assert active.tolist() == want["active_dims"]
    train_votes, eval_votes = (
        vote_counts(
            arrays[f"factorvae_{part}_local_variances"],
            variances,
            arrays[f"factorvae_{part}_factor"].astype(int),
            active,
            4,
        )
        for part in ("train", "eval")
    )
    assert train_votes.tolist() == want["train_votes"]
    assert eval_votes.tolist() == want["eval_votes"]
    assert vote_accuracy(train_votes, train_votes) == pytest.approx(want["train_accuracy"], abs=1e-9)
    assert vote_accuracy(train_votes, eval_votes) == pytest.approx(want["eval_accuracy"], abs=1e-9)


def test_golden_factor_vae_end_to_end(golden: Golden) -> None:
    grid = factor_grid(*golden.arrays["factor_sizes"].tolist())
    got = score("factor_vae", golden.arrays["code_table"], grid)["eval_accuracy"]
    assert got == pytest.approx(np.mean(golden.want["factor_vae_end_to_end_eval_accuracy_3_seeds"]), abs=0.05)


def test_golden_unsupervised(golden: Golden) -> None:
    want = dict(golden.want["unsupervised"])
    assert want.pop("cov_condition_number") < 1e8
    assert score("unsupervised", golden.points[0], None) == pytest.approx(want, abs=1e-9)
