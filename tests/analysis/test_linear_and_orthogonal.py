"""The theory of linear VAEs and of orthogonal decoders, compared with independent numerical results."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import nn

import unbraid as ub
from unbraid import analysis
from unbraid.analysis import distance_to_orthogonality, linear_vae, optimum, polarised_regime, random_distance, rotation
from unbraid.analysis.linear_vae import LinearModel, expected_loss, measure
from unbraid.analysis.orthogonality import decoder_jacobians
from unbraid.analysis.trace_bound import best_noise, best_scale, descend, fixed_noise_minimum, stochastic_loss
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.runs.run import Run

EIGENVALUES = np.array([9, 6, 4, 2.5])
WEAK = np.array([0.5, 0.3])  # directions for which no latent is used at beta s^2 = 1


def covariance(values: np.ndarray, seed: int = 1) -> np.ndarray:
    axes = rotation(len(values), seed)
    return axes * values @ axes.T


def turn(angle: float) -> np.ndarray:
    return np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])


def pair(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
    return nn.Linear(shape[0], 2 * latents), nn.Linear(latents, shape[0])


def test_optimum_of_a_known_case() -> None:
    found = optimum(EIGENVALUES, 1.0)
    np.testing.assert_allclose(found.norms, [8, 5, 3, 1.5])
    np.testing.assert_allclose(found.posterior, [0.1111, 0.1667, 0.25, 0.4], atol=5e-5)
    np.testing.assert_allclose(found.means, 1 - found.posterior)
    assert found.active == 4


def test_latents_collapse_at_the_threshold() -> None:
    """A latent collapses if lambda <= beta s^2, or if there is no axis for it."""
    assert [optimum(EIGENVALUES, b).active for b in (2.49, 2.5, 4.0, 9.0)] == [4, 3, 2, 0]
    more = optimum([3.0, 0.0], 1.0, latents=4)
    assert more.collapsed.tolist() == [False, True, True, True]
    np.testing.assert_array_equal(more.posterior[1:], 1.0)
    assert optimum(EIGENVALUES, 1.0, latents=2).norms.tolist() == [8.0, 5.0]


@pytest.mark.parametrize("beta_s2", [0.1, 1.0, 3.0])
def test_numerical_minimum_equals_the_optimum(beta_s2: float) -> None:
    """From random starts, within 1e-5 of the closed form, and 1e-9 in the value of the loss."""
    c = covariance(np.concatenate([EIGENVALUES, WEAK]))
    best, closed = optimum(EIGENVALUES, beta_s2), linear_vae.best_model(c, beta_s2, 4)
    for seed in range(2):
        model = linear_vae.minimise(c, beta_s2, 4, seed)
        found = measure(model, c)
        np.testing.assert_allclose(found.norms, best.norms, atol=1e-5)
        np.testing.assert_allclose(found.posterior, best.posterior, atol=1e-5)
        np.testing.assert_allclose(found.means, best.means, atol=1e-5)
        assert np.nanmax(found.angle) < 1e-2
        assert found.crossing < 1e-4
        assert abs(expected_loss(model, c, beta_s2) - expected_loss(closed, c, beta_s2)) < 1e-9
        assert distance_to_orthogonality(model.decoder[None])[0] < 2e-2


def test_expected_loss_equals_the_training_objective() -> None:
    """The exact expectation equals the mean objective over many noise samples, and so do the derivatives."""
    c = covariance(EIGENVALUES)
    model = LinearModel(*(np.random.default_rng(0).normal(size=shape) * 0.4 for shape in ((3, 4), (4, 3), (3,))))
    model = model._replace(variances=np.exp(model.variances))
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200_000, 4)) @ np.linalg.cholesky(c).T
    mean = x @ model.encoder.T
    z = mean + np.sqrt(model.variances) * rng.normal(size=mean.shape)
    kl = 0.5 * (mean**2 + model.variances - np.log(model.variances) - 1).sum(1)
    values = 0.5 * np.square(x - z @ model.decoder.T).sum(1) + 2.0 * kl
    assert abs(values.mean() - expected_loss(model, c, 2.0)) < 4 * values.std() / math.sqrt(len(values))
    slopes, step = linear_vae.gradient(model, c, 2.0), 1e-6
    for part, slope in (("encoder", slopes.encoder), ("decoder", slopes.decoder), ("variances", slopes.variances)):
        value = getattr(model, part)
        for place in np.ndindex(*value.shape):
            moved = []
            for way in (step, -step):
                changed = value.copy()
                changed[place] = value[place] * math.exp(way) if part == "variances" else value[place] + way
                moved.append(expected_loss(model._replace(**{part: changed}), c, 2.0))
            assert abs((moved[0] - moved[1]) / (2 * step) - slope[place]) < 1e-6


@pytest.mark.slow
def test_a_trained_linear_vae_reaches_the_optimum() -> None:
    """Within 1e-2 at beta s^2 = 1, with decreasing learning rates because rotations converge slowly."""
    data = linear_vae.linear_data([*EIGENVALUES, *WEAK])
    net: object = pair
    for steps, batch, rate in ((2000, 256, 3e-2), (1000, 512, 5e-3), (1500, 1024, 4e-4)):
        settings = {"steps": steps, "batch": batch, "learning_rate": rate, "latents": 4}
        (run,) = ub.train(ub.methods.BetaVAE(beta=1.0), data, net=net, quiet=True, **settings)
        net = tuple(part.requires_grad_(True) for part in (run.net.encoder, run.net.decoder))
    found = measure(*linear_vae.fit_linear_model(run, data))
    best = optimum(EIGENVALUES, 1.0)
    np.testing.assert_allclose(found.norms, best.norms, rtol=1e-2)
    np.testing.assert_allclose(found.posterior, best.posterior, atol=1e-2)
    np.testing.assert_allclose(found.means, best.means, atol=1e-2)
    assert found.crossing < 3e-2
    result = analysis.orthogonality(run, data, 64)
    assert result["active"] == [0, 1, 2, 3]
    assert result["distance"] < 2e-2


def test_nonlinear_runs_and_invalid_arguments_raise_an_error(toy: FactorData) -> None:
    (curved,) = ub.train(ub.methods.BetaVAE(beta=1.0), toy, steps=30, quiet=True)
    with pytest.raises(UserError, match="encoder must be linear"):
        linear_vae.fit_linear_model(curved, toy)
    with pytest.raises(UserError, match="finite and > 0"):
        optimum([1.0], 0.0)
    with pytest.raises(UserError, match="numbers >= 0"):
        optimum([-1.0], 1.0)
    with pytest.raises(UserError, match="at least one latent"):
        optimum([1.0], 1.0, 0)


def test_fitted_matrices_equal_those_of_a_linear_run() -> None:
    data = linear_vae.linear_data([3.0, 2.0, 1.0], n=300)
    (run,) = ub.train(ub.methods.BetaVAE(beta=1.0), data, steps=5, latents=2, net=pair, quiet=True)
    model, c = linear_vae.fit_linear_model(run, data)
    np.testing.assert_allclose(np.linalg.eigvalsh(c), [1, 2, 3], rtol=1e-5)
    np.testing.assert_allclose(model.encoder, run.net.encoder.weight[:2].numpy(), atol=1e-5)
    np.testing.assert_allclose(model.decoder, run.net.decoder.weight.numpy(), atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_bound_is_attained_at_the_principal_axes(seed: int) -> None:
    """In a known case with n = 4, the loss falls from about 3 to 2.23771, with off-diagonal entries below 2e-2."""
    c = covariance(np.array([5.8, 2.2, 0.9, 0.22]), seed=3)
    log_noise = 4 * math.log(2.237708 / 4) - np.linalg.slogdet(c)[1]
    found = descend(c, log_noise, seed)
    assert found.start > 2.5
    assert analysis.trace_bound(c, log_noise) == pytest.approx(2.237708, abs=1e-9)
    assert 2.237708 - 1e-9 < found.loss < 2.23776
    rotated = found.rotation @ c @ found.rotation.T
    assert np.abs(rotated - np.diag(np.diag(rotated))).max() < 2e-2
    assert np.log(found.noise).sum() == pytest.approx(log_noise)
    np.testing.assert_allclose(found.noise * np.diag(rotated), found.loss / 4)


def test_no_loss_is_below_the_bound() -> None:
    c, rng = covariance(EIGENVALUES), np.random.default_rng(0)
    for seed in range(50):
        u, logs = rotation(4, seed), rng.normal(size=4)
        bound = analysis.trace_bound(c, float(logs.sum()))
        shared = stochastic_loss(u, c, best_noise(u, c, float(logs.sum())))
        assert bound - 1e-9 <= shared <= stochastic_loss(u, c, np.exp(logs)) + 1e-9


def test_fixed_noise_puts_the_largest_on_the_weakest_axis() -> None:
    """Erratum of eq. (8): for fixed E the bound is not attained, and the minimum is larger."""
    noise = np.array([0.1, 0.2, 0.3, 0.7])
    least = fixed_noise_minimum(np.diag(EIGENVALUES), noise)
    assert least == pytest.approx(0.1 * 9 + 0.2 * 6 + 0.3 * 4 + 0.7 * 2.5)
    assert least > analysis.trace_bound(np.diag(EIGENVALUES), float(np.log(noise).sum())) + 0.01
    c = covariance(EIGENVALUES)
    axes = np.linalg.eigh(c)[1][:, ::-1].T
    assert stochastic_loss(axes, c, noise) == pytest.approx(least)
    assert min(stochastic_loss(rotation(4, seed), c, noise) for seed in range(200)) > least


def test_erratum_of_lemma_one() -> None:
    """Erratum: c = sqrt(n / sum x^2). With n = 50 and |x| = 14.437 that is .48980, not 14.44."""
    x = np.random.default_rng(0).normal(size=50)
    x *= math.sqrt(50) / 0.48980 / np.linalg.norm(x)
    found = minimize_scalar(lambda c: float((c**2 * x**2 - np.log(c**2)).sum()), bounds=(0.01, 20), method="bounded")
    assert found.x == pytest.approx(0.48980, abs=2e-5)
    assert best_scale(x) == pytest.approx(0.48980)
    assert np.linalg.norm(x) == pytest.approx(14.44, abs=5e-3)
    assert np.square(best_scale(x) * x).mean() == pytest.approx(1.0)


@pytest.mark.parametrize("unit", [True, False])
def test_erratum_of_equation_four(unit: bool) -> None:
    """The diagonal of I - Z^T Z is zero, and eq. (7) holds, only if the columns of Z have unit length."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(30, 3))
    z /= np.linalg.norm(z, axis=0) if unit else 4.0
    u, scale, noise = rotation(3), np.diag([3.0, 2.0, 1.0]), np.diag([0.1, 0.4, 0.9])
    x = z @ scale @ u
    left, right = np.trace(noise @ scale @ scale @ noise), np.trace(noise @ u @ x.T @ x @ u.T @ noise)
    assert (abs(left - right) < 1e-12) == unit


