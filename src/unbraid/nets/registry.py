"""From a name, a function or a pair of modules to the network of one run."""

from __future__ import annotations

import copy
import hashlib

import torch
from torch import nn

from unbraid.errors import UserError, unknown
from unbraid.nets import vitae
from unbraid.nets.conv import burgess, locatello
from unbraid.nets.mlp import mlp
from unbraid.nets.vae import Pair, PairBuilder, VAENet
from unbraid.runtime.importing import import_name

NETS: dict[str, PairBuilder] = {
    "locatello": locatello,
    "burgess": burgess,
    "mlp": mlp,
    "vitae_mlp": vitae.vitae_mlp,
    "vitae_mlp_half": vitae.vitae_mlp_half,
    "vitae_bodies": vitae.vitae_bodies,
    "vitae_bodies_half": vitae.vitae_bodies_half,
    "vitae_conv": vitae.vitae_conv,
    "vitae_conv_half": vitae.vitae_conv_half,
}


def _digest(pair: Pair) -> str:
    """A name for a pair of modules: their structure and weights."""
    digest = hashlib.sha256(str(pair).encode())
    for module in pair:
        for tensor in module.state_dict().values():
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:12]


def name_net(net: str | PairBuilder | Pair) -> tuple[str, PairBuilder]:
    """The name a spec records for a network, and the function that builds it.

    A string is a preset or `module:function`; a function `(shape, latents) -> (encoder, decoder)` initialises a pair
    for every seed; a pair of modules is copied as it is, so every run starts from its weights.
    """
    if isinstance(net, tuple):
        pair = net
        return f"modules:{_digest(pair)}", lambda shape, latents: (copy.deepcopy(pair[0]), copy.deepcopy(pair[1]))
    if callable(net):
        known = {builder: name for name, builder in NETS.items()}
        return known.get(net, f"{net.__module__}:{getattr(net, '__qualname__', type(net).__qualname__)}"), net
    if net in NETS:
        return net, NETS[net]
    if net.startswith("modules:"):
        raise UserError(
            f"The network {net} was given as a pair of modules. Pass the pair again, as net=(encoder, decoder)."
        )
    if ":" not in net:
        raise UserError(unknown("net", net, NETS))
    builder: PairBuilder = import_name("net", net)
    return net, builder


def check_net(net: VAENet, shape: tuple[int, ...], latents: int) -> None:
    """Refuse a pair whose shapes do not fit, or that draws random numbers the run's seed does not decide."""
    for module in net.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            raise UserError(f"A network must not draw random numbers of its own. Got {module}. Leave dropout out.")
    probe = copy.deepcopy(net).eval()
    with torch.no_grad():
        code = probe.encoder(torch.zeros(2, *shape))
        if code.shape != (2, 2 * latents):
            raise UserError(
                f"The encoder must give 2 x {latents} numbers an example (means, then log variances). "
                f"Got shape {tuple(code.shape)} for a batch of 2 instead."
            )
        if probe.decoder is None:
            return
        output = probe.decoder(code[:, :latents])
    if output.shape != (2, *shape):
        raise UserError(
            f"The decoder must give the shape of an example, {shape}. Got {tuple(output.shape[1:])} instead."
        )
