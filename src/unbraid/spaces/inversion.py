"""Sampling of a number by inverting its distribution function on a grid of equal intervals."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def invert_distribution(
    nodes: Float[Tensor, "b m"], log_weights: Float[Tensor, "b m"], uniform: Float[Tensor, " b"]
) -> Float[Tensor, " b"]:
    """Return one sample per density, as a differentiable function of the log densities and of uniform numbers.

    The density is approximated by a constant in each interval, so the distribution function is linear within an
    interval. The sampling needs no rejection, so it works under ``vmap``.

    Args:
        nodes: The midpoints of m intervals of equal width, in increasing order.
        log_weights: The logarithm of the density at the nodes, up to a constant per row.
        uniform: Numbers in (0, 1), at which the inverse of the distribution function is evaluated.

    >>> nodes = torch.tensor([[0.5, 1.5]])
    >>> invert_distribution(nodes, torch.tensor([[1.0, 3.0]]).log(), torch.tensor([0.625])).item()
    1.5
    """
    width = (nodes[:, 1] - nodes[:, 0])[:, None]
    mass = log_weights.softmax(1)
    total = mass.cumsum(1)
    # Rounding can make the sum of all masses smaller than the number. The last interval, whose mass is almost 0, would
    # then be chosen, and the gradient would be NaN.
    u = torch.minimum(uniform[:, None], total[:, -1:].detach())
    interval = (total.detach() < u).sum(1, keepdim=True)
    left, inside, start = (x.gather(1, interval) for x in (total - mass, mass, nodes - 0.5 * width))
    share = ((u - left) / inside).clamp(0, 1)
    return (start + share * width)[:, 0]