def test_invalid_covariances_raise_an_error() -> None:
    with pytest.raises(UserError, match="symmetric"):
        analysis.trace_bound([[1.0, 2.0], [0.0, 1.0]], 0.0)
    with pytest.raises(UserError, match="positive eigenvalues"):
        analysis.trace_bound(np.diag([1.0, 0.0]), 0.0)
    with pytest.raises(UserError, match="not all be zero"):
        best_scale([0.0, 0.0])


@pytest.mark.parametrize(("d", "recorded"), [(2, 0.585), (4, 1.300), (5, 1.608), (6, 1.903)])
def test_distance_of_random_axes(d: int, recorded: float) -> None:
    """The recorded values are means of about 100 draws; they must agree within 2.5 standard errors."""
    found = random_distance(d, draws=4000)
    spread = found.error * math.sqrt(4000)
    assert abs(found.mean - recorded) < 2.5 * spread / math.sqrt(100)
    if d == 2:
        assert abs(found.mean - 16 * math.sqrt(2) / math.pi * (1 - math.cos(math.pi / 8))) < 4 * found.error


def test_distance_of_a_known_rotation() -> None:
    """For a rotation by t up to 45 degrees: 2 sqrt(2) sin(t / 2). Order and signs of columns do not matter."""
    u = rotation(6)[:, :2]
    for degrees, nearest in ((0, 0), (10, 10), (40, 40), (50, 40), (90, 0), (-20, 20)):
        j = u @ np.diag([3.0, 1.0]) @ turn(math.radians(degrees)).T
        expected = 2 * math.sqrt(2) * math.sin(math.radians(nearest) / 2)
        np.testing.assert_allclose(distance_to_orthogonality([j, -j[:, ::-1]]), expected, atol=1e-7)
    with pytest.raises(UserError, match=r"\(n, pixels, d\)"):
        distance_to_orthogonality(u)


