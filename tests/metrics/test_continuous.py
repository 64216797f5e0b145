"""Continuous factors and missing labels: known scores, agreement with the discrete forms, and missing labels."""

from __future__ import annotations

import inspect
import itertools
import math
import re
from typing import Any

import numpy as np
import pytest

from laws import LAWS
from support.known_codes import GRID, NOISY, Array, factor_grid, noise, score
from unbraid.errors import UserError
from unbraid.metrics import METRICS, TRAITS, fairness, infomec, sap
from unbraid.metrics.factor_information import factor_information, neighbour_information, neighbour_shares
from unbraid.metrics.information import discretise, entropy, mutual_information
from unbraid.metrics.labels import as_labels
from unbraid.metrics.mig import gap_per_factor
from unbraid.metrics.protocol import Protocol, identity

WITHOUT_CONTINUOUS = dict.fromkeys(("unsupervised", "factorised_support"), "takes no factors")
NOT_CONVERGING = {
    "fairness": "needs complete settings",
    "strong_downstream": "rounding moves a few rows to other bins, and then all draws differ",
}
CONTINUOUS = [name for name in METRICS if name not in WITHOUT_CONTINUOUS]
INFORMATION = ("mig", "mig_sup", "modularity", "dcimig", "jemmig", "infomec")
# These metrics have the same value for a factor with few equally spaced values, whether or not it is continuous.
SAME_FORM = (*INFORMATION, "irs", "mcc", "beta_vae", "factor_vae", "fairness")


def uniform(rows: int, k: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).random((rows, k))


def gaussian_pair(rho: float, rows: int, seed: int = 0) -> tuple[Array, Array]:
    """Return codes and factors, (n, 2) each. Latent i correlates with factor i by rho and with nothing else."""
    x = noise(rows, 4, seed)
    return rho * x[:, :2] + math.sqrt(1 - rho**2) * x[:, 2:], x[:, :2]


def headline_scores(codes: Array, factors: Array, continuous: Any, names: Any = CONTINUOUS) -> dict[str, float]:
    """Return the main score of each metric, with the default protocol. Leave out those that raise an error."""
    outcome = Protocol().rows(codes, factors, continuous).score(names, 0)
    assert set(outcome.errors) <= {"fairness", "flatness", "linearity"}
    return {name: values[TRAITS[name].headline] for name, values in outcome.values.items()}


def test_every_metric_takes_continuous_factors_or_says_why_not() -> None:
    for name, metric in METRICS.items():
        assert ("continuous" in inspect.signature(metric).parameters) == (name not in WITHOUT_CONTINUOUS)
        assert ("Continuous factors:" in (metric.__doc__ or "")) == (name not in WITHOUT_CONTINUOUS)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_is_no_option_of_the_identity(name: str) -> None:
    """Scores of discrete factors that exist already stay valid."""
    plain = identity(name, 0, {"train": 5})
    assert name == "sap" or "continuous" not in plain["options"]
    assert identity(name, 0, {"train": 5}, continuous=[False, False]) == plain
    assert identity(name, 0, {"train": 5}, continuous=[False, True])["continuous"] == [False, True]
    assert identity(name, 0, {"train": 5}, missing=True) == plain | {"missing": True}
    assert identity("unsupervised", 0, {}, continuous=[True], missing=True) == identity("unsupervised", 0, {})


def test_rows_have_the_identity_of_their_factors() -> None:
    factors = uniform(30, 2)
    factors[3, 1] = np.nan
    got = Protocol().rows(noise(30, 2), factors, [True, True]).identity("mig", 0)
    assert got == identity("mig", 0, Protocol().sizes(30), continuous=[True, True], missing=True)
    assert Protocol().rows(NOISY, GRID).identity("mig", 0) == identity("mig", 0, Protocol().sizes(120))


@pytest.mark.parametrize("name", CONTINUOUS)
def test_accepts_continuous_factors_and_missing_labels(name: str) -> None:
    factors = np.repeat(factor_grid(10, 3, 4), 5, axis=0).astype(float)
    factors[:, 0] += 0.5 * uniform(len(factors), 1)[:, 0]
    factors[::7, 0] = factors[::11, 2] = np.nan
    codes = np.nan_to_num(factors) + 0.3 * noise(len(factors), 3)
    options = {key: value for key, value in LAWS[name].options.items() if key != "sizes"}
    got = score(name, codes, factors, continuous=[True, False, False], **options)
    ranges = LAWS[name].ranges
    assert all(math.isfinite(value) for value in got.values())
    assert all(ranges[key][0] <= got[key] <= ranges[key][1] for key in got.keys() & ranges.keys())
    assert TRAITS[name].headline in got


