"""Networks whose latents are coordinates of a learned Lie algebra, and penalties on its generators."""

from __future__ import annotations

from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.accel.wrapper import NetworkWrapper
from unbraid.nets.conv import init_glorot
from unbraid.spaces.matrix_exponential import matrix_exponential

HIDDEN = 4  # hidden units of the maps from matrices to coordinates, per entry of a matrix


class GroupEncoder(NetworkWrapper):
    """An encoder that maps examples to matrices, and these matrices to means and log variances of coordinates.

    The two maps from the m x m entries of a matrix to coordinates have one hidden layer of 4 m x m ReLU units each.

    Args:
        inner: A module that maps examples (b, ...) to the entries of matrices, (b, m * m). If it has more outputs, the
            others are ignored.
        size: The number m of rows of a matrix.
        latents: The number of coordinates.
    """

    def __init__(self, inner: nn.Module, size: int, latents: int) -> None:
        super().__init__()
        self.inner, self.entries = inner, size**2
        self.mean, self.logvar = (self._coordinates(latents) for _ in range(2))

    def _coordinates(self, latents: int) -> nn.Module:
        hidden = HIDDEN * self.entries
        return init_glorot(nn.Sequential(nn.Linear(self.entries, hidden), nn.ReLU(), nn.Linear(hidden, latents)))

    def matrices(self, x: Tensor) -> Float[Tensor, "b mm"]:
        """Return the matrices of examples, row by row."""
        return cast(Tensor, self.inner(x))[:, : self.entries]

    def coordinates(self, matrices: Float[Tensor, "b mm"]) -> Float[Tensor, "b dd"]:
        """Return the means of the coordinates, followed by their log variances."""
        return torch.cat([self.mean(matrices), self.logvar(matrices)], 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.coordinates(self.matrices(x))


class GroupDecoder(NetworkWrapper):
    r"""A decoder whose input are the coordinates t of the matrix :math:`\exp(\sum_i t_i A_i)`.

    Args:
        inner: A module that maps the entries of matrices, (b, m * m), to examples.
        size: The number m of rows of a matrix.
        latents: The number of coordinates and of generators.
        scale: The standard deviation of the initial entries of the generators.

    Attributes:
        generators: The generators :math:`A_i`, of shape (latents, m, m).
    """

    def __init__(self, inner: nn.Module, size: int, latents: int, scale: float) -> None:
        super().__init__()
        self.inner = inner
        self.generators = nn.Parameter(scale * torch.randn(latents, size, size))

    def matrices(self, t: Float[Tensor, "b d"]) -> Float[Tensor, "b mm"]:
        """Return the matrices of coordinates, row by row."""
        size = self.generators.shape[-1]
        return matrix_exponential((t @ self.generators.flatten(1)).unflatten(1, (size, size))).flatten(1)

    def forward(self, t: Tensor) -> Tensor:
        return cast(Tensor, self.inner(self.matrices(t)))


def products(generators: Float[Tensor, "d m m"]) -> Float[Tensor, "d d m m"]:
    """Return the products of all pairs of generators."""
    return generators[:, None] @ generators[None]


def mean_over_pairs(matrices: Float[Tensor, "d d m m"]) -> Float[Tensor, ""]:
    r"""Return :math:`\frac{1}{d^2} \sum_{i \ne j} \|M_{ij}\|^2` for one matrix per pair of generators."""
    squares = matrices.square().sum((2, 3))
    return (squares.sum() - squares.diagonal().sum()) / squares.numel()


def hessian_penalty(generators: Float[Tensor, "d m m"]) -> Float[Tensor, ""]:
    r"""Return :math:`\frac{1}{d^2} \sum_{i \ne j} \|A_i A_j\|_F^2` for d generators.

    If it is zero, the mixed second derivatives of :math:`\exp(\sum_i t_i A_i)` with respect to t are zero.

    >>> hessian_penalty(torch.tensor([[[0.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [2.0, 0.0]]]))
    tensor(2.)
    """
    return mean_over_pairs(products(generators))


def commutator_penalty(generators: Float[Tensor, "d m m"]) -> Float[Tensor, ""]:
    r"""Return :math:`\frac{1}{d^2} \sum_{i \ne j} \|A_i A_j - A_j A_i\|_F^2` for d generators.

    If it is zero, :math:`\exp(\sum_i t_i A_i)` is the product of the matrices :math:`\exp(t_i A_i)` in any order.

    >>> commutator_penalty(torch.tensor([[[0.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [2.0, 0.0]]]))
    tensor(4.)
    """
    pairs = products(generators)
    return mean_over_pairs(pairs - pairs.transpose(0, 1))
