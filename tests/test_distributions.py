"""Distributions agree with closed forms and with those of PyTorch."""

from __future__ import annotations

import pytest
import torch

from unbraid.distributions import LIKELIHOODS, Gaussian


def test_kl_is_the_mean_log_ratio() -> None:
    """The closed form agrees with a Monte Carlo mean of log q - log p."""
    q = Gaussian(torch.tensor([[0.7, -1.2]]), torch.tensor([[-0.5, 0.3]]))
    z = q.mean + (0.5 * q.logvar).exp() * torch.randn(400_000, 2)
    prior = Gaussian(torch.zeros(1, 2), torch.zeros(1, 2))
    assert (q.log_prob(z) - prior.log_prob(z)).mean(0).tolist() == pytest.approx(q.kl()[0].tolist(), abs=1e-2)


def test_log_prob_equals_torch() -> None:
    q = Gaussian(torch.randn(5, 3), torch.randn(5, 3))
    z = torch.randn(5, 3)
    expected = torch.distributions.Normal(q.mean, (0.5 * q.logvar).exp()).log_prob(z)
    torch.testing.assert_close(q.log_prob(z), expected)


def test_bernoulli_nll_is_summed_cross_entropy() -> None:
    x, logits = torch.rand(3, 1, 4, 4), torch.randn(3, 1, 4, 4)
    p = torch.sigmoid(logits)
    by_hand = -(x * p.log() + (1 - x) * (1 - p).log()).sum((1, 2, 3))
    torch.testing.assert_close(LIKELIHOODS["bernoulli"].nll(x, logits), by_hand)
    torch.testing.assert_close(LIKELIHOODS["bernoulli"].mean(logits), p)


def test_gaussian_nll_is_a_unit_normal_up_to_its_constant() -> None:
    x, mean = torch.randn(3, 5), torch.randn(3, 5)
    exact = -torch.distributions.Normal(mean, 1.0).log_prob(x).sum(1)
    constant = 5 * 0.5 * torch.log(torch.tensor(2 * torch.pi))
    torch.testing.assert_close(LIKELIHOODS["gaussian"].nll(x, mean) + constant, exact)
