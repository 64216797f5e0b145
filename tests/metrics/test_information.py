"""Metrics of information, correlation and robustness: golden values and special cases."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from oracles import information as oracle
from support.golden import GOLDEN_CASES, golden_case
from support.known_codes import GRID, NOISY, Array, factor_grid, noise, random_factors, reflected
from unbraid.metrics.dcimig import dcimig
from unbraid.metrics.factor_information import neighbour_shares
from unbraid.metrics.infomec import concentration, infomec, linear_explicitness
from unbraid.metrics.information import entropy
from unbraid.metrics.irs import irs, robustness
from unbraid.metrics.jemmig import jemmig
from unbraid.metrics.labels import as_labels
from unbraid.metrics.mcc import absolute_correlations, best_assignment_mean, mcc
from unbraid.metrics.mig import mig
from unbraid.metrics.mig_sup import mig_sup

METRICS: dict[str, Callable[..., dict[str, float]]] = {
    "irs": irs,
    "mcc": mcc,
    "infomec": infomec,
    "dcimig": dcimig,
    "jemmig": jemmig,
    "mig_sup": mig_sup,
}


@pytest.mark.parametrize("case", GOLDEN_CASES)
def test_golden_irs(shared: Path, case: str) -> None:
    golden = golden_case(shared, case)
    want, (codes, factors, _, _) = golden.want, golden.points
    matrix, max_deviations = robustness(codes, as_labels(factors))
    assert matrix == pytest.approx(np.array(want["irs"]["IRS_matrix"]), abs=1e-9)
    assert max_deviations == pytest.approx(np.array(want["irs"]["max_deviations"]), abs=1e-9)
    assert matrix.argmax(axis=1).tolist() == want["irs"]["parents"]
    assert matrix.max(axis=1) == pytest.approx(np.array(want["irs"]["disentanglement_scores"]), abs=1e-9)
    assert irs(codes, factors)["avg_score"] == pytest.approx(want["irs"]["avg_score"], abs=1e-9)
    largest = irs(codes, factors, quantile=1.0)["avg_score"]
    assert largest == pytest.approx(want["irs_quantile_1.0_avg_score"], abs=1e-9)


def test_irs_with_as_many_bins_as_values() -> None:
    factors = factor_grid(40, 3)
    assert irs(factors, factors)["avg_score"] < 0.99
    assert irs(factors, factors, bins=40)["avg_score"] == 1


def test_irs_numbers_labels_in_order() -> None:
    names = np.array([-(2**62), 5, 6, 7, 2**40, 2**62])
    assert irs(NOISY, names[GRID]) == irs(NOISY, GRID)


def test_irs_weights_latents_by_scale() -> None:
    codes = np.c_[GRID[:, 0], noise(120, 1)]
    assert irs(codes * [1000, 1], GRID)["avg_score"] > 0.99
    assert irs(codes * [1, 1000], GRID)["avg_score"] < 0.9


def test_irs_is_never_negative() -> None:
    """Two distant clusters within each value deviate more from the mean of the value than from the overall mean."""
    codes = np.array([0.0] * 9 + [10.0] + [10.0] * 9 + [0.0])[:, None]
    factors = np.repeat([0, 1], 10)[:, None]
    assert robustness(codes, as_labels(factors), quantile=1).matrix[0, 0] == pytest.approx(1 - 9 / 5)
    assert irs(codes, factors, quantile=1) == {"avg_score": 0.0, "num_active_dims": 1.0}


def test_irs_rejects_a_quantile_outside_0_and_1() -> None:
    with pytest.raises(ValueError, match=r"The 'quantile' parameter must be <= 1. Got 1.5 instead."):
        irs(NOISY, GRID, quantile=1.5)
    with pytest.raises(ValueError, match=r"The 'quantile' parameter must be >= 0. Got -1 instead."):
        irs(NOISY, GRID, quantile=-1)


def test_mcc_of_ranks_equals_its_oracle() -> None:
    codes, factors = np.exp(NOISY)[:40], GRID[:40, 1:]
    assert mcc(codes, factors)["mcc_spearman"] == pytest.approx(
        oracle.mcc(codes.tolist(), factors.tolist(), ranked=True), abs=1e-12
    )


def test_mcc_correlation_equals_numpy_and_does_not_overflow() -> None:
    expected = np.abs(np.corrcoef(NOISY.T, GRID.T)[:3, 3:])
    assert absolute_correlations(NOISY, GRID.astype(float)) == pytest.approx(expected, abs=1e-12)
    huge = NOISY * [1e307, 1e-200, 1.0] - [0, 0, 1e9]
    # The tolerance is larger here, because the offset 1e9 costs seven digits.
    assert absolute_correlations(huge, GRID.astype(float)) == pytest.approx(expected, abs=1e-6)
    assert np.all(absolute_correlations(np.full((120, 1), 0.3), GRID.astype(float)) == 0)


@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 4)), elements=st.floats(0, 1)))
def test_mcc_finds_the_best_assignment(matrix: Array) -> None:
    import itertools

    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    best = max(
        sum(wide[i, j] for i, j in enumerate(assignment))
        for assignment in itertools.permutations(range(wide.shape[1]), len(wide))
    )
    assert best_assignment_mean(matrix) == pytest.approx(best / matrix.shape[1], abs=1e-12)


def test_all_infomec_scores_equal_their_oracles() -> None:
    got = infomec(NOISY, GRID)
    modular, compact = oracle.infomec(NOISY.tolist(), GRID.tolist())
    assert got["InfoM"] == pytest.approx(modular, abs=1e-12)
    assert got["InfoC"] == pytest.approx(compact, abs=1e-12)
    codes, factors = GRID[::3, :2] + noise(40, 2), GRID[::3, [0, 1]]
    # Both solvers stop near the minimum, at gradients of 1e-4 and 1e-5. The error of the loss is of the order of the
    # squared gradient.
    expected = oracle.explicitness(codes, factors.tolist())
    assert infomec(codes, factors)["InfoE"] == pytest.approx(expected, abs=1e-3)


def test_infomec_is_invariant_to_scale_unless_latents_are_pruned() -> None:
    before, after = infomec(NOISY, GRID), infomec(NOISY * [3, 0.7, 5] + 1, GRID)
    assert (after["InfoM"], after["InfoC"]) == pytest.approx((before["InfoM"], before["InfoC"]), abs=1e-12)
    pruned = infomec(NOISY * [1, 1, 1e-3], GRID)
    assert pruned["InfoC"] != pytest.approx(before["InfoC"], abs=0.01)
    assert pruned["InfoE"] == pytest.approx(before["InfoE"], abs=1e-3)
    unpruned = infomec(NOISY * [1, 1, 1e-3], GRID, prune=0)
    assert unpruned["InfoC"] == pytest.approx(before["InfoC"], abs=1e-12)


def test_infomec_with_the_nearest_neighbour_estimator() -> None:
    """Compare the information of normal codes around two centres with a numerical integral over the two densities."""
    factors = random_factors((2, 2), 4000, 0)
    codes = 4 * factors + noise(4000, 2)
    x = np.linspace(-8, 12, 20_001)
    each = np.exp(-(np.stack([x, x - 4]) ** 2) / 2) / math.sqrt(2 * math.pi)
    both = each.mean(axis=0)
    expected = float(np.sum(each * np.log(each / both)) / 2 * 1e-3) / math.log(2)
    got = infomec(codes, factors, neighbours=10)
    # The information about the other factor is 0 up to the noise of the estimator, about 0.01, and it is clipped at 0.
    assert got["InfoM"] == pytest.approx(1, abs=0.03)
    assert got["InfoC"] == pytest.approx(1, abs=0.03)
    assert infomec(codes, factors, neighbours=10) == got
    normalised = neighbour_shares(codes, as_labels(factors), neighbours=10)
    assert np.diag(normalised) == pytest.approx(expected, abs=0.03)


def test_concentration_without_information() -> None:
    assert concentration(np.zeros((0, 3))) == 0
    assert concentration(np.zeros((3, 0))) == 0
    assert concentration(np.zeros((2, 3))) == 0
    assert concentration(np.array([[0.2], [0.0]])) == 0.5
    assert concentration(np.array([[0.2, 0.0], [0.0, 0.0]])) == 0.5


def test_explicitness_grows_with_iterations() -> None:
    labels = as_labels(GRID)
    assert linear_explicitness(NOISY, labels, 1) < linear_explicitness(NOISY, labels, 1000)


def test_infoe_of_copied_factors_with_two_and_three_values() -> None:
    """The regression fits one line for two values and one line per value otherwise. Both predict a copied factor."""
    factors = np.c_[np.arange(60) % 2, np.arange(60) % 3]
    assert infomec(factors, factors)["InfoE"] == pytest.approx(1, abs=0.01)
    far = 1e6 * factors
    assert infomec(far, factors)["InfoE"] == pytest.approx(1, abs=0.01)


def test_jemmig_in_nats_equals_its_oracle() -> None:
    expected = oracle.jemmig(NOISY.tolist(), GRID.tolist(), bins=7)[1]
    assert jemmig(NOISY, GRID, bins=7)["jemmig_nats"] == pytest.approx(expected, abs=1e-12)


def test_jemmig_is_invariant_to_the_order_of_equally_informative_latents() -> None:
    """Two latents determine the factor, equally up to rounding, and one of them contains additional information."""
    for seed in range(6):  # the information differs in the last digit, with either sign
        factors = random_factors((5, 3), 50, seed)
        pairs = factors[:, 0] * 3 + factors[:, 1]
        codes = np.c_[factors[:, 0], pairs]
        for order in ([0, 1], [1, 0]):
            nats = jemmig(codes[:, order], factors[:, :1])["jemmig_nats"]
            # The larger entropy is used, and there is no gap.
            assert nats == pytest.approx(entropy(pairs[:, None])[0], abs=1e-12)


def test_jemmig_needs_two_latents_and_two_bins() -> None:
    with pytest.raises(ValueError, match=r"Codes must have at least 2 columns. Got 1"):
        jemmig(NOISY[:, :1], GRID)
    with pytest.raises(ValueError, match=r"The 'bins' parameter must be >= 2. Got 1 instead."):
        jemmig(NOISY, GRID, bins=1)


@pytest.mark.parametrize("name", ["dcimig", "mig_sup"])
def test_gaps_between_factors_need_two_factors(name: str) -> None:
    with pytest.raises(ValueError, match=r"Factors must have at least 2 columns. Got 1"):
        METRICS[name](NOISY, GRID[:, :1])


def test_mig_sup_with_pruning() -> None:
    codes = np.c_[GRID, 0.01 * noise(120, 3)]
    assert mig_sup(codes, GRID)["mig_sup"] < 0.8
    assert mig_sup(codes, GRID, prune=0.1)["mig_sup"] == pytest.approx(1, abs=1e-12)
    assert mig_sup(codes, GRID, prune=10)["mig_sup"] == 0


def test_mig_sup_is_mig_with_codes_and_factors_exchanged() -> None:
    """This holds for discrete codes that have the same entropies as the factors and at most as many values as bins."""
    factors = factor_grid(4, 4, 4)
    codes = (factors @ np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]])) % 4
    assert mig_sup(codes, factors)["mig_sup"] == pytest.approx(mig(factors, codes)["discrete_mig"], abs=1e-12)


@pytest.mark.parametrize("name", METRICS)
def test_scores_of_a_single_latent_are_finite(name: str) -> None:
    if name != "jemmig":
        scores = METRICS[name](NOISY[:, :1], GRID)
        assert all(math.isfinite(value) for value in scores.values())


@pytest.mark.parametrize("name", METRICS)
def test_scores_of_fewer_rows_than_bins_are_finite(name: str) -> None:
    scores = METRICS[name](noise(6, 3), np.array([[0, 1], [1, 1], [0, 0], [1, 0], [0, 2], [1, 2]]))
    assert all(math.isfinite(value) for value in scores.values())


@pytest.mark.parametrize("name", [name for name in METRICS if name not in ("mcc",)])
def test_label_values_do_not_matter(name: str) -> None:
    names = np.array([-(2**62), 5, 6, 7, 2**40, 2**62])
    assert METRICS[name](NOISY, names[GRID]) == METRICS[name](NOISY, GRID)


@pytest.mark.parametrize("name", ["dcimig", "mig_sup", "infomec", "irs"])
def test_rotation_lowers_the_score(name: str) -> None:
    key = {"infomec": "InfoM", "irs": "avg_score"}.get(name, name)
    assert METRICS[name](reflected(GRID), GRID)[key] < METRICS[name](GRID, GRID)[key] - 0.3