def test_polarised_regime_of_a_known_case() -> None:
    """Two active latents with variance e^-6 and one inactive latent: the approximation omits e^-6 per active latent."""
    mean = np.array([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0]])
    logvar = np.array([[-6.0, -6.0, 0.0]] * 2)
    found = polarised_regime(mean, logvar)
    assert found.active == [0, 1]
    assert found.kl == pytest.approx(6 + math.exp(-6))
    assert found.approximation == pytest.approx(6.0)
    assert found.delta == pytest.approx(math.exp(-6) / (6 + math.exp(-6)))
    half = polarised_regime(mean, np.array([[-6.0, math.log(0.5), math.log(0.5)]] * 2))
    assert half.delta > 0.03
    with pytest.raises(UserError, match="n at least 2"):
        polarised_regime(mean[:1], logvar[:1])


@pytest.fixture(scope="module")
def trained(toy: FactorData) -> Run:
    (run,) = ub.train(ub.methods.BetaVAE(beta=0.1), toy, steps=200, learning_rate=3e-3, latents=6, quiet=True)
    return run


def test_orthogonality_of_a_run(trained: Run, toy: FactorData) -> None:
    result = analysis.orthogonality(trained, toy, 100)
    assert 2 <= len(result["active"]) <= 6
    assert 0 < result["distance"] < result["random"] + 5 * result["error"]
    assert result["random"] == random_distance(len(result["active"])).mean
    assert result["kl"] > result["kl_approx"] > 0
    assert result["examples"] == 100
    assert result == analysis.orthogonality(trained, toy, 100)
    whole = analysis.orthogonality(trained, toy, len(toy))
    codes = trained.posterior(toy.batch(torch.arange(len(toy)))).mean
    j = decoder_jacobians(trained, codes, whole["active"])
    assert whole["distance"] == pytest.approx(distance_to_orthogonality(j.double().numpy()).mean(), rel=1e-4)


