"""The neural networks and random Fourier features of DCI-ES: planted codes, oracles, laws and rejected input."""

from __future__ import annotations

import inspect
import itertools
import math
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from laws import LAWS
from laws.linear import BITS
from support.edges import EDGES, EXPECTED_ERRORS, edge_arrays
from support.known_codes import GRID, MAPS, NOISY, Array, noise, random_factors, reflected
from unbraid.errors import UserError
from unbraid.metrics import METRICS, TRAITS, dci_es, probes
from unbraid.metrics.dci_es import DEPTHS
from unbraid.metrics.identity import identity
from unbraid.metrics.labels import as_labels

SMALL: dict[str, tuple[int, ...]] = {"mlp": (0, 14, 28), "rff": (16, 32, 64)}
PARITY = np.tile(np.array([[0, 0], [0, 1], [1, 0], [1, 1]]), (30, 1))  # two factors with two values each


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "STEPS", 300)


def score(codes: Array, factors: Array, family: str, **options: Any) -> dict[str, float]:
    """Return the scores of one table as training and test examples, by default with few sizes."""
    return dci_es(codes, factors, codes, factors, **{"probes": family, "sizes": SMALL.get(family), **options})


def curves(family: str, codes: Array, factors: Array, sizes: tuple[int, ...], continuous: bool = False) -> Any:
    labels = as_labels(factors, continuous)
    return probes.fit_curves(family, codes, labels, codes, labels, sizes, 0)


@pytest.mark.usefixtures("few_steps")
def test_a_network_finds_the_parity_that_a_linear_probe_misses() -> None:
    """The latents are the parity of both factors, and the first factor. The second factor is the parity of the latents.

    The linear probe finds the first factor, and is at chance for the second, where half of the examples are wrong.
    Every network finds both. Networks with d inputs, two hidden layers of w units and two outputs have
    (d + 1) w + (w + 1) w + (w + 1) 2 parameters, and the linear probe has (d + 1) 2.
    """
    got = score(np.c_[PARITY.sum(axis=1) % 2, PARITY[:, 0]], PARITY, "mlp")
    linear, narrow, wide = np.log([3 * 2, *(3 * w + (w + 1) * w + (w + 1) * 2 for w in (14, 28))])
    area = 0.5 * (narrow - linear) * 0.5 / (wide - linear)
    assert got["mean_informativeness"] == pytest.approx((1 + 1 - area / 0.5) / 2, abs=1e-12)
    assert got["explicitness"] == pytest.approx((1 + 1 - 2 * area / 0.5) / 2, abs=1e-12)
    assert got["informativeness"] == 1
    # The first factor needs one latent. The second needs both: permuting either makes half of the examples wrong.
    assert got["completeness"] == pytest.approx((1 + 0) / 2, abs=0.05)


@pytest.mark.usefixtures("few_steps")
def test_linear_codes_have_the_highest_scores_with_networks() -> None:
    """Rotated codes score less with trees, but not with networks, because the smallest network is a linear probe."""
    straight, turned = (score(codes, GRID, "mlp") for codes in (GRID, reflected(GRID)))
    for got in (straight, turned):
        assert got["mean_informativeness"] == got["explicitness"] == got["informativeness"] == 1
    assert straight["disentanglement"] == pytest.approx(1, abs=1e-6)
    assert turned["disentanglement"] < 0.5
    assert score(reflected(GRID), GRID, "trees")["mean_informativeness"] < 0.9


def test_random_features_separate_four_points() -> None:
    """Sixteen features of four different points are linearly independent, so every probe separates the points."""
    got = score(BITS, BITS, "rff")
    expected = dict.fromkeys(("mean_informativeness", "explicitness", "informativeness"), 1.0)
    assert {key: got[key] for key in expected} == expected


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("family", SMALL)
def test_constant_codes_tell_nothing(family: str) -> None:
    got = score(np.full(GRID.shape, 0.3), GRID, family)
    assert got["mean_informativeness"] == pytest.approx(0, abs=1e-12)
    assert got["explicitness"] == pytest.approx(1, abs=1e-12)
    assert got["disentanglement"] == got["completeness"] == 0


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("family", SMALL)
def test_perfect_codes_score_better_than_noise_on_new_examples(family: str) -> None:
    factors, test = random_factors((3, 4), 900, 0), random_factors((3, 4), 500, 1)
    sizes = SMALL[family]
    perfect = dci_es(factors, factors, test, test, probes=family, sizes=sizes)
    random = dci_es(noise(900, 3), factors, noise(500, 3, seed=1), test, probes=family, sizes=sizes)
    assert random["mean_informativeness"] < 0.1 < 0.6 < perfect["mean_informativeness"]
    assert perfect["disentanglement"] > 0.9
    assert perfect["size"] == 1


