"""S-VAE: the KL against integrals and Bessel functions, and samples against the density."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods import SVAE
from unbraid.nets.mlp import mlp
from unbraid.noise import Noise
from unbraid.spaces import von_mises_fisher as vmf

KAPPAS = [0.01, 0.5, 3.0, 30.0, 300.0, 10_000.0]
AMBIENT = [2, 3, 4, 10, 21]


def kl_by_integration(kappa: float, n: int) -> float:
    """The integral of p log(p / u) over the angle to the mean, by adaptive quadrature."""

    def exponent(theta: float) -> float:
        return (n - 2) * math.log(max(math.sin(theta), 1e-300)) + kappa * (math.cos(theta) - 1)

    end = min(math.pi, 15 / math.sqrt(kappa))
    largest = max(exponent(end * i / 1000) for i in range(1, 1000))
    total = integrate.quad(lambda t: math.exp(exponent(t) - largest), 0, end, limit=200)[0]
    mean = integrate.quad(lambda t: math.exp(exponent(t) - largest) * (math.cos(t) - 1), 0, end, limit=200)[0] / total
    uniform = integrate.quad(lambda t: math.sin(t) ** (n - 2), 0, math.pi)[0]
    return kappa * mean - math.log(total / uniform) - largest


@pytest.mark.parametrize("n", AMBIENT)
@pytest.mark.parametrize("kappa", KAPPAS)
def test_kl_equals_numerical_integration(kappa: float, n: int) -> None:
    found = float(vmf.kl_from_uniform(torch.tensor([kappa]), n))
    assert found == pytest.approx(kl_by_integration(kappa, n), abs=1e-4)


@pytest.mark.parametrize("n", AMBIENT)
def test_kl_equals_its_formula_with_bessel_functions(n: int) -> None:
    """In float64, the sums agree with the formula of the docstring to 1e-5 nats."""
    kappa = np.array([0.5, 3.0, 30.0, 300.0])
    lower, upper = special.ive(n / 2 - 1, kappa), special.ive(n / 2, kappa)
    constant = (n / 2 - 1) * np.log(kappa / 2) - special.gammaln(n / 2) - np.log(lower) - kappa
    found = vmf.kl_from_uniform(torch.tensor(kappa), n).numpy()
    np.testing.assert_allclose(found, kappa * upper / lower + constant, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("kappa", "n"), [(0.3, 3), (5.0, 2), (5.0, 4), (40.0, 10), (3000.0, 10)])
def test_samples_follow_the_density(kappa: float, n: int) -> None:
    """The cosines follow the distribution of scipy, samples are unit vectors, and their mean has the known length."""
    mean = torch.nn.functional.normalize(torch.ones(1, n), dim=1).expand(20_000, n)
    z = vmf.sample(mean, torch.full((20_000,), kappa), Noise(torch.tensor(3)))
    torch.testing.assert_close(z.norm(dim=1), torch.ones(20_000))
    cosine = (z * mean).sum(1).double().numpy()
    reference = stats.vonmises_fisher(mean[0].double().numpy() / float(mean[0].double().norm()), kappa)
    other = reference.rvs(20_000, random_state=0) @ mean[0].double().numpy()
    assert stats.ks_2samp(cosine, other).pvalue > 1e-3
    exact = special.ive(n / 2, kappa) / special.ive(n / 2 - 1, kappa)
    assert cosine.mean() == pytest.approx(exact, abs=4 * cosine.std() / math.sqrt(20_000) + 1e-4)


@pytest.mark.parametrize("n", [3, 10])
def test_gradient_of_samples_is_that_of_their_mean(n: int) -> None:
    """The mean over samples of d cos / d kappa is the derivative of the mean cosine."""
    kappa = torch.full((40_000,), 8.0, dtype=torch.float64, requires_grad=True)
    uniform = (torch.arange(40_000, dtype=torch.float64) + 0.5) / 40_000
    vmf.sample_angles(kappa, n, uniform).cos().sum().backward()
    ratio = special.ive(n / 2, 8.0) / special.ive(n / 2 - 1, 8.0)
    assert kappa.grad is not None
    assert float(kappa.grad.mean()) == pytest.approx(1 - ratio**2 - (n - 1) / 8.0 * ratio, rel=1e-3)


def test_mean_log_ratio_of_samples_is_the_kl() -> None:
    method, x = SVAE(), torch.randn(1, 6)
    net = method.build(mlp, (6,), 5, "gaussian").requires_grad_(False)
    _, ratio = method.posterior_sample(net, x.expand(20_000, 6), Noise(torch.tensor(0)))
    q = net.encode(x)
    kl = vmf.kl_from_uniform((-q.logvar.mean(1)).exp(), 5)
    assert float(ratio.mean()) == pytest.approx(float(kl), abs=4 * float(ratio.std()) / math.sqrt(20_000))


def test_codes_lie_on_the_sphere_and_one_latent_is_rejected() -> None:
    method, q = SVAE(), Gaussian(torch.randn(7, 4), torch.zeros(7, 4))
    net = method.build(mlp, (6,), 4, "gaussian")
    for kind in ("ambient", "sampled"):
        torch.testing.assert_close(method.code(net, q, kind, Noise(torch.tensor(0))).norm(dim=1), torch.ones(7))
    assert method.code(net, q, "angles", Noise(torch.tensor(0))).shape == (7, 3)
    with pytest.raises(UserError, match="at least 2 latents"):
        method.manifold(1)


def test_gradients_are_finite_if_the_uniform_number_exceeds_the_sum_of_the_masses() -> None:
    """Noise can return 1, and rounding gives some densities a total mass below 1."""
    kappa = torch.linspace(20, 80, 400, requires_grad=True)
    theta = vmf.angle_nodes(kappa, 10)
    total = vmf.log_weights(theta, kappa, 10).softmax(1).cumsum(1)[:, -1]
    assert (total < 1).any()
    angles = vmf.sample_angles(kappa, 10, torch.ones(400))
    angles.sum().backward()
    assert kappa.grad is not None
    assert kappa.grad.isfinite().all()
    assert (angles < 0.9 * theta[:, -1]).all()
