"""Encoder and decoder networks whose sizes follow from the shape of the data.

A network is a pair of ordinary PyTorch modules, an encoder and a decoder. A builder is a function that takes the shape
of one example and the number of latents, and returns ``(encoder, decoder)``. The encoder maps a batch of b
examples, of shape (b, ...), to a tensor of shape (b, 2 * latents). The means of the latents come first and their log
variances second. The decoder maps codes (b, latents) to outputs with the shape of the examples. Outputs have the form
that the likelihood expects, for example logits for a Bernoulli likelihood.

The argument `net` of `unbraid.train` is the name of a preset in `NETS`, a builder, the string ``"module:function"`` for
a builder that can be imported, or a pair of modules.

>>> import torch
>>> from unbraid import nets
>>> encoder, decoder = nets.locatello((1, 64, 64), latents=10)
>>> encoder(torch.zeros(2, 1, 64, 64)).shape, decoder(torch.zeros(2, 10)).shape
(torch.Size([2, 20]), torch.Size([2, 1, 64, 64]))

The following example defines a builder and checks its network before training:

>>> from torch import nn
>>> def linear(shape, latents):
...     return nn.Linear(shape[0], 2 * latents), nn.Linear(latents, shape[0])
>>> nets.check_net(nets.VAENet(*linear((16,), 3), likelihood="gaussian"), (16,), 3)
"""

from __future__ import annotations

from unbraid.nets.checking import check_net
from unbraid.nets.conv import burgess, dubois, fumero, kim, locatello
from unbraid.nets.mlp import mlp
from unbraid.nets.pointnet import pointnet
from unbraid.nets.registry import NETS, resolve_net
from unbraid.nets.vae import Pair, PairBuilder, VAENet
from unbraid.nets.vitae import (
    vitae_bodies,
    vitae_bodies_half,
    vitae_celeba,
    vitae_celeba_half,
    vitae_conv,
    vitae_conv_half,
    vitae_mlp,
    vitae_mlp_half,
)

__all__ = [
    "NETS", "Pair", "PairBuilder", "VAENet", "burgess", "check_net", "dubois", "fumero", "kim", "locatello", "mlp",
    "pointnet", "resolve_net", "vitae_bodies", "vitae_bodies_half", "vitae_celeba", "vitae_celeba_half", "vitae_conv",
    "vitae_conv_half", "vitae_mlp", "vitae_mlp_half",
]  # fmt: skip
