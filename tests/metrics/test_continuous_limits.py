"""Scores of continuous factors have known values for Gaussian codes, and agree with those of many discrete values."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import norm

from support.known_codes import Array, noise, random_factors
from unbraid.metrics import METRICS, TRAITS, dci, factor_vae, infomec, irs, jemmig, sap
from unbraid.metrics.factor_information import neighbour_information
from unbraid.metrics.information import discretise, entropy
from unbraid.metrics.labels import as_labels
from unbraid.metrics.protocol import Protocol

INFORMATION = ("mig", "mig_sup", "modularity", "dcimig", "jemmig", "infomec")
# Metrics of predictions. The accuracy of a classifier falls as the number of classes grows, whereas the explained
# variance does not, so the two forms agree only in the order of codes, for perfect codes and for noise.
PREDICTION = (
    "dci", "sap", "explicitness", "downstream_lr", "downstream_gbt", "strong_downstream", "reduced_downstream",
    "dci_es", "nk",
)  # fmt: skip
# The number of values at which the discrete form has the same bins as the continuous one
BINS = {
    **dict.fromkeys(INFORMATION, 20),
    "irs": 20,
    "beta_vae": 10,
    "factor_vae": 10,
    "z_max_var": 10,
    "unified": 20,
    "aam": 20,
    "omes": 10,
    "flatness": 10,
    "linearity": 10,
    "snc": 10,
}
STRONG, WEAK = 0.8, 0.4  # correlations of each latent with its own factor and with the other factor


def uniform(rows: int, k: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).random((rows, k))


def mixed_codes(u: Array, spread: float = 0.15) -> Array:
    """Return two latents: one follows the first factor, and the other follows both."""
    return np.c_[u[:, 0], 0.7 * u[:, 0] + u[:, 1]] + spread * noise(len(u), 2, seed=1)


def main_scores(name: str, codes: Array, factors: Array, continuous: bool) -> dict[str, float]:
    """Return the main score of a metric, and all scores of infomec but InfoE, which is a regression."""
    rows = Protocol().rows(codes, factors, [True] * factors.shape[1] if continuous else None)
    found = rows.score([name], 0).values_or_raise()[name]
    keys = ("InfoM", "InfoC") if name == "infomec" else (TRAITS[name].headline,)
    return {key: found[key] for key in keys}


def test_every_metric_with_factors_is_compared_with_its_discrete_form() -> None:
    with_grid = {"fairness", "d_lsbd"}  # needs complete settings, see test_continuous.py
    assert {*BINS, *PREDICTION, "mcc", "unsupervised", "factorised_support"} | with_grid == set(METRICS)


@pytest.mark.parametrize("name", BINS)
def test_the_discrete_form_approaches_the_continuous_one(name: str) -> None:
    """Factors are rounded down to m values and declared discrete."""
    u = uniform(3000, 2)
    codes, limit = mixed_codes(u), main_scores(name, mixed_codes(u), u, True)
    values = [max(2, BINS[name] // 4), BINS[name] // 2, BINS[name]]
    for key, expected in limit.items():
        scores = [main_scores(name, codes, np.floor(u * m).astype(int), False)[key] for m in values]
        errors = [abs(score - expected) for score in scores]
        # The classes of snc have equal counts, and the rounded values have equal widths. For the ratios of linearity,
        # two random selections of 128 lines differ by about 0.015.
        assert errors[2] < {"snc": 0.02, "linearity": 0.04}.get(name, 0.01)
        assert errors[2] <= errors[1] + 0.005
        assert errors[1] <= errors[0] + 0.005


@pytest.mark.parametrize("name", ["mcc", "irs"])
def test_the_discrete_form_converges_for_any_number_of_values(name: str) -> None:
    u = uniform(3000, 2)
    codes, (expected,) = mixed_codes(u), main_scores(name, mixed_codes(u), u, True).values()
    errors = [
        abs(next(iter(main_scores(name, codes, np.floor(u * m).astype(int), False).values())) - expected)
        for m in (4, 32, 256)
    ]
    assert errors[0] > 3 * errors[2]
    assert errors[2] < 0.003


def test_information_from_neighbours_converges() -> None:
    """The information about a discrete factor, in nats, approaches that about the continuous factor."""
    codes, factors = gaussian_codes(8000)
    expected = neighbour_information(codes, as_labels(factors, True))
    errors = []
    for m in (4, 16, 64):
        classes = np.floor(norm.cdf(factors) * m).astype(int)
        errors.append(np.abs(neighbour_information(codes, as_labels(classes)) - expected).max())
    assert errors[0] > 2 * errors[2]
    assert errors[2] < 0.05


@pytest.mark.parametrize("m", [8, 20])
def test_jemmig_from_neighbours_agrees_with_its_discrete_form(m: int) -> None:
    u = uniform(3000, 2)
    classes = np.floor(u * m).astype(int)
    discrete = jemmig(mixed_codes(u), classes, None, "neighbours", bins=m)["jemmig"]
    assert jemmig(mixed_codes(u), u, [True, True], "neighbours", bins=m)["jemmig"] == pytest.approx(discrete, abs=0.02)


@pytest.mark.parametrize("name", PREDICTION)
def test_regression_and_classification_agree_in_the_order_of_codes(name: str) -> None:
    """Both forms order codes by their noise, and both find that pure noise tells nothing."""
    u = uniform(1500, 2)
    classes = np.floor(u * 4).astype(int)
    codes = [u + spread * noise(1500, 2, seed=1) for spread in (0.0, 0.1, 0.3)] + [noise(1500, 2, seed=1)]
    orders = [
        [next(iter(main_scores(name, c, f, continuous).values())) for c in codes]
        for f, continuous in ((u, True), (classes, False))
    ]
    for scores in orders:
        assert all(a > b - 0.01 for a, b in itertools.pairwise(scores)), scores
        assert scores[0] > scores[2] + 0.05 > scores[3] + 0.1
    chance = {"explicitness": (0.5, 0.5)}.get(name, (0, 0.25) if "downstream" in name else (0, 0))
    assert [scores[-1] for scores in orders] == pytest.approx(chance, abs=0.06)
    # Lines cannot separate the values of a factor in one latent. The first cut of a tree leaves errors. Without its
    # latent, a factor with 4 values is predicted correctly in a quarter of the rows.
    floors = {"sap": (0.99, 0.0), "dci_es": (0.95, 0.95), "nk": (0.99, 0.7)}.get(name, (0.99, 0.95))
    assert all(scores[0] > floor for scores, floor in zip(orders, floors, strict=True)), orders


# Gaussian codes with known scores: latent i correlates with its own factor by 0.8 and with the other one by 0.4.


def gaussian_codes(rows: int, strong: float = STRONG, weak: float = WEAK, seed: int = 0) -> tuple[Array, Array]:
    """Return two latents and two independent standard normal factors with the given correlations."""
    x = noise(rows, 4, seed)
    own, other = x[:, :2], x[:, 1::-1]
    return strong * own + weak * other + math.sqrt(1 - strong**2 - weak**2) * x[:, 2:], own


def explained_share() -> float:
    """Return the fraction of the variance of a factor that the best linear function of both latents explains."""
    between = 2 * STRONG * WEAK  # the correlation of the two latents
    cross = np.array([STRONG, WEAK])
    return float(cross @ np.linalg.solve([[1, between], [between, 1]], cross))


def test_shares_of_gaussians_give_known_scores() -> None:
    """The share of information from neighbours is the squared correlation."""
    codes, factors = gaussian_codes(9000)
    a, b = STRONG**2, WEAK**2
    expected = {"mig": a - b, "mig_sup": a - b, "dcimig": a - b, "modularity": 1 - (b / a) ** 2}
    for name, value in expected.items():
        got = METRICS[name](codes, factors, [True, True], "neighbours")[TRAITS[name].headline]
        assert got == pytest.approx(value, abs=0.04), name
    got = infomec(codes, factors, [True, True], neighbours=3)
    concentration = 2 * (a / (a + b) - 0.5)
    expected = {"InfoM": concentration, "InfoC": concentration, "InfoE": explained_share()}
    assert got == pytest.approx(expected, abs=0.04)


def test_jemmig_of_gaussians_is_known() -> None:
    codes, factors = gaussian_codes(9000)
    strong, weak = (-0.5 * math.log(1 - rho**2) for rho in (STRONG, WEAK))
    code_entropy, factor_entropy = entropy(discretise(codes)), entropy(discretise(factors))
    cost = code_entropy + factor_entropy - 2 * strong + weak
    expected = np.mean(1 - cost / (factor_entropy + math.log(20)))
    assert jemmig(codes, factors, [True, True], "neighbours")["jemmig"] == pytest.approx(expected, abs=0.02)


class BinnedGaussian(NamedTuple):
    """The exact information and entropies of two binned Gaussian variables, in nats."""

    information: float
    code_entropy: float
    factor_entropy: float


def binned_gaussian(c: Array, v: Array, rho: float, bins: int) -> BinnedGaussian:
    """Integrate the density over the equal-width bins of the two samples. The outer bins are unbounded."""
    edges = [np.r_[-np.inf, np.linspace(x.min(), x.max(), bins + 1)[1:-1], np.inf] for x in (c, v)]
    points, weights = np.polynomial.legendre.leggauss(20)
    low, high = np.clip(edges[1][:-1], -9, 9)[:, None], np.clip(edges[1][1:], -9, 9)[:, None]
    t = (low + high) / 2 + (high - low) / 2 * points
    density = norm.pdf(t) * weights * (high - low) / 2
    cumulative = norm.cdf((edges[0][:, None, None] - rho * t) / math.sqrt(1 - rho**2))
    cells = (np.diff(cumulative, axis=0) * density).sum(axis=2)
    joint, codes, factors = (-np.sum(p[p > 0] * np.log(p[p > 0])) for p in (cells, cells.sum(1), cells.sum(0)))
    return BinnedGaussian(codes + factors - joint, codes, factors)


@pytest.mark.parametrize("bins", [10, 20])
def test_scores_from_bins_of_gaussians_are_known(bins: int) -> None:
    """The information of binned Gaussian variables is computed by integration."""
    codes, factors = gaussian_codes(40_000)
    cells = [
        [binned_gaussian(codes[:, i], factors[:, j], STRONG if i == j else WEAK, bins) for j in (0, 1)] for i in (0, 1)
    ]
    nats = np.array([[cell.information for cell in row] for row in cells])
    v = np.array([cell.factor_entropy for cell in cells[0]])
    c = np.array([row[0].code_entropy for row in cells])
    best, other, shares = np.diag(nats), np.diag(nats[::-1]), nats / v
    expected: dict[str, Any] = {
        "mig": np.mean((best - other) / v),
        "mig_sup": np.mean([shares[0, 0] - shares[0, 1], shares[1, 1] - shares[1, 0]]),
        "dcimig": (nats[0, 0] - nats[0, 1] + nats[1, 1] - nats[1, 0]) / v.sum(),
        "modularity": np.mean([1 - (row.min() / row.max()) ** 2 for row in nats]),
        "jemmig": np.mean(1 - (c + v - 2 * best + other) / (v + math.log(bins))),
    }
    for name, value in expected.items():
        for estimator in ("plug-in", "miller-madow"):
            got = METRICS[name](codes, factors, [True, True], estimator, bins=bins)[TRAITS[name].headline]
            assert got == pytest.approx(value, abs=0.012), (name, estimator)
    got = infomec(codes, factors, [True, True], bins=bins)
    assert got["InfoM"] == pytest.approx(np.mean(2 * (shares.max(1) / shares.sum(1) - 0.5)), abs=0.02)
    assert got["InfoC"] == pytest.approx(np.mean(2 * (shares.max(0) / shares.sum(0) - 0.5)), abs=0.02)


def test_regressions_of_gaussians_are_known() -> None:
    """Both latents together explain a share of the variance that follows from the correlations."""
    codes, factors = gaussian_codes(9000)
    arrays = codes[:6000], factors[:6000], codes[6000:], factors[6000:]
    assert sap(*arrays, continuous=[True, True])["SAP_score"] == pytest.approx(STRONG**2 - WEAK**2, abs=0.02)
    assert dci(*arrays, [True, True])["informativeness_test"] == pytest.approx(explained_share(), abs=0.03)
    alone = gaussian_codes(9000, weak=0.0)
    parts = alone[0][:6000], alone[1][:6000], alone[0][6000:], alone[1][6000:]
    scores = dci(*parts, [True, True])
    assert scores["informativeness_test"] == pytest.approx(STRONG**2, abs=0.03)
    assert scores["disentanglement"] > 0.9


def equal_count_edges(bins: int) -> Array:
    """Return the edges of bins of a standard normal variable with equal probabilities."""
    return norm.ppf(np.linspace(0, 1, bins + 1))


def draw_in_bin(low: float, high: float, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Draw standard normal numbers between two bounds."""
    return np.asarray(norm.ppf(rng.uniform(norm.cdf(low), norm.cdf(high), shape)))


