"""Build the network of a run, or only the parts of it that a compact copy of the run contains."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from unbraid.accel.layers import Conv, ConvTranspose
from unbraid.accel.settings import usual_new_tensors
from unbraid.errors import UserError
from unbraid.nets.registry import NETS
from unbraid.nets.vae import PairBuilder, VAENet
from unbraid.runs.spec import RunSpec

# Held while a network is built, because all threads of a process share PyTorch's random generator. A function that
# builds a network may itself build another one, for example that of a stored run.
_building = threading.RLock()


def _forget_lock_after_fork() -> None:
    """Replace the lock in a process that was made by `fork`, because another thread of the parent may have held it."""
    global _building
    _building = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock_after_fork)


def build_net(spec: RunSpec, shape: tuple[int, ...], builder: PairBuilder) -> VAENet:
    """Build the untrained network of a run for examples of shape `shape`.

    The random generator is seeded with the seed of the spec, so equal specs have equal initial weights.
    """
    with _building, usual_new_tensors(), torch.random.fork_rng(devices=[]), explained_errors(spec.net):
        torch.manual_seed(spec.seed)
        net = spec.method.build(NewModules(spec.net, builder), shape, spec.latents, spec.likelihood)
    in_float32 = {
        layer for name, child in net.named_children() if name in spec.float32_networks for layer in child.modules()
    }
    for layer in net.modules():
        if isinstance(layer, Conv | ConvTranspose):
            layer.reduced = spec.precision == "bf16" and layer not in in_float32
    net.shape = tuple(shape)
    return net


class NewModules:
    """A function that builds networks and raises an error if they contain modules or parameters of an earlier call.

    Runs would otherwise share their weights. Modules without parameters and buffers may occur in several networks.

    Args:
        net: The name of the network, for the error message.
        builder: The function that builds an encoder and a decoder.

    Attributes:
        earlier: The modules and parameters of all earlier calls of all such functions that still exist, by identity.
    """

    earlier: ClassVar[WeakValueDictionary[int, nn.Module | Tensor]] = WeakValueDictionary()

    def __init__(self, net: str, builder: PairBuilder) -> None:
        self.net, self.builder = net, builder

    def __call__(self, shape: tuple[int, ...], latents: int) -> Any:
        """Return the encoder and the decoder that the function has built."""
        pair = self.builder(shape, latents)
        whole = nn.ModuleList([part for part in pair if isinstance(part, nn.Module)])
        with_state = [m for m in whole.modules() if [*m.parameters(recurse=False), *m.buffers(recurse=False)]]
        objects: list[nn.Module | Tensor] = [*with_state, *whole.parameters()]
        if any(self.earlier.get(id(one)) is one for one in objects):
            raise UserError(
                "A function that builds a network must create new modules and parameters in every call. Got some of an "
                f"earlier call from {self.net!r}. Create them inside the function, for example by copy.deepcopy, or "
                "pass the two modules themselves as net=(encoder, decoder), which are then copied."
            )
        self.earlier.update((id(one), one) for one in objects)
        return pair


@contextmanager
def explained_errors(net: str) -> Iterator[None]:
    """Turn errors of a user's own network into a UserError that says where they occurred. `net` is its name."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if net in NETS:
            raise
        frame = traceback.extract_tb(error.__traceback__)[-1]
        message = str(error).replace('"', "'")
        raise UserError(
            f"The network {net!r} must be a function of the shape of an example and the number of latents that returns "
            f'an encoder and a decoder. It has failed in line {frame.lineno} of {frame.filename}: "{message}".'
        ) from error


def describe_misfit(module: nn.Module, weights: Mapping[str, Tensor]) -> str:
    """Return a sentence about the first weight that does not fit a module, for error messages.

    >>> describe_misfit(nn.Linear(2, 1), {"weight": torch.zeros(1, 3)})
    'The weight bias is missing.'
    >>> describe_misfit(nn.Linear(2, 1), {"weight": torch.zeros(1, 3), "bias": torch.zeros(1)})
    'The weight weight has the shape (1, 3) instead of (1, 2).'
    """
    expected = module.state_dict()
    for name in sorted(expected.keys() | weights.keys()):
        if name not in weights:
            return f"The weight {name} is missing."
        if name not in expected:
            return f"The weight {name} is not part of the network."
        if weights[name].shape != expected[name].shape:
            found, needed = tuple(weights[name].shape), tuple(expected[name].shape)
            return f"The weight {name} has the shape {found} instead of {needed}."
    return "A weight cannot be converted to the type of the network."


class AbsentNetwork(nn.Module):
    """Takes the place of a network that the weights of a run do not contain. Calling it is an error."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, *inputs: Tensor) -> Tensor:
        """Raise a UserError."""
        raise UserError(
            f"This computation needs the {self.name} of the run. The run is a compact copy without it, which can only "
            "encode and decode. Train the run again from its spec."
        )


def remove_networks(net: VAENet, spec: RunSpec, names: Iterable[str], where: Path) -> VAENet:
    """Replace the parts of `net` that a compact copy of a run leaves out by an `AbsentNetwork`, and return `net`.

    `names` lists these parts. Raise a UserError if one of them is not among `Method.training_networks`. The error
    message names the folder `where`.
    """
    for name in names:
        if name not in spec.method.training_networks:
            raise UserError(
                f"The weights in {where} must have all networks that encode or decode. Got weights without {name!r}. "
                "Restore the file from a copy."
            )
        setattr(net, name, AbsentNetwork(name))
    return net