@pytest.mark.parametrize("name", CONTINUOUS)
def test_undeclared_continuous_factors_are_rejected(name: str) -> None:
    with pytest.raises(UserError, match=r"pass continuous=\[...\] .* or discretise them first into bins of equal"):
        score(name, NOISY, GRID + 0.5, continuous=None)
    with pytest.raises(UserError, match=r"one bool per factor. Got 2 for 3 factors instead"):
        score(name, NOISY, GRID, continuous=[True, False])


@pytest.mark.parametrize("x", [noise(1000, 1)[:, 0], uniform(57, 1)[:, 0] ** 9])
def test_the_recipe_of_the_error_message_gives_bins_of_equal_counts(x: Array) -> None:
    with pytest.raises(UserError) as error:
        as_labels(x[:, None])
    recipe = re.search(r"counts: (.*) for a factor x", str(error.value))
    assert recipe
    bins = eval(recipe[1], {"np": np, "x": x})
    counts = np.bincount(bins)
    assert len(counts) == 10
    assert counts.min() >= len(x) // 10 - 1
    assert counts.max() <= len(x) // 10 + 1


def bins_of(values: Array) -> Array:
    """Return the bin of each label of one continuous factor."""
    return as_labels(values[:, None], [True]).binned()[:, 0]


@pytest.mark.parametrize("n", [5, 20, 57, 1000])
def test_bins_have_equal_counts(n: int) -> None:
    counts = np.bincount(bins_of(noise(n, 1)[:, 0]))
    assert counts.min() >= 2
    assert counts.max() - counts.min() <= 1
    assert len(counts) == min(10, n // 2)


def test_bins_of_repeated_labels() -> None:
    """Equal labels share a bin, and a factor with two labels keeps two bins, however rare one of them is."""
    for counts in ((1, 99), (99, 1), (50, 50)):
        assert len(np.unique(bins_of(np.repeat([0.0, 1.0], counts)))) == 2
    values = np.repeat(np.arange(7), 20)
    assert np.array_equal(bins_of(values), values)
    assert len(np.unique(bins_of(values))) == 7


@pytest.mark.parametrize("name", SAME_FORM)
def test_a_few_equally_spaced_values_score_as_a_discrete_factor(name: str) -> None:
    codes, factors = np.tile(NOISY, (3, 1)), np.tile(GRID, (3, 1))
    got, expected = score(name, codes, factors * 0.37 - 1.3, continuous=[True] * 3), score(name, codes, factors)
    changed = {"InfoE"}  # a linear regression instead of a logistic one
    assert {k: got[k] for k in got if k not in changed} == pytest.approx(
        {k: expected[k] for k in got if k not in changed}, abs=1e-12
    )


@pytest.mark.parametrize("name", [name for name in CONTINUOUS if name not in NOT_CONVERGING])
def test_scores_converge_as_the_number_of_values_grows(name: str) -> None:
    """Rounded to m levels, the factors approach the continuous ones, and so do the scores."""
    u = uniform(1500, 2)
    codes = np.c_[u[:, 0], 0.7 * u[:, 0] + u[:, 1]] + 0.15 * noise(1500, 2)
    limit = headline_scores(codes, u, [True, True], [name])[name]
    errors = [
        abs(headline_scores(codes, np.floor(u * m) / m, [True, True], [name])[name] - limit) for m in (4, 32, 256)
    ]
    assert errors[2] <= 0.01
    assert errors[1] <= 0.05
    assert errors[2] <= max(errors[0], 0.005)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_neighbours_estimate_the_information_of_gaussians(rho: float) -> None:
    codes, factors = gaussian_pair(rho, 5000)
    labels = as_labels(factors, [True, True])
    nats, shares = neighbour_information(codes, labels), neighbour_shares(codes, labels)
    expected = -0.5 * math.log(1 - rho**2)
    assert np.diag(nats) == pytest.approx(expected, abs=0.03)
    assert np.diag(shares) == pytest.approx(rho**2, abs=0.04)
    assert np.fliplr(nats).diagonal() == pytest.approx(0, abs=0.03)


def test_bins_approach_the_information_of_gaussians_from_below() -> None:
    """Binning loses information. More bins lose less."""
    codes, factors = gaussian_pair(0.9, 50_000)
    expected = -0.5 * math.log(1 - 0.81)
    losses = [
        expected - np.diag(factor_information(codes, as_labels(factors, True), bins, "miller-madow").matrix).mean()
        for bins in (5, 10, 20, 40)
    ]
    assert all(a > b > 0 for a, b in itertools.pairwise(losses))
    assert losses[-1] < 0.03


@pytest.mark.parametrize("rows", [300, 2000])
def test_the_correction_removes_most_of_the_bias(rows: int) -> None:
    """Independent columns have no information. The plug-in estimate is above 0 by the bias."""
    labels = [discretise(uniform(rows, 5, seed), 10) for seed in (1, 2)]
    plug_in, corrected = (mutual_information(*labels, corrected=flag).mean() for flag in (False, True))
    assert plug_in == pytest.approx(81 / (2 * rows), rel=0.25)
    assert corrected < 0.3 * plug_in
    same = mutual_information(labels[0], labels[0], corrected=True)
    assert np.diag(same) == pytest.approx(entropy(labels[0], corrected=True))


@pytest.mark.parametrize("name", INFORMATION)
def test_all_estimators_find_perfect_codes_and_noise(name: str) -> None:
    u = uniform(2000, 3)
    options = [{"neighbours": 0}, {"neighbours": 3}]
    if name != "infomec":
        options = [{"estimator": estimator} for estimator in ("plug-in", "miller-madow", "neighbours")]
    for option in options:
        perfect = score(name, u, u, continuous=[True] * 3, **option)[TRAITS[name].headline]
        random = score(name, noise(2000, 5), u, continuous=[True] * 3, **option)[TRAITS[name].headline]
        assert perfect > 0.9, option
        # The modularity of noise is a ratio of errors of the estimates, which has no floor near 0.
        assert name in ("modularity", "infomec") or random < 0.25, option


def test_rejects_an_unknown_estimator() -> None:
    for name in INFORMATION[:-1]:
        with pytest.raises(UserError, match=r"Unknown estimator 'neighbors'. Did you mean 'neighbours'"):
            score(name, NOISY, GRID, estimator="neighbors")


@pytest.mark.parametrize("rho", [0.3, 0.8])
def test_scores_of_gaussians_are_known(rho: float) -> None:
    """Each factor has one latent with correlation rho."""
    codes, factors = gaussian_pair(rho, 9000)
    got = headline_scores(codes, factors, [True, True])
    assert got["sap"] == pytest.approx(rho**2, abs=0.02)
    assert got["mcc"] == pytest.approx(rho, abs=0.02)
    assert got["downstream_lr"] == pytest.approx(rho**2, abs=0.03)
    assert got["downstream_gbt"] == pytest.approx(rho**2, abs=0.04)
    # Kendall's tau of a Gaussian is 2 asin(rho) / pi, and the probability of the correct order is (1 + tau) / 2.
    assert got["explicitness"] == pytest.approx(0.5 + math.asin(rho) / math.pi, abs=0.02)
    assert infomec(codes, factors, [True, True])["InfoE"] == pytest.approx(rho**2, abs=0.03)
    gaps = gap_per_factor(codes, factors, [True, True], "neighbours")
    assert gaps == pytest.approx(rho**2, abs=0.05)


def test_known_codes_have_known_scores() -> None:
    u = uniform(3000, 2) - 0.5
    turned = u @ np.array([[1.0, 1.0], [-1.0, 1.0]]) / math.sqrt(2)  # by 45 degrees
    copies, random = np.repeat(u, 2, axis=1), noise(3000, 4)
    perfect, rotated, duplicated, nothing = (headline_scores(c, u, [True, True]) for c in (u, turned, copies, random))
    best = ("beta_vae", "factor_vae", "dci", "sap", "explicitness", "downstream_lr", "downstream_gbt", "mcc")
    assert all(perfect[name] > 0.99 for name in best)
    assert all(perfect[name] > 0.9 for name in (*INFORMATION, "irs"))
    assert rotated["mcc"] == pytest.approx(math.sqrt(0.5), abs=0.02)
    assert rotated["sap"] == pytest.approx(0, abs=0.06)  # the difference of two squared correlations near 0.5
    assert rotated["dci"] < 0.1
    assert rotated["downstream_lr"] > 0.99
    assert rotated["explicitness"] > 0.99
    assert duplicated["sap"] == duplicated["mig"] == 0
    assert duplicated["mcc"] > 0.99
    assert nothing["downstream_lr"] < 0.02
    assert nothing["downstream_gbt"] == 0
    assert nothing["explicitness"] == pytest.approx(0.5, abs=0.03)
    assert nothing["beta_vae"] == pytest.approx(0.5, abs=0.1)
    assert nothing["sap"] < 0.01
    assert nothing["mcc"] < 0.06


def test_factors_of_both_kinds() -> None:
    """The score of a mixed table is the mean of the scores of its factors."""
    u = np.c_[uniform(600, 1), np.arange(600) % 3]
    codes = u + 0.2 * noise(600, 2)
    parts = [sap(codes, u[:, j : j + 1], codes, u[:, j : j + 1], continuous=[j == 0])["SAP_score"] for j in range(2)]
    assert sap(codes, u, codes, u, continuous=[True, False]) == {"SAP_score": pytest.approx(np.mean(parts))}
    mixed = gap_per_factor(codes, u, [True, False])
    assert mixed[1] == gap_per_factor(codes, u[:, 1:])[0]


@pytest.mark.parametrize("name", ["dci", "sap", "mcc", "downstream_lr", "downstream_gbt", "fairness"])
def test_rows_without_labels_are_left_out(name: str) -> None:
    """If rows have no label at all, the score is that of the other rows, whatever the codes of the former are."""
    codes, factors = np.tile(NOISY, (3, 1)), np.tile(GRID, (3, 1)).astype(float)
    keep = np.arange(360) % 7 > 0
    expected = score(name, codes[keep], factors[keep])
    factors[~keep] = np.nan
    codes[~keep] = 3 * noise(int((~keep).sum()), 3)
    assert score(name, codes, factors) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", [name for name in CONTINUOUS if name != "fairness"])
def test_a_few_missing_labels_change_little(name: str) -> None:
    factors = np.tile(GRID, (12, 1)).astype(float)
    codes = factors + 0.4 * noise(len(factors), 3)
    complete = headline_scores(codes, factors.astype(int), None, [name])[name]
    factors[uniform(*factors.shape) < 0.1] = np.nan
    assert headline_scores(codes, factors, None, [name])[name] == pytest.approx(complete, abs=0.06)


def test_fairness_uses_complete_rows() -> None:
    factors = np.repeat(factor_grid(3, 4), 6, axis=0).astype(float)
    codes = factors + 0.5 * noise(len(factors), 2)
    factors[::6, 0] = np.nan
    complete = ~np.isnan(factors).any(axis=1)
    assert fairness(codes, factors) == fairness(codes[complete], factors[complete].astype(int))


def test_two_thousand_rows_with_three_float_labels_are_scored_by_all_metrics_but_three() -> None:
    """`benchmarks/bench_own_labels.py` measures the time."""
    u = uniform(2000, 3)
    outcome = Protocol().rows(np.c_[u, noise(2000, 7)], u, [True] * 3).score(METRICS, 0)
    # No table of random floats holds complete settings.
    assert set(outcome.errors) == {"fairness", "flatness", "linearity"}


@pytest.mark.parametrize(
    ("factors", "continuous", "message"),
    [
        ([[0, 0], [1, 1], [2, 0], [3, 1]], None, "must occur twice.* Got 4 different values in factor column 0"),
        (
            [[0.1, 0], [0.2, 1], [0.4, 0], [np.nan, 1]],
            [True, False],
            "more than 3 labels.* Got 3 in factor column 0",
        ),
    ],
)
def test_too_few_neighbours_are_an_error(factors: Any, continuous: Any, message: str) -> None:
    codes = np.random.default_rng(0).normal(size=(4, 2))
    for name, option in (("mig", {"estimator": "neighbours"}), ("infomec", {"neighbours": 3})):
        with pytest.raises(UserError, match=message):
            METRICS[name](codes, factors, continuous, **option)
