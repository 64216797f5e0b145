"""Derivatives of a decoder by its latents, and penalties on them.

Derivatives are central differences. They need only calls of the decoder, so they work with every decoder, under `vmap`
and under `functional_call`, and are differentiable by the weights. An exact second derivative would not suit most
decoders, because that of a network with ReLU units is zero wherever it is defined. A central difference of a finite
size also registers the kinks between two points.
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
SECOND_SIZE = 0.1  # for second derivatives, the value of Peebles et al. (2020)


class Around(NamedTuple):
    """The examples at latents z + h and z - h for k offsets h, each of shape (k, b, ...)."""

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
        directions: The directions v.
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
        directions: The k directions v.
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

    The estimate is unbiased if the k columns are drawn with equal probabilities, and exact if k = d.
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
    r"""Estimate a sum of squared entries of Hessians from quadratic forms for at least two random directions.

    The variance of :math:`v^T H v` is :math:`2 \sum_{i \ne j} H_{ij}^2` if the entries of v are random signs, and
    :math:`2 \sum_{i, j} H_{ij}^2` if they are standard normal. The estimate is the unbiased variance over k
    directions, summed over outputs.
    """
    return forms.var(0).flatten(1).sum(1)
