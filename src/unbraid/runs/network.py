"""Build the network of a run."""

from __future__ import annotations

import torch

from unbraid.accel.layers import Conv, ConvTranspose
from unbraid.nets.vae import PairBuilder, VAENet
from unbraid.runs.spec import RunSpec


def build_net(spec: RunSpec, shape: tuple[int, ...], builder: PairBuilder) -> VAENet:
    """Build the untrained network of a run for examples of shape `shape`.

    The random generator is seeded with the seed of the spec, so equal specs have equal initial weights.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec.seed)
        net = spec.method.build(builder, shape, spec.latents, spec.likelihood)
    exact = {
        layer for name, child in net.named_children() if name in spec.float32_networks for layer in child.modules()
    }
    for layer in net.modules():
        if isinstance(layer, Conv | ConvTranspose):
            layer.reduced = spec.precision == "bf16" and layer not in exact
    net.shape = tuple(shape)
    return net
