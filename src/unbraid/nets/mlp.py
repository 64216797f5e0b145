"""Fully connected networks: an encoder and a decoder for examples of any shape, and the critic of FactorVAE."""

from __future__ import annotations

import itertools
import math

from torch import nn

from unbraid.nets.conv import init_glorot


def mlp(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
    """Build fully connected networks with two hidden layers of 256 ReLU units each. Examples are flattened.

    Args:
        shape: Shape of one example. Any shape is accepted.
        latents: Number of latents.

    Returns:
        The encoder, which maps (b, ...) to (b, 2 * latents), and the decoder, which maps (b, latents) to (b, ...).
    """
    size, width = math.prod(shape), 256
    encoder = [nn.Flatten(), nn.Linear(size, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    decoder = [nn.Linear(latents, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, size)]
    return (
        init_glorot(nn.Sequential(*encoder, nn.Linear(width, 2 * latents))),
        init_glorot(nn.Sequential(*decoder, nn.Unflatten(1, shape))),
    )


def critic(latents: int, width: int = 1000, depth: int = 6) -> nn.Module:
    """Build the critic of FactorVAE, which the paper calls the discriminator.

    By default, it has six hidden layers of 1000 leaky ReLU units with slope 0.2. It maps codes (b, latents) to two
    logits (b, 2), one for the joint distribution of the latents and one for the product of their marginals.
    Reference: Kim & Mnih (2018), arXiv:1802.05983, appendix A.
    """
    widths = [latents, *[width] * depth]
    hidden = [layer for a, b in itertools.pairwise(widths) for layer in (nn.Linear(a, b), nn.LeakyReLU(0.2))]
    return init_glorot(nn.Sequential(*hidden, nn.Linear(width, 2)))
