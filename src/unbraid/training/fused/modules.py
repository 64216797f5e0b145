"""Modules that replace the encoder, the decoder or the critic of a network while a stack of runs trains.

An objective is written for one run and calls these modules for one run. `vmap` over the runs of the stack then replaces
each call by one computation for the whole stack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from unbraid.accel.kernels.last_layer import BERNOULLI, GAUSSIAN
from unbraid.nets.vae import VAENet
from unbraid.training.fused.functions import Critic, Decode, Encode, Nll
from unbraid.training.fused.networks import Plan, plan_decoder, plan_dense, plan_encoder

LIKELIHOOD_KINDS = {"bernoulli": BERNOULLI, "gaussian": GAUSSIAN}


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
    """Computes images from latents. It can also compute the likelihood of given images without storing the output."""

    def __init__(self, plan: Plan, likelihood: str) -> None:
        super().__init__(plan)
        self.kind = LIKELIHOOD_KINDS[likelihood]

    def forward(self, z: Tensor) -> Tensor:
        return decode(self.row, self.copy, z, self.plan)

    def nll(self, x: Tensor, z: Tensor) -> Tensor:
        """Return -log p(x|z), summed over the pixels of each example."""
        return nll(self.row, self.copy, z, x, self.plan, self.kind)


class FusedCritic(Fused):
    """Computes logits from latents."""

    def forward(self, z: Tensor) -> Tensor:
        return apply_critic(self.row, self.copy, z, self.plan)


def fuse(net: VAENet, shape: tuple[int, ...], likelihood: str, names: Sequence[str]) -> VAENet:
    """Replace the children of a network that are named in `names` and have kernels, and return the network."""
    for name, child in [(name, child) for name, child in net.named_children() if name in names]:
        fused = _build_fused(name, child, shape, likelihood)
        if fused is not None:
            setattr(net, name, fused)
    return net


def _build_fused(name: str, child: nn.Module, shape: tuple[int, ...], likelihood: str) -> Fused | None:
    """Return the fused version of a child, or None if no kernels exist for it."""
    if name == "encoder":
        plan = plan_encoder(child, shape)
        return None if plan is None else FusedEncoder(plan)
    if name == "decoder":
        plan = plan_decoder(child, shape)
        return None if plan is None or likelihood not in LIKELIHOOD_KINDS else FusedDecoder(plan, likelihood)
    plan = plan_dense(child)
    return None if plan is None else FusedCritic(plan)
