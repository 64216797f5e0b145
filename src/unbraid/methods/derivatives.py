"""Derivatives of a decoder with respect to its latents, and penalties on them.

Derivatives are central differences. They need only calls of the decoder, so they work with every decoder, under `vmap`
and under `functional_call`, and they are differentiable with respect to the weights. A decoder with ReLU units is
piecewise linear, so its exact second derivatives are zero wherever they are defined. A central difference of finite
size also measures changes of the slope between its points.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.noise import Noise

Decode = Callable[[Tensor], Tensor]
"""A function from latents (n, d) to examples (n, ...), applied to each row."""

FIRST_SIZE = 0.01  # size of the differences for first derivatives, in the units of the latents
SECOND_SIZE = 0.1  # size of the differences for second derivatives, the value of Peebles et al. (2020)


class Around(NamedTuple):
    """The decoded examples at latents z + h (`ahead`) and z - h (`behind`) for k offsets h, of shape (k, b, ...)."""

    ahead: Tensor
    behind: Tensor


def decode_around(decode: Decode, z: Float[Tensor, "b d"], offsets: Float[Tensor, "k b d"]) -> Around:
    """Decode the latents z + h and z - h for each offset h, in one call of the decoder."""
    k, b = offsets.shape[:2]
    points = torch.stack([z + offsets, z - offsets]).flatten(0, 2)
    ahead, behind = decode(points).unflatten(0, (2, k, b)).unbind(0)
    return Around(ahead, behind)


def jacobian_products(
    decode: Decode, z: Float[Tensor, "b d"], directions: Float[Tensor, "k b d"], size: float = FIRST_SIZE
) -> Tensor:
    r"""Return the products J v of the Jacobian at each z with k directions v, of shape (k, b, ...).

    .. math:: J v \approx \frac{g(z + h v) - g(z - h v)}{2 h}

    Args:
        decode: The function g.
        z: Latents of b examples.
        directions: The k directions v for each example.
        size: The size h. The error is of order :math:`h^2`.
    """
    around = decode_around(decode, z, size * directions)
    return (around.ahead - around.behind) / (2 * size)


def hessian_forms(
    decode: Decode, z: Float[Tensor, "b d"], directions: Float[Tensor, "k b d"], size: float = SECOND_SIZE
) -> Tensor:
    r"""Return the quadratic forms :math:`v^T H v` of the Hessian of each output at each z, of shape (k, b, ...).

    .. math:: v^T H v \approx \frac{g(z + h v) - 2 g(z) + g(z - h v)}{h^2}

    Args:
        decode: The function g.
        z: Latents of b examples.
        directions: The k directions v for each example.
        size: The size h. The error is of order :math:`h^2`.
    """
    around = decode_around(decode, z, size * directions)
    return (around.ahead - 2 * decode(z) + around.behind) / size**2


def random_signs(noise: Noise, *shape: int) -> Tensor:
    """Draw numbers that are -1 or 1 with equal probability."""
    return 2.0 * (noise.uniform(*shape) > 0.5).float() - 1.0


def random_axes(noise: Noise, count: int, b: int, d: int) -> Float[Tensor, "count b d"]:
    """Draw `count` different axes of the latent space for each of b examples, as unit vectors."""
    chosen = noise.uniform(b, d).argsort(1)[:, :count].T
    return torch.eye(d, device=chosen.device)[chosen]


def column_products(columns: Float[Tensor, "k b *x"], d: int) -> Float[Tensor, " b"]:
    r"""Estimate :math:`\sum_{i \ne j} (J_i \cdot J_j)^2` over all d columns of a Jacobian from k of them.

    The estimate is unbiased if the k columns are different and all sets of k columns are equally likely. It is exact if
    k = d. It needs at least two columns: for k = 1 the result is 0.
    """
    k = len(columns)
    flat = columns.flatten(2).movedim(0, 1)
    squares = (flat @ flat.mT).square()
    different = squares.sum((1, 2)) - squares.diagonal(dim1=1, dim2=2).sum(1)
    return different * (d * (d - 1)) / max(k * (k - 1), 1)


def column_sizes(columns: Float[Tensor, "k b *x"], d: int) -> Float[Tensor, " b"]:
    r"""Estimate :math:`\sum_{x, j} |J_{xj}|` over all d columns of a Jacobian from k of them, without bias."""
    return columns.abs().flatten(2).sum((0, 2)) * d / len(columns)


def interactions(forms: Float[Tensor, "k b *x"]) -> Float[Tensor, " b"]:
    r"""Estimate a sum of squared entries of Hessians from their quadratic forms in k >= 2 random directions.

    The variance of :math:`v^T H v` is :math:`2 \sum_{i \ne j} H_{ij}^2` if the entries of v are random signs, and
    :math:`2 \sum_{i, j} H_{ij}^2` if they are standard normal. The estimate is the unbiased variance over k
    directions, summed over outputs.
    """
    return forms.var(0).flatten(1).sum(1)
