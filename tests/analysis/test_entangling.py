"""Theorem 1: the same distribution with completely entangled latents, and scores that collapse."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from scipy import stats

import unbraid as ub
from unbraid import analysis
from unbraid.analysis import disentangle, entangle, householder, jacobian, rotation
from unbraid.data.dataset import FactorData
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.metrics.known_codes import make_perfect_codes
from unbraid.runs.run import Run

LAWS = [stats.uniform(-1, 2), stats.expon(), stats.norm(2, 3), stats.beta(2, 5)]
TRIPLES = [(law.cdf, law.ppf, law.pdf) for law in LAWS]
PAIRS = [(law.cdf, law.ppf) for law in LAWS]


def samples_of_laws(n: int) -> np.ndarray:
    """Samples of independent latents with the distributions `LAWS`."""
    rng = np.random.default_rng(0)
    return np.stack([law.rvs(n, random_state=rng) for law in LAWS], 1)


@pytest.mark.parametrize("d", range(2, 13))
@pytest.mark.parametrize(
    "matrix", [householder, rotation, lambda d: householder(d, 0.01), lambda d: householder(d, 0.49)]
)
def test_matrices_are_orthogonal_without_zeros(matrix, d: int) -> None:
    a = matrix(d)
    np.testing.assert_allclose(a @ a.T, np.eye(d), atol=1e-12)
    assert np.abs(a).min() > 1e-4


def test_householder_matrix_of_the_proof() -> None:
    """v_1^2 = alpha, the others share the rest equally, and the entries off the diagonal are -2 v_i v_j."""
    v = np.sqrt([0.2, 0.4, 0.4])
    np.testing.assert_allclose(householder(3, 0.2), [[0.6, *(-2 * v[0] * v[1:])], [-2 * v[0] * v[1], 0.2, -0.8],
                                                      [-2 * v[0] * v[2], -0.8, 0.2]])  # fmt: skip


@pytest.mark.parametrize("matrix", [householder(4), rotation(4)])
def test_marginals_and_independence_are_preserved(matrix: np.ndarray) -> None:
    z = entangle(samples_of_laws(20_000), PAIRS, matrix)
    for law, column in zip(LAWS, z.T, strict=True):
        assert stats.kstest(column, law.cdf).pvalue > 1e-3
    ranks = stats.rankdata(z, axis=0)
    off = np.corrcoef(ranks.T)[~np.eye(4, dtype=bool)]
    assert np.abs(off).max() < 0.03
    squares = np.corrcoef(((ranks / len(z) - 0.5) ** 2).T)[~np.eye(4, dtype=bool)]
    assert np.abs(squares).max() < 0.03


@pytest.mark.parametrize("matrix", [householder, rotation])
def test_inverse_is_exact(matrix) -> None:
    z = samples_of_laws(500)
    back = disentangle(entangle(z, PAIRS, matrix(4)), PAIRS, matrix(4))
    np.testing.assert_allclose(back, z, rtol=1e-6, atol=1e-7)
    x = np.random.default_rng(1).normal(size=(500, 7))
    np.testing.assert_allclose(disentangle(entangle(x, matrix=matrix(7)), matrix=matrix(7)), x, atol=1e-13)


def test_jacobian_equals_finite_differences_and_has_no_zeros() -> None:
    z = samples_of_laws(50)
    found, step = jacobian(z, TRIPLES), 1e-6
    for j in range(4):
        move = step * np.eye(4)[j]
        slope = (entangle(z + move, PAIRS) - entangle(z - move, PAIRS)) / (2 * step)
        np.testing.assert_allclose(found[:, :, j], slope, rtol=1e-4, atol=1e-6)
    assert np.abs(found).min() > 0
    mapped = entangle(z, PAIRS)
    density = [np.prod([law.pdf(c) for law, c in zip(LAWS, part.T, strict=True)], axis=0) for part in (z, mapped)]
    np.testing.assert_allclose(np.abs(np.linalg.det(found)), density[0] / density[1], rtol=1e-6)


def test_volume_is_preserved_for_normal_latents() -> None:
    found = jacobian(np.zeros((3, 5)))
    np.testing.assert_allclose(np.abs(np.linalg.det(found)), 1)
    np.testing.assert_allclose(found[2], householder(5))


def test_normal_marginals_as_functions_give_the_matrix() -> None:
    x = np.random.default_rng(2).normal(size=(200, 3))
    law = stats.norm()
    np.testing.assert_allclose(entangle(x, [(law.cdf, law.ppf)] * 3), entangle(x), atol=1e-8)


def test_ends_of_the_support_stay_finite() -> None:
    law = stats.uniform()
    assert np.isfinite(entangle([[0.0, 1.0], [1.0, 0.0]], [(law.cdf, law.ppf)] * 2)).all()


def test_invalid_arguments_raise_an_error() -> None:
    for wrong, match in (
        (lambda: householder(1), "at least 2 latents"),
        (lambda: rotation(1), "at least 2 latents"),
        (lambda: householder(3, 0.5), "between 0 and 0.5"),
        (lambda: entangle([1.0, 2.0]), "array"),
        (lambda: entangle([[1.0, 2.0]], matrix=np.ones((2, 2))), "orthogonal"),
        (lambda: entangle([[1.0, 2.0]], matrix=np.eye(2)), "no zeros"),
        (lambda: entangle([[1.0, 2.0]], "uniform"), "'normal' or functions"),
        (lambda: entangle([[1.0, 2.0]], PAIRS), "2 pairs"),
        (lambda: jacobian(samples_of_laws(2), PAIRS), "density"),
    ):
        with pytest.raises(UserError, match=match):
            wrong()


def test_scores_of_a_perfect_code_collapse() -> None:
    factors = np.random.default_rng(0).integers(0, (5, 4, 6, 7), size=(3_000, 4))
    codes = make_perfect_codes(factors) / make_perfect_codes(factors).std(axis=0)
    found = analysis.collapse(codes, factors, ("mig", "dci", "sap", "explicitness"))
    scores = found.table.set_index("metric")
    assert scores.loc["mig", "before"] > 0.95
    assert scores.loc["mig", "after"] < scores.loc["mig", "before"] / 3
    assert scores.loc["dci", "before"] - scores.loc["dci", "after"] > 0.4
    assert scores.loc["sap", "after"] < 0.5 * scores.loc["sap", "before"]
    assert scores.loc["explicitness", "after"] > 0.95  # information is mixed but not lost
    assert found.text.startswith("Rotating the codes, which does not change the likelihood, changes MIG from")
    file = io.BytesIO()
    found.figure.savefig(file)
    assert len(file.getvalue()) > 5_000
    reflected = analysis.collapse(codes, factors, ["mig"], matrix=householder(4)).table
    assert reflected["after"][0] < reflected["before"][0] / 3


@pytest.fixture(scope="module")
def run() -> Run:
    (trained,) = ub.train(ub.methods.BetaVAE(beta=2.0), data="toy", steps=20, quiet=True)
    return trained


def test_twin_has_the_same_likelihood(run: Run, toy: FactorData) -> None:
    x = toy.batch(torch.arange(20))
    twin, same = analysis.entangled_twin(run), analysis.Twin(run, torch.eye(run.spec.latents))
    q = run.posterior(x)
    torch.testing.assert_close(twin.kl(x), q.kl().sum(1).double(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(twin.elbo(x, seed=3), same.elbo(x, seed=3), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(twin.decode(twin.encode(x)), run.decode(run.encode(x)), rtol=1e-4, atol=1e-5)
    assert (twin.encode(x) - run.encode(x)).abs().max() > 0.01


def test_posterior_of_a_twin_is_the_rotated_posterior(run: Run, toy: FactorData) -> None:
    x = toy.batch(torch.arange(2))
    twin = analysis.entangled_twin(run, householder(run.spec.latents))
    mean, covariance = twin.posterior(x)
    q: Gaussian = run.posterior(x)
    samples = q.mean[0] + (0.5 * q.logvar[0]).exp() * torch.randn(100_000, run.spec.latents)
    rotated = samples @ twin.matrix.T
    torch.testing.assert_close(rotated.mean(0), mean[0], rtol=0, atol=0.03)
    torch.testing.assert_close(torch.cov(rotated.T), covariance[0], rtol=0, atol=0.03)


def test_a_run_without_a_decoder_has_no_twin(toy: FactorData) -> None:
    (trained,) = ub.train(ub.methods.PCL(), data="toy", steps=2, quiet=True)
    with pytest.raises(UserError, match="needs a decoder and a normal posterior"):
        analysis.entangled_twin(trained)
