"""Copies of a run's network that use only plain PyTorch operations, which can be exported.

The weights are the same. Layers with a custom fast implementation are replaced by plain layers, which have no custom
gradients, compiled loops or bfloat16 arithmetic, and do not depend on the number of examples.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.accel.layers import Conv, ConvTranspose
from unbraid.methods.method import Method
from unbraid.nets.pointnet import PointFeatures
from unbraid.nets.vae import VAENet
from unbraid.nets.vitae import VitaeDecoder
from unbraid.runs.run import Run, posterior_codes
from unbraid.spaces.cpab import step_table
from unbraid.spaces.cpab_steps import advance_points, flatten_table
from unbraid.spaces.projective import EvenDecoder
from unbraid.spaces.transformers import Cpab


class PlainEvenDecoder(nn.Module):
    """`EvenDecoder` with two calls of the inner decoder instead of one call with a batch of twice the size."""

    def __init__(self, even: EvenDecoder) -> None:
        super().__init__()
        self.inner = even.inner

    def forward(self, z: Tensor) -> Tensor:
        average: Tensor = 0.5 * (self.inner(z) + self.inner(-z))
        return average


class PlainPointFeatures(nn.Module):
    """`PointFeatures` without its custom gradient."""

    def __init__(self, features: PointFeatures) -> None:
        super().__init__()
        self.layers, self.last = features.layers, features.last

    def forward(self, points: Float[Tensor, "b v 3"]) -> Float[Tensor, "b c"]:
        largest: Tensor = self.last(self.layers(points)).amax(1)
        return largest


@dataclass(frozen=True)
class PlainCpab(Cpab):
    """`Cpab` in tensor operations, because its compiled loops cannot be exported."""

    def points(self, gamma: Float[Tensor, "b dim"], grid: Float[Tensor, "n 2"]) -> Float[Tensor, "b n 2"]:
        if self.method != "steps":
            return super().points(gamma, grid)
        x, y = grid.expand(gamma.shape[0], -1, -1).unbind(-1)
        return torch.stack(
            advance_points(self.cells, flatten_table(step_table(self.cells, gamma, self.steps)), x, y, self.steps), -1
        )


def plain_layer(layer: nn.Module) -> nn.Module:
    """Return a plain layer with the same parameter objects. If the layer is already plain, return it unchanged."""
    if isinstance(layer, Conv | ConvTranspose):
        kind = nn.Conv2d if isinstance(layer, Conv) else nn.ConvTranspose2d
        plain = kind(layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding)  # type: ignore[arg-type]
        plain.weight, plain.bias = layer.weight, layer.bias
        return plain
    if isinstance(layer, EvenDecoder):
        return PlainEvenDecoder(layer)
    return PlainPointFeatures(layer) if isinstance(layer, PointFeatures) else layer


def float32_copy(net: VAENet) -> VAENet:
    """Return a copy of a network on the CPU that computes in float32."""
    copied = copy.deepcopy(net).cpu().eval()
    for layer in copied.modules():
        if isinstance(layer, Conv | ConvTranspose):
            layer.reduced = False
    return copied


def plain_copy(net: VAENet) -> VAENet:
    """Return a copy of a network on the CPU with every layer in plain operations."""
    copied = float32_copy(net)
    for name, layer in list(copied.named_modules()):
        if (plain := plain_layer(layer)) is not layer:
            parent, _, child = name.rpartition(".")
            setattr(copied.get_submodule(parent), child, plain)
    for layer in copied.modules():
        if isinstance(layer, VitaeDecoder) and isinstance(layer.transformer, Cpab):
            t = layer.transformer
            layer.transformer = PlainCpab(t.nx, t.ny, t.steps, t.method, t.resolution)
    return copied


def output_meanings(method: Method, latents: int) -> dict[str, str]:
    """Return the meanings of the codes and of `Method.encoder_outputs`, by name."""
    codes = f"codes that metrics use by default, one row per example, of the kind '{method.code_kinds[0]}'"
    return {"codes": codes, **{name: output.meaning for name, output in method.encoder_outputs(latents).items()}}


class Encoder(nn.Module):
    """A module that maps examples to the outputs listed in `output_meanings`."""

    def __init__(self, run: Run, net: VAENet) -> None:
        super().__init__()
        self.net, self.method = net, run.spec.method
        self.extra_outputs = self.method.encoder_outputs(run.spec.latents)
        self.names = ["codes", *self.extra_outputs]

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        q = self.net.encode(x)
        extra = (output.compute(q) for output in self.extra_outputs.values())
        return posterior_codes(self.method, self.net, q), *extra


class Decoder(nn.Module):
    """A module that maps latents to the means of p(x|z)."""

    def __init__(self, net: VAENet) -> None:
        super().__init__()
        self.decoder, self.mean = net.decoder, net.likelihood.mean

    def forward(self, z: Tensor) -> Tensor:
        assert self.decoder is not None
        return self.mean(self.decoder(z))


@torch.no_grad()
def remove_unused_layers(module: nn.Module, x: Tensor) -> nn.Module:
    """Return a copy without layers that are not called for an input x, such as a critic. The outputs are the same.

    A child is removed if neither its parent nor any module inside the child was called. If the module needs such a
    child without calling it, the original module is returned unchanged.
    """
    copied = copy.deepcopy(module)
    called: set[nn.Module] = set()
    hooks = [part.register_forward_hook(lambda part, *_: called.add(part)) for part in copied.modules()]
    copied(x)
    for hook in hooks:
        hook.remove()
    for part in [part for part in copied.modules() if part not in called]:
        for name, child in list(part.named_children()):
            if called.isdisjoint(child.modules()):
                part._modules[name] = None
    try:
        copied(x)
    except (AttributeError, TypeError):
        return module
    return copied
