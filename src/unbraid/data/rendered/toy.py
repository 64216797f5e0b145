"""Planted codes behind a known nonlinear mixing, for tests and tutorials."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unbraid.data.dataset import FactorData, Progress, Rows
from unbraid.noise import Noise

NAMES = ("a", "b", "c", "d")
SIZES = (8, 6, 5, 4)
WIDTH = 16
KEY = 2024


class Toy(FactorData):
    """Vectors mixed from codes that are known."""

    def codes(self, index: Rows) -> Float[Tensor, "n k"]:
        """The planted codes: each factor shifted and scaled to mean 0 and variance 1 over the grid."""
        return _standardised(self.factors(index)).float()

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b d"]:
        """The vectors at `index`."""
        return self.table[index]

    def _examples(self, index: Tensor) -> Tensor:
        return self.table[index]


def toy(device: str | torch.device = "cpu", progress: Progress | None = None) -> Toy:
    """Planted codes: 960 vectors in 16 dimensions, a smooth injective mixing of four known factors.

    Each vector has mean 0 and, averaged over dimensions, variance 1 over the grid.
    """
    x = mixing(_standardised(torch.cartesian_prod(*map(torch.arange, SIZES))))
    x = x - x.mean(0)
    table = (x / x.square().mean().sqrt()).float().to(device)
    if progress:
        progress(1.0)
    return Toy("toy", NAMES, SIZES, (WIDTH,), table)


def _standardised(factors: Tensor) -> Tensor:
    """Float64 (n, k) of mean 0 and variance 1: the values 0..s-1 have mean (s - 1) / 2 and variance (s^2 - 1) / 12."""
    columns = zip(factors.double().unbind(-1), SIZES, strict=True)
    return torch.stack([(v - (s - 1) / 2) / math.sqrt((s * s - 1) / 12) for v, s in columns], -1)


def mixing(codes: Float[Tensor, "n k"]) -> Float[Tensor, "n d"]:
    r""":math:`x = R\,g(Q\,g(P c))` with orthonormal P (16 x 4), Q and R (16 x 16), g elementwise.

    Each part is injective, hence the whole: orthonormal columns are independent, and g is strictly increasing.
    """
    noise = Noise(torch.tensor(KEY))
    p, q, r = (_orthonormal(noise, width) for width in (codes.shape[1], WIDTH, WIDTH))
    return bend(bend(2 * codes @ p.T) @ q.T) @ r.T


def bend(u: Tensor) -> Tensor:
    """g(u) = u + 0.45 sin(2u), whose slope 1 + 0.9 cos(2u) is never below 0.1."""
    return u + 0.45 * (2 * u).sin()


def _orthonormal(noise: Noise, width: int) -> Tensor:
    """A random (16, width) matrix with orthonormal columns; the signs are fixed, for QR leaves them open."""
    q, r = torch.linalg.qr(noise.normal(WIDTH, width).double())
    basis: Tensor = q * r.diagonal().sign()
    return basis