@pytest.mark.parametrize("rho", [0.3, 0.5])
def test_the_factor_vae_score_of_gaussians_is_known(rho: float) -> None:
    """Votes are simulated with new examples whose factor is drawn inside one of ten bins, without a table."""
    rng, batch, votes = np.random.default_rng(1), 16, 20_000
    edges = equal_count_edges(10)
    chosen = rng.integers(10, size=votes)
    fixed = draw_in_bin(edges[chosen][:, None], edges[chosen + 1][:, None], (votes, batch), rng)
    own = rho * fixed + math.sqrt(1 - rho**2) * rng.normal(size=(votes, batch))
    wins = own.var(axis=1, ddof=1) < rng.normal(size=(votes, batch)).var(axis=1, ddof=1)
    codes, factors = gaussian_codes(40_000, rho, 0.0)
    got = factor_vae(codes, factors, [True, True], batch=batch, train=5000, test=20_000)["eval_accuracy"]
    assert got == pytest.approx(wins.mean(), abs=0.02)
    assert 0.55 < got < 0.95


def test_the_irs_of_gaussians_is_known() -> None:
    """The quantile of the deviations in each of 20 bins is estimated from new examples, without a table."""
    rng, rho, draws = np.random.default_rng(1), 0.9, 40_000
    edges, quantiles = equal_count_edges(20), []
    for low, high in itertools.pairwise(edges):
        c = rho * draw_in_bin(low, high, (draws,), rng) + math.sqrt(1 - rho**2) * rng.normal(size=draws)
        quantiles.append(np.quantile(np.abs(c - c.mean()), 0.99))
    codes, factors = gaussian_codes(20_000, rho, 0.0)
    largest = np.abs(codes - codes.mean(axis=0)).max(axis=0)
    expected = np.sum(largest - np.mean(quantiles)) / largest.sum()
    assert irs(codes, factors, [True, True])["avg_score"] == pytest.approx(expected, abs=0.01)


