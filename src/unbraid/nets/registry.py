"""The registry of network presets, and functions that resolve networks given by the user."""

from __future__ import annotations

import copy
import hashlib

import torch

from unbraid.errors import UserError, unknown_name_message
from unbraid.nets import vitae
from unbraid.nets.checking import check_pair
from unbraid.nets.conv import burgess, dubois, fumero, kim, locatello
from unbraid.nets.mlp import mlp
from unbraid.nets.pointnet import pointnet
from unbraid.nets.vae import Pair, PairBuilder
from unbraid.runtime.importing import check_trust, import_name, trust_name
from unbraid.runtime.plugins import Registry

NETS: Registry[PairBuilder] = Registry("nets", {
    "locatello": locatello,
    "burgess": burgess,
    "dubois": dubois,
    "fumero": fumero,
    "kim": kim,
    "mlp": mlp,
    "pointnet": pointnet,
    "vitae_mlp": vitae.vitae_mlp,
    "vitae_mlp_half": vitae.vitae_mlp_half,
    "vitae_bodies": vitae.vitae_bodies,
    "vitae_bodies_half": vitae.vitae_bodies_half,
    "vitae_conv": vitae.vitae_conv,
    "vitae_conv_half": vitae.vitae_conv_half,
    "vitae_celeba": vitae.vitae_celeba,
    "vitae_celeba_half": vitae.vitae_celeba_half,
})  # fmt: skip
"""The builders of all presets by name. Each maps the shape of one example and the number of latents to a `Pair`.

Other packages add networks by entry points in the group `unbraid.nets`.
"""

RECORDED_NAMES = {"pointnet": "unbraid.nets.pointnet:pointnet"}
"""Presets that specs record as `module:function`, as earlier releases did, so that the ids of runs do not change."""

QUALIFIED: dict[str, PairBuilder] = {recorded: NETS[name] for name, recorded in RECORDED_NAMES.items()}
"""The builders of the presets in `RECORDED_NAMES`, by the name that specs record."""


def _digest(pair: Pair) -> str:
    """Return 12 hexadecimal digits that identify a pair of modules.

    They depend on the structure, the weights and the buffers, on which parameters are frozen, and on which modules with
    buffers are in evaluation mode, because batch normalisation behaves differently there.
    """
    digest = hashlib.sha256(str(pair).encode())
    for module in pair:
        state, buffers = module.state_dict(), dict(module.named_buffers())
        unstored = [value for name, value in buffers.items() if name not in state]
        for tensor in [*state.values(), *unstored]:
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        frozen = [name for name, parameter in module.named_parameters() if not parameter.requires_grad]
        evaluated = [
            name for name, part in module.named_modules() if not part.training and list(part.buffers(recurse=False))
        ]
        if frozen or evaluated:
            digest.update(repr((frozen, evaluated)).encode())
    return digest.hexdigest()[:12]


def resolve_net(net: str | PairBuilder | Pair) -> tuple[str, PairBuilder]:
    """Return the name that a spec records for a network, and the function that builds the network.

    Args:
        net: The network, in one of three forms. A string is the name of a preset in `NETS`, ``module:function`` or
            ``file.py:function``.
            A function ``(shape, latents) -> (encoder, decoder)`` is called at least once per run, with the random
            generator seeded by the run, so each seed has different initial weights. It must create new modules in
            every call. A pair of modules is copied with its weights, so all runs start from the same weights.
            A name of the form ``module:function`` is imported. If the name was read from a file, first check with
            `check_stored_net` that the user has consented to run its code.

    Returns:
        The name, and a function ``(shape, latents) -> (encoder, decoder)``.

    Raises:
        UserError: If the name is unknown or cannot be imported, if a pair cannot be copied (see `check_pair`), or if
            the name is the recorded name of a pair of modules. Such a name contains only a hash, so the pair itself
            must be passed again.

    >>> resolve_net("mlp")[0], resolve_net(mlp)[0], resolve_net("pointnet")[0]
    ('mlp', 'mlp', 'unbraid.nets.pointnet:pointnet')
    """
    if isinstance(net, tuple):
        check_pair(net)
        return f"modules:{_digest(net)}", lambda shape, latents: copy.deepcopy(net)
    if callable(net):
        preset_names = {builder: RECORDED_NAMES.get(name, name) for name, builder in NETS.items()}
        name = preset_names.get(net, f"{net.__module__}:{getattr(net, '__qualname__', type(net).__qualname__)}")
        trust_name(name)
        return name, net
    if net in NETS.added():
        return resolve_net(NETS[net])  # its name in specs is module:function
    if net in NETS or net in QUALIFIED:
        return RECORDED_NAMES.get(net, net), NETS[net] if net in NETS else QUALIFIED[net]
    if net.startswith("modules:"):
        raise UserError(
            f"A network that was given as a pair of modules cannot be built from its name. Got {net!r} instead of the "
            "pair. Pass the pair again, as net=(encoder, decoder)."
        )
    if ":" not in net:
        raise UserError(unknown_name_message("net", net, NETS))
    builder: PairBuilder = import_name("net", net)
    if net.rpartition(":")[0].endswith(".py"):
        return resolve_net(builder)
    trust_name(net)
    return net, builder


def check_stored_net(name: str, where: object, trust: bool, file: str | None = None) -> None:
    """Raise an error if the network whose name was read from a file must not be imported.

    Args:
        name: The name of a preset, or ``module:function``.
        where: The folder of the run, for the error message.
        trust: Whether the user has consented to import modules whose names are read from files.
        file: The file that is imported if the module cannot be imported by its name, or None.

    Raises:
        UserError: If the network is not part of unbraid, and the user has neither consented to import it nor passed it
            to unbraid in this process.
    """
    if ":" in name and name not in QUALIFIED and not name.startswith("modules:"):
        check_trust("network", name, where, trust, file)
