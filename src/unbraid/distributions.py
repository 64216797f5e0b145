"""Diagonal Gaussians and the likelihoods of decoders.

The methods of `Gaussian` return one value per latent dimension, and the likelihoods return one value per example.
Samples are reparametrised, that is, they are differentiable functions of the parameters and of explicit noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from unbraid.noise import Noise

LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Gaussian:
    r"""A diagonal normal distribution :math:`N(\mu, \sigma^2)` for each row of a batch.

    Attributes:
        mean: The means :math:`\mu`.
        logvar: The logarithms of the variances, :math:`\log\sigma^2`.
    """

    mean: Float[Tensor, "b d"]
    logvar: Float[Tensor, "b d"]

    def sample(self, noise: Noise) -> Float[Tensor, "b d"]:
        r"""Draw a sample :math:`z = \mu + \sigma\epsilon`, where :math:`\epsilon` is standard normal noise.

        Reference: Kingma & Welling (2014), arXiv:1312.6114.
        """
        return self.mean + (0.5 * self.logvar).exp() * noise.normal(*self.mean.shape)

    def kl(self) -> Float[Tensor, "b d"]:
        r"""Return :math:`KL(q \| N(0, 1)) = (\mu^2 + \sigma^2 - \log\sigma^2 - 1) / 2` of each dimension, in nats."""
        return 0.5 * (self.mean**2 + self.logvar.exp() - self.logvar - 1)

    def log_prob(self, z: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        """Return the log density of each dimension. Additional leading axes of z broadcast against the batch."""
        return -0.5 * ((z - self.mean) ** 2 * (-self.logvar).exp() + self.logvar + LOG_2PI)

    def log_ratio(self, z: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        """Return log q(z) - log N(z; 0, 1) for each dimension. Its expectation under q is the KL divergence."""
        return self.log_prob(z) + 0.5 * (z**2 + LOG_2PI)


def bernoulli_nll(x: Tensor, logits: Tensor) -> Float[Tensor, " b"]:
    """Return the cross-entropy of pixels in [0, 1] under Bernoulli logits, summed over the pixels of each example."""
    return F.binary_cross_entropy_with_logits(logits, x, reduction="none").flatten(1).sum(1)


def gaussian_nll(x: Tensor, mean: Tensor) -> Float[Tensor, " b"]:
    r"""Return :math:`\|x - \mu\|^2 / 2` for each example.

    This is the negative log-likelihood under a normal with variance 1, without its constant term.
    """
    return 0.5 * (x - mean).square().flatten(1).sum(1)


def normal_nll(x: Tensor, mean: Tensor, variance: float = 0.1) -> Float[Tensor, " b"]:
    r"""Return the negative log-likelihood of each example under a normal of fixed variance.

    .. math:: \frac{\|x - \mu\|^2}{2 \sigma^2} + \frac D2 \log(2 \pi \sigma^2)

    :math:`\mu` is `mean`, :math:`\sigma^2` is `variance`, and D is the number of values of an example. The default
    variance is that of VITAE.
    """
    constant = 0.5 * x[0].numel() * (LOG_2PI + math.log(variance))
    return gaussian_nll(x, mean) / variance + constant


def clamped_logit(mean: Tensor) -> Tensor:
    """Return the logits of probabilities, after clamping them to [1e-5, 1 - 1e-5]."""
    p = mean.clamp(1e-5, 1 - 1e-5)
    return p.log() - (-p).log1p()


def identity(values: Tensor) -> Tensor:
    """Return the values unchanged."""
    return values


@dataclass(frozen=True)
class Likelihood:
    """The likelihood of examples given the output of a decoder.

    Attributes:
        nll: Function of examples and outputs that returns the negative log-likelihood of each example, summed over
            its values.
        mean: Function of outputs that returns the mean of the distribution, which is the decoded example.
        output: The inverse of `mean`: a function of examples that returns the outputs whose means are these examples.
    """

    nll: Callable[[Tensor, Tensor], Tensor]
    mean: Callable[[Tensor], Tensor]
    output: Callable[[Tensor], Tensor]


LIKELIHOODS: dict[str, Likelihood] = {
    "bernoulli": Likelihood(bernoulli_nll, torch.sigmoid, clamped_logit),
    "gaussian": Likelihood(gaussian_nll, identity, identity),
    "normal": Likelihood(normal_nll, identity, identity),
}