def test_products_of_random_features_approach_the_gaussian_kernel() -> None:
    codes, count = noise(20, 3), 40_000
    features = probes.fourier_features(codes, probes.draw_frequencies(3, count, 0))
    distances = ((codes[:, None] - codes[None]) ** 2).sum(axis=2)
    kernel = np.exp(-((2 * np.pi * probes.FREQUENCY_SCALE) ** 2) * distances / 2)
    assert np.abs(features @ features.T / (count / 2) - kernel).max() < 5 / math.sqrt(count)


def features_by_loops(codes: Array, frequencies: Array) -> Array:
    rows = []
    for row in (codes - codes.mean(axis=0)) / codes.std(axis=0):
        angles = [sum(c * w for c, w in zip(row, column, strict=True)) for column in frequencies.T]
        rows.append([part(angle) for angle in angles for part in (math.cos, math.sin)])
    return np.array(rows)


@pytest.mark.parametrize("continuous", [False, True])
def test_random_features_equal_their_oracle(continuous: bool) -> None:
    """Features by loops, linear probes of scikit-learn, and areas by loops."""
    sizes = (4, 7, 12)
    features = features_by_loops(NOISY, probes.draw_frequencies(3, 12, 0))
    means = []
    for values in GRID.T:
        errors = []
        for size in sizes:
            x = features[:, :size]
            if continuous:
                spread = (x - x.mean(axis=0)) / x.std(axis=0)
                errors.append(1 - max(0.0, Ridge(1.0).fit(spread, values).score(spread, values)))
            else:
                errors.append(1 - LogisticRegression(max_iter=100).fit(x, values).score(x, values))
        chance = 1.0 if continuous else 1 - np.bincount(values).max() / len(values)
        curve = [min(chance, *errors[: i + 1]) for i in range(3)]
        steps = [math.log(b / a) for a, b in itertools.pairwise(sizes)]
        area = sum(step * (a + b) / 2 for step, (a, b) in zip(steps, itertools.pairwise(curve), strict=True))
        means.append(1 - area / sum(steps) / chance)
    got = score(NOISY, GRID, "rff", sizes=sizes, continuous=continuous)["mean_informativeness"]
    assert got == pytest.approx(sum(means) / 3, abs=1e-6 if continuous else 0.01)  # predictions close to a tie


def test_networks_of_a_continuous_factor_find_its_absolute_value() -> None:
    """A linear probe explains no variance of |x|, and explains all of x."""
    x = np.linspace(-1, 1, 201)
    factors, codes = np.c_[np.abs(x), x], np.c_[x, noise(201, 1)]
    errors = curves("mlp", codes, factors, (0, 28), continuous=True).errors
    assert errors[0] == pytest.approx([1, 0], abs=0.02)
    assert (errors[1] < 0.02).all()


@pytest.mark.parametrize("continuous", [False, True])
def test_predictions_of_a_network_equal_loops_over_its_weights(continuous: bool) -> None:
    codes = probes.standardise(NOISY, NOISY)[0]
    column = next(as_labels(GRID * 7 - 3, continuous).columns())
    (predict,) = probes.fit_networks(codes, column, (5,), 0)
    model: Any = predict.args[0]  # type: ignore[attr-defined]
    assert sum(part.size for part in (*model.coefs_, *model.intercepts_)) == probes.network_parameters(
        3, 5, 1 if continuous else 5
    )
    for row, got in zip(codes[:20].tolist(), predict(codes[:20]), strict=True):
        h = row
        for depth, (w, b) in enumerate(zip(model.coefs_, model.intercepts_, strict=True)):
            h = [sum(x * v for x, v in zip(h, w[:, i], strict=True)) + b[i] for i in range(w.shape[1])]
            h = [max(0.0, x) for x in h] if depth < 2 else h
        expected = h[0] * column.values.std() + column.values.mean() if continuous else model.classes_[np.argmax(h)]
        assert got == pytest.approx(expected, abs=1e-4)