def test_jacobians_equal_reverse_differentiation(trained: Run, toy: FactorData, sprites: FactorData) -> None:
    (images,) = ub.train(ub.methods.BetaVAE(beta=1.0), sprites, steps=1, batch=4, precision="fp32", quiet=True)
    for run, data in ((trained, toy), (images, sprites)):
        z = run.posterior(data.batch(torch.arange(3))).mean
        found = decoder_jacobians(run, z)[:, :50]
        for row, code in zip(found, z, strict=True):
            back = torch.autograd.functional.jacobian(lambda a: run.net.decode(a[None])[0].flatten()[:50], code)  # noqa: B023
            torch.testing.assert_close(row, back, rtol=1e-4, atol=1e-6)


def test_distance_without_active_latents_is_nan(toy: FactorData) -> None:
    (run,) = ub.train(ub.methods.BetaVAE(beta=1.0), toy, steps=1, quiet=True)
    result = analysis.orthogonality(run, toy, 50)
    assert result["active"] == []
    assert math.isnan(result["distance"])
    (diffusion,) = ub.train(ub.methods.METHODS["diffusion_vae"](), toy, steps=1, quiet=True)
    with pytest.raises(UserError, match="normal posterior"):
        analysis.orthogonality(diffusion, toy)
    with pytest.raises(UserError, match="2 examples"):
        analysis.orthogonality(run, toy, 1)
