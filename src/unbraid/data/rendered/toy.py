"""A small synthetic dataset of vectors that are a fixed nonlinear function of four factors."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unbraid.data.dataset import FactorData, IndexLike, Progress
from unbraid.noise import Noise

NAMES = ("a", "b", "c", "d")
SIZES = (8, 6, 5, 4)
WIDTH = 16
SEED = 2024  # random seed for the mixing matrices


class Toy(FactorData):
    """Vectors that are a fixed nonlinear function of four factors."""

    def codes(self, index: IndexLike) -> Float[Tensor, "n k"]:
        """Return the standardised factors of examples. They are ideal codes of the vectors.

        Each factor has mean 0 and variance 1 over the dataset.

        Args:
            index: Integers in 0 .. len(data) - 1 as a tensor, array or list of shape (n,), or a slice.

        Returns:
            Standardised factors, float32 of shape (n, 4).
        """
        return _standardise(self.factors(index)).float()

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b d"]:
        """Return the vectors at `index`, float32 of shape (b, 16)."""
        return self.table[index]

    def _examples(self, index: Tensor) -> Tensor:
        return self.table[index]


def toy(device: str | torch.device = "cpu", progress: Progress | None = None) -> Toy:
    """Generate a synthetic dataset of 960 vectors in 16 dimensions, with four factors.

    The vectors are a smooth injective function of the factors (see `mix_factors`). Each dimension has mean 0 over the
    dataset, and the mean variance of the dimensions is 1.

    Args:
        device: Device on which to store the vectors.
        progress: Called with the finished fraction, from 0 to 1.

    Returns:
        960 examples of shape (16,), with the factors a, b, c and d.
    """
    x = mix_factors(_standardise(torch.cartesian_prod(*map(torch.arange, SIZES))))
    x = x - x.mean(0)
    table = (x / x.square().mean().sqrt()).float().to(device)
    if progress:
        progress(1.0)
    return Toy("toy", NAMES, SIZES, (WIDTH,), table)


def _standardise(factors: Tensor) -> Tensor:
    """Scale factors to mean 0 and variance 1, in float64.

    A factor with values 0 to s - 1 has mean (s - 1) / 2 and variance (s^2 - 1) / 12.
    """
    columns = zip(factors.double().unbind(-1), SIZES, strict=True)
    return torch.stack([(v - (s - 1) / 2) / math.sqrt((s * s - 1) / 12) for v, s in columns], -1)


def mix_factors(factors: Float[Tensor, "n k"]) -> Float[Tensor, "n d"]:
    r"""Compute vectors (n, 16) from standardised factors (n, 4).

    .. math:: x = R\,g(Q\,g(2 P c))

    Here c is the vector of the factors of one example. P (16 x 4), Q (16 x 16) and R (16 x 16) are fixed random
    matrices with orthonormal columns, and g is the elementwise function `nonlinearity`. The function is injective
    because each of its steps is injective: matrices with orthonormal columns are injective, and g is strictly
    increasing.
    """
    noise = Noise(torch.tensor(SEED))
    p, q, r = (_random_orthonormal(noise, width) for width in (factors.shape[1], WIDTH, WIDTH))
    return nonlinearity(nonlinearity(2 * factors @ p.T) @ q.T) @ r.T


def nonlinearity(u: Tensor) -> Tensor:
    """Return g(u) = u + 0.45 sin(2u). Its derivative 1 + 0.9 cos(2u) is at least 0.1."""
    return u + 0.45 * (2 * u).sin()


def _random_orthonormal(noise: Noise, width: int) -> Tensor:
    """Return a random (16, width) matrix with orthonormal columns.

    A QR decomposition determines the columns only up to their signs. The signs are chosen so that the diagonal of R is
    positive.
    """
    q, r = torch.linalg.qr(noise.normal(WIDTH, width).double())
    basis: Tensor = q * r.diagonal().sign()
    return basis