def test_permutation_importances_by_hand() -> None:
    """The probe reads the first latent only, so only permuting this latent makes errors."""
    column = next(as_labels(GRID).columns())
    got = probes.permutation_importances(lambda x: x[:, 0], GRID.astype(float), column, 0)
    assert got.tolist() == [1, 0, 0]
    assert probes.permutation_importances(lambda x: 0 * x[:, 0], GRID.astype(float), column, 0).tolist() == [0, 0, 0]


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("law", MAPS)
@pytest.mark.parametrize("family", SMALL)
def test_scores_are_invariant(family: str, law: str) -> None:
    """Weights and frequencies are drawn in the order of the latents, and permutations in the order of rows."""
    tolerances = {"rows": 0.06, "codes": 0.06, "factors": 1e-9, "affine": 0.02}
    codes, factors = MAPS[law](NOISY, GRID)
    before = score(NOISY, GRID, family)
    assert score(codes, factors, family) == pytest.approx(before, abs=tolerances[law])


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("family", SMALL)
def test_scores_depend_on_the_seed_only(family: str) -> None:
    first, again, other = (score(NOISY, GRID, family, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("family", SMALL)
def test_edge_case(family: str, edge: str) -> None:
    """Every kind of probes accepts and rejects the same degenerate input, and its scores are in range."""
    message = EXPECTED_ERRORS.get(edge, {}).get("dci_es")
    if message is not None:
        with pytest.raises(UserError, match=message):
            dci_es(**edge_arrays(edge), probes=family, sizes=SMALL[family])
        return
    scores = dci_es(**edge_arrays(edge), probes=family, sizes=SMALL[family])
    ranges = LAWS["dci_es"].ranges
    assert set(scores) == set(ranges)
    assert all(ranges[key][0] <= value <= ranges[key][1] + 1e-12 for key, value in scores.items())


def test_the_default_is_trees() -> None:
    assert dci_es(NOISY, GRID, NOISY, GRID) == dci_es(NOISY, GRID, NOISY, GRID, probes="trees")


def test_later_options_do_not_change_what_identifies_a_stored_score() -> None:
    """Scores that were stored before the options existed are used again."""
    assert identity("dci_es", 0, {"train": 10})["options"] == {"depths": list(DEPTHS)}
    for name in METRICS:
        parameters = inspect.signature(METRICS[name]).parameters
        assert all(parameters[option].kind is inspect.Parameter.KEYWORD_ONLY for option in TRAITS[name].later_options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"probes": "forest"}, "Unknown kind of probes 'forest'. .*Choose from: mlp, rff, trees"),
        ({"sizes": (1, 2)}, r"sizes of trees must be given as 'depths'. Got sizes=\[1, 2\]"),
        ({"probes": "mlp", "sizes": (14, 14)}, r"'sizes' must be at least 2 increasing numbers. Got \[14, 14\]"),
        ({"probes": "mlp", "sizes": (-1, 14)}, "'sizes' parameter must be >= 0. Got -1"),
        ({"probes": "rff", "sizes": (0, 14)}, "'sizes' parameter must be >= 1. Got 0"),
        ({"probes": "rff", "sizes": [8]}, r"at least 2 increasing numbers. Got \[8\]"),
        ({"probes": "mlp", "sizes": []}, "'sizes' parameter must be >= 0"),
        ({"probes": "mlp", "sizes": (0, 1)}, r"must have more parameters .* Got \[20, 16\] for the widths \[0, 1\]"),
    ],
)
def test_rejects_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        dci_es(NOISY, GRID, NOISY, GRID, **options)


@pytest.mark.parametrize("family", SMALL)
def test_rejects_codes_without_a_finite_variance(family: str) -> None:
    with pytest.raises(UserError, match=r"finite variance. Got a largest absolute value of .*e\+\d+ instead. Scale"):
        score(1e300 * NOISY, GRID, family)


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("family", SMALL)
def test_distant_test_codes_are_scored(family: str) -> None:
    distant = NOISY * np.where(np.arange(120)[:, None] == 3, 1e300, 1.0)
    got = dci_es(NOISY, GRID, distant, GRID, probes=family, sizes=SMALL[family])
    assert all(math.isfinite(value) for value in got.values())