# Noise has no information about continuous factors, for any number of rows.

NOTHING = {"dci": ("informativeness_test", 0.0), "explicitness": ("explicitness_score_test", 0.5),
           "downstream_lr": ("mean_test_accuracy", 0.0), "downstream_gbt": ("mean_test_accuracy", 0.0),
           "beta_vae": ("eval_accuracy", 1 / 3), "factor_vae": ("eval_accuracy", 1 / 3)}  # fmt: skip


@pytest.mark.parametrize("rows", [200, 1_000, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NOTHING)
def test_noise_tells_nothing_about_continuous_factors(name: str, rows: int) -> None:
    """The explained variance is limited to [0, 1], so its mean over tables is slightly above 0."""
    key, chance = NOTHING[name]
    scores = []
    for seed in range(4):
        table = Protocol(train=2 * rows, test=rows).rows(noise(rows, 5, seed), uniform(rows, 3, 9 + seed), [True] * 3)
        scores.append(table.score([name], seed).values_or_raise()[name][key])
    spread = max(float(np.std(scores, ddof=1)), math.sqrt(0.25 / rows)) / 2
    assert abs(np.mean(scores) - chance) < 4 * spread, scores


@pytest.mark.parametrize("name", NOTHING)
def test_noise_tells_nothing_if_labels_are_missing(name: str) -> None:
    factors = random_factors((3, 3, 3), 900, 5).astype(float)
    factors[uniform(900, 3) < 0.3] = np.nan
    got = Protocol().rows(noise(900, 5), factors).score([name], 0).values_or_raise()[name][NOTHING[name][0]]
    chance = 0.5 if name == "explicitness" else 1 / 3
    assert got == pytest.approx(chance, abs=0.08)
