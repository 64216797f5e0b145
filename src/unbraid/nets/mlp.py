"""Fully connected networks: a pair for vectors (or flattened images) and FactorVAE's critic."""

from __future__ import annotations

import itertools
import math

from torch import nn

from unbraid.nets.conv import glorot


def mlp(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
    """Two hidden layers of 256 ReLU units each way; images are flattened."""
    size, width = math.prod(shape), 256
    encoder = [nn.Flatten(), nn.Linear(size, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    decoder = [nn.Linear(latents, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, size)]
    return (
        glorot(nn.Sequential(*encoder, nn.Linear(width, 2 * latents))),
        glorot(nn.Sequential(*decoder, nn.Unflatten(1, shape))),
    )


def critic(latents: int, width: int = 1000, depth: int = 6) -> nn.Module:
    """FactorVAE's discriminator: six layers of 1000 leaky ReLUs (slope 0.2), two logits (joint, product of marginals).

    Reference: Kim & Mnih (2018), arXiv:1802.05983, appendix A.
    """
    widths = [latents, *[width] * depth]
    hidden = [layer for a, b in itertools.pairwise(widths) for layer in (nn.Linear(a, b), nn.LeakyReLU(0.2))]
    return glorot(nn.Sequential(*hidden, nn.Linear(width, 2)))
