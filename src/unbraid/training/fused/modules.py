"""Modules that replace encoders, decoders and critics inside a network while a stack of runs trains.

An objective is written for one run and calls these modules for one run. `vmap` over the runs of the stack then replaces
each call by one computation for the whole stack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from unbraid.accel.kernels.last_layer import BERNOULLI, GAUSSIAN
from unbraid.accel.wrapper import NetworkWrapper
from unbraid.errors import UserError
from unbraid.nets.vae import VAENet
from unbraid.training.fused.functions import Critic, Decode, Encode, Nll
from unbraid.training.fused.networks import Plan, plan_decoder, plan_dense, plan_encoder

LIKELIHOOD_KINDS = {"bernoulli": BERNOULLI, "gaussian": GAUSSIAN}
# Raised if an objective computes a derivative. The derivative for training does not use `OneRun`.
DERIVATIVE_ERROR = (
    "An objective must not compute derivatives of a network that is computed by Triton kernels, for example with "
    "torch.func.grad. Got such an objective. Name the network in the method, so that it has no kernels: "
    'networks_without_kernels: ClassVar[tuple[str, ...]] = ("encoder",)'
)


def single_run_function(stacked: type[Function]) -> Callable[..., Tensor]:
    """Return a function that an objective calls for one run, and that `vmap` replaces by `stacked`.

    Args:
        stacked: The function of the whole stack. Each tensor has an additional first axis of runs.
    """

    class OneRun(Function):
        @staticmethod
        def forward(*arguments: Any) -> Tensor:
            raise RuntimeError("A fused network must be called under torch.vmap only, with a stack of runs.")

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Tensor:
            raise UserError(DERIVATIVE_ERROR)

        jvp = backward

        @staticmethod
        def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Tensor, int]:
            if in_dims[0] is None:  # this `vmap` is inside the objective, for example over samples, not over runs
                examples = [
                    _merge_with_batch(a, dim, info.batch_size) for a, dim in zip(arguments, in_dims, strict=True)
                ]
                merged: Tensor = OneRun.apply(*arguments[:2], *examples[2:])  # type: ignore[no-untyped-call]
                return merged.unflatten(0, (info.batch_size, -1)), 0
            stacks = [
                _move_mapped_axis_first(a, dim, info.batch_size) for a, dim in zip(arguments, in_dims, strict=True)
            ]
            return stacked.apply(*stacks), 0

    apply: Callable[..., Tensor] = OneRun.apply
    return apply


def _merge_with_batch(argument: Any, dim: int | None, times: int) -> Any:
    """Merge the mapped axis of a tensor into its batch axis. The result is a larger batch."""
    return _move_mapped_axis_first(argument, dim, times).flatten(0, 1) if isinstance(argument, Tensor) else argument


def _move_mapped_axis_first(argument: Any, dim: int | None, runs: int) -> Any:
    """Move the mapped axis of a tensor to the front. A tensor without a mapped axis is expanded."""
    if not isinstance(argument, Tensor):
        return argument
    return argument.expand(runs, *argument.shape) if dim is None else argument.movedim(dim, 0)


encode, decode, nll, apply_critic = (single_run_function(function) for function in (Encode, Decode, Nll, Critic))


class Fused(nn.Module):
    """A module whose parameters are one flat row.

    The buffer `copy` contains the same row in the precision in which kernels multiply. A stack replaces the parameters
    and the copy by those of its runs.
    """

    copy: Tensor

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.row = nn.Parameter(torch.zeros(plan.packing.size))
        self.register_buffer("copy", torch.zeros(plan.packing.size))


class FusedEncoder(Fused):
    """Computes the parameters of the posterior from images."""

    def forward(self, x: Tensor) -> Tensor:
        return encode(self.row, self.copy, x, self.plan)


class FusedDecoder(Fused):
    """Computes images from latents."""

    def forward(self, z: Tensor) -> Tensor:
        return decode(self.row, self.copy, z, self.plan)


class FusedLikelihoodDecoder(FusedDecoder):
    """Computes images from latents. It also computes the likelihood of given images without storing the output."""

    def __init__(self, plan: Plan, likelihood: str) -> None:
        super().__init__(plan)
        self.kind = LIKELIHOOD_KINDS[likelihood]

    def nll(self, x: Tensor, z: Tensor) -> Tensor:
        """Return -log p(x|z), summed over the pixels of each example."""
        return nll(self.row, self.copy, z, x, self.plan, self.kind)


class FusedCritic(Fused):
    """Computes logits from latents."""

    def forward(self, z: Tensor) -> Tensor:
        return apply_critic(self.row, self.copy, z, self.plan)


def fuse(net: VAENet, shape: tuple[int, ...], likelihood: str, replaceable: Callable[[str], bool]) -> VAENet:
    """Replace networks for which kernels exist, and return the network `net` that contains them.

    The children of `net` are replaced, and the networks inside an encoder or a decoder that is a `NetworkWrapper`. A
    network is not replaced if one of its parameters has a second place in `net`.

    Args:
        net: The network of a run, which is changed in place.
        shape: Shape of one example.
        likelihood: Name of the likelihood.
        replaceable: Function that takes the name of a network inside `net` and returns whether it may be replaced.
    """
    places = Counter(parameter for _, parameter in net.named_parameters(remove_duplicate=False))
    for child_name, child in list(net.named_children()):
        for name, network in list(networks_inside(child_name, child)):
            if not replaceable(name) or any(places[parameter] > 1 for parameter in network.parameters()):
                continue
            fused = _build_fused(name, network, shape, likelihood)
            if fused is not None:
                parent, _, last = name.rpartition(".")
                setattr(net.get_submodule(parent), last, fused)
    return net


def networks_inside(name: str, child: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the networks of a child of a `VAENet`, with their names in the `VAENet`.

    These are the networks inside an encoder or a decoder that is a `NetworkWrapper`. Any other child is one network.
    """
    if name in ("encoder", "decoder") and isinstance(child, NetworkWrapper):
        yield from _networks_of_wrapper(name, child)
    else:
        yield name, child


def _networks_of_wrapper(name: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the networks inside a wrapper or inside a list in a wrapper, with their names."""
    for child_name, child in module.named_children():
        full_name = f"{name}.{child_name}"
        if isinstance(child, NetworkWrapper | nn.ModuleList):
            yield from _networks_of_wrapper(full_name, child)
        else:
            yield full_name, child


def _build_fused(name: str, network: nn.Module, shape: tuple[int, ...], likelihood: str) -> Fused | None:
    """Return the fused version of a network, or None if no kernels exist for it.

    The network is an encoder, a decoder, or inside of one, as its name says. Any other network is a critic. Only the
    decoder itself is asked for likelihoods.
    """
    child, _, inner = name.partition(".")
    if child == "encoder":
        plan = plan_encoder(network, shape)
        return None if plan is None else FusedEncoder(plan)
    if child == "decoder":
        plan = plan_decoder(network, shape)
        if plan is None or (not inner and likelihood not in LIKELIHOOD_KINDS):
            return None
        return FusedDecoder(plan) if inner else FusedLikelihoodDecoder(plan, likelihood)
    plan = plan_dense(network)
    return None if plan is None else FusedCritic(plan)
