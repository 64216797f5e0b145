"""A run's network in plain operations, which any runtime has: what its exports are made of.

Copies with the same weights in which layers that take a faster way here take the plain one: no custom gradients, no
compiled loops, no bfloat16, nothing that depends on the number of examples.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.accel.layers import Conv, ConvTranspose
from unbraid.distributions import Gaussian
from unbraid.methods.diffusion_vae import DiffusionVAE
from unbraid.methods.method import Method
from unbraid.nets.pointnet import PointFeatures
from unbraid.nets.vae import VAENet
from unbraid.nets.vitae import Generation
from unbraid.noise import Noise
from unbraid.runs.run import Run
from unbraid.spaces.cpab import steps_of
from unbraid.spaces.cpab_steps import advance, flat
from unbraid.spaces.projective import Even
from unbraid.spaces.transformers import Cpab

MEANINGS = {
    "codes": "what metrics see by default, an example a row: codes of kind '{kind}'",
    "logvar": "log variances of the posterior q(z|x); its means are the codes",
    "latents": "what the decoder takes; the codes are not",
    "log_t": "log of the diffusion time of each example, how far its posterior spreads",
}


class PlainEven(nn.Module):
    """`Even` without cutting a batch in two."""

    def __init__(self, even: Even) -> None:
        super().__init__()
        self.inner = even.inner

    def forward(self, z: Tensor) -> Tensor:
        average: Tensor = 0.5 * (self.inner(z) + self.inner(-z))
        return average


class PlainFeatures(nn.Module):
    """`PointFeatures` without the shortcut that its gradient wants."""

    def __init__(self, features: PointFeatures) -> None:
        super().__init__()
        self.layers, self.last = features.layers, features.last

    def forward(self, points: Float[Tensor, "b v 3"]) -> Float[Tensor, "b c"]:
        largest: Tensor = self.last(self.layers(points)).amax(1)
        return largest


@dataclass(frozen=True)
class PlainCpab(Cpab):
    """`Cpab` in tensor operations: its compiled loops cannot be written down."""

    def points(self, gamma: Float[Tensor, "b dim"], grid: Float[Tensor, "n 2"]) -> Float[Tensor, "b n 2"]:
        if self.method != "steps":
            return super().points(gamma, grid)
        x, y = grid.expand(gamma.shape[0], -1, -1).unbind(-1)
        return torch.stack(advance(self.cells, flat(steps_of(self.cells, gamma, self.steps)), x, y, self.steps), -1)


def plain(layer: nn.Module) -> nn.Module:
    """The layer in plain operations, with the very same parameters; itself where it has no other way."""
    if isinstance(layer, Conv | ConvTranspose):
        kind = nn.Conv2d if isinstance(layer, Conv) else nn.ConvTranspose2d
        made = kind(layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding)  # type: ignore[arg-type]
        made.weight, made.bias = layer.weight, layer.bias
        return made
    if isinstance(layer, Even):
        return PlainEven(layer)
    return PlainFeatures(layer) if isinstance(layer, PointFeatures) else layer


def full_net(net: VAENet) -> VAENet:
    """A copy of a network on the CPU that multiplies in float32."""
    made = copy.deepcopy(net).cpu().eval()
    for layer in made.modules():
        if isinstance(layer, Conv | ConvTranspose):
            layer.reduced = False
    return made


def plain_net(net: VAENet) -> VAENet:
    """The same with every layer in plain operations."""
    made = full_net(net)
    for name, layer in list(made.named_modules()):
        if (other := plain(layer)) is not layer:
            parent, _, child = name.rpartition(".")
            setattr(made.get_submodule(parent), child, other)
    for layer in made.modules():
        if isinstance(layer, Generation) and isinstance(layer.transformer, Cpab):
            t = layer.transformer
            layer.transformer = PlainCpab(t.nx, t.ny, t.steps, t.method, t.resolution)
    return made


def outputs(method: Method, latents: int) -> dict[str, str]:
    """The names of what an exported encoder gives, and what they mean.

    Log variances are among them where the code is a Gaussian's mean, as the second kind of code, a sample, tells.
    """
    names = ["codes"]
    if method.code_kinds[:2] == ("mean", "sampled"):
        names.append("logvar")
    if isinstance(method, DiffusionVAE):
        decoded = method.manifold(latents).embed(torch.ones(1, latents)).shape[1] == latents
        names += ["log_t"] if decoded else ["latents", "log_t"]
    return {name: MEANINGS[name].format(kind=method.code_kinds[0]) for name in names}


class Encoder(nn.Module):
    """From examples to what `outputs` names."""

    def __init__(self, run: Run, net: VAENet) -> None:
        super().__init__()
        self.net, self.method = net, run.spec.method
        self.names = list(outputs(self.method, run.spec.latents))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        q = self.net.encode(x)
        return tuple(self.output(name, q) for name in self.names)

    def output(self, name: str, q: Gaussian) -> Tensor:
        """One of the outputs."""
        if name == "logvar":
            return q.logvar
        if isinstance(self.method, DiffusionVAE) and name == "log_t":
            return self.method.log_t(q)
        if isinstance(self.method, DiffusionVAE) and name == "latents":
            return self.method.manifold(q.mean.shape[1]).project(q.mean)
        zero = torch.zeros((), dtype=torch.int64)
        return self.method.code(self.net, q, self.method.code_kinds[0], Noise.of(zero, zero))


class Decoder(nn.Module):
    """From latents to the means of p(x|z)."""

    def __init__(self, net: VAENet) -> None:
        super().__init__()
        self.decoder, self.mean = net.decoder, net.likelihood.mean

    def forward(self, z: Tensor) -> Tensor:
        assert self.decoder is not None
        return self.mean(self.decoder(z))


@torch.no_grad()
def pruned(module: nn.Module, x: Tensor) -> nn.Module:
    """A copy without networks that x does not pass through, such as a critic; what is left gives the same.

    Of a module that was not called itself, children go in none of which anything was called. A method that reaches into
    such a child all the same keeps everything.
    """
    made = copy.deepcopy(module)
    called: set[nn.Module] = set()
    hooks = [part.register_forward_hook(lambda part, *_: called.add(part)) for part in made.modules()]
    made(x)
    for hook in hooks:
        hook.remove()
    for part in [part for part in made.modules() if part not in called]:
        for name, child in list(part.named_children()):
            if called.isdisjoint(child.modules()):
                part._modules[name] = None
    try:
        made(x)
    except (AttributeError, TypeError):
        return module
    return made
