"""Known codes, mixed by a known nonlinear function, for tests and tutorials."""

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
SEED = 2024


class Toy(FactorData):
    """Vectors that are mixed from known codes."""

    def codes(self, index: IndexLike) -> Float[Tensor, "n k"]:
        """Return the known codes (n, k): each factor, scaled to mean 0 and variance 1 over the grid."""
        return _standardise(self.factors(index)).float()

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b d"]:
        """Return the vectors (b, 16) at `index`."""
        return self.table[index]

    def _examples(self, index: Tensor) -> Tensor:
        return self.table[index]


def toy(device: str | torch.device = "cpu", progress: Progress | None = None) -> Toy:
    """Known codes: 960 vectors in 16 dimensions, a smooth injective mixing of four known factors.

    Over the grid, each dimension has mean 0, and the variance averaged over dimensions is 1.

    Args:
        device: Device of the data.
        progress: Called with the completed share, from 0 to 1.

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
    """Scale factors to mean 0 and variance 1, in float64: 0..s-1 has mean (s - 1) / 2 and variance (s^2 - 1) / 12."""
    columns = zip(factors.double().unbind(-1), SIZES, strict=True)
    return torch.stack([(v - (s - 1) / 2) / math.sqrt((s * s - 1) / 12) for v, s in columns], -1)


def mix_factors(codes: Float[Tensor, "n k"]) -> Float[Tensor, "n d"]:
    r"""Mix codes (n, 4) to vectors (n, 16).

    .. math:: x = R\,g(Q\,g(2 P c))

    with orthonormal columns in P (16 x 4), Q and R (16 x 16), and the elementwise function g = `nonlinearity`. Every
    part is injective, and therefore the whole: orthonormal columns are independent, and g is strictly increasing.
    """
    noise = Noise(torch.tensor(SEED))
    p, q, r = (_random_orthonormal(noise, width) for width in (codes.shape[1], WIDTH, WIDTH))
    return nonlinearity(nonlinearity(2 * codes @ p.T) @ q.T) @ r.T


def nonlinearity(u: Tensor) -> Tensor:
    """Return g(u) = u + 0.45 sin(2u), whose slope 1 + 0.9 cos(2u) is at least 0.1."""
    return u + 0.45 * (2 * u).sin()


def _random_orthonormal(noise: Noise, width: int) -> Tensor:
    """Return a random (16, width) matrix with orthonormal columns. Signs, which QR leaves open, are fixed."""
    q, r = torch.linalg.qr(noise.normal(WIDTH, width).double())
    basis: Tensor = q * r.diagonal().sign()
    return basis
