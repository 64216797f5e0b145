"""Modules that stand in for an encoder, a decoder or a critic while a stack of runs trains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from unbraid.accel.kernels.conv_transpose4x4 import BERNOULLI, GAUSSIAN
from unbraid.nets.vae import VAENet
from unbraid.training.fused.functions import Critic, Decode, Encode, Nll
from unbraid.training.fused.networks import Plan, plan_decoder, plan_dense, plan_encoder

KINDS = {"bernoulli": BERNOULLI, "gaussian": GAUSSIAN}


def of_one_run(stacked: type[Function]) -> Callable[..., Tensor]:
    """A function of one run, as an objective calls it, whose rule under `vmap` is the function of the stack."""

    class OneRun(Function):
        @staticmethod
        def forward(*arguments: Any) -> Tensor:
            raise RuntimeError("A fused network runs under torch.vmap only, as a stack of runs.")

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
            pass

        @staticmethod
        def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Tensor, int]:
            if in_dims[0] is None:  # an objective's own map, over samples say: they are a larger batch
                examples = [_folded(a, dim, info.batch_size) for a, dim in zip(arguments, in_dims, strict=True)]
                folded: Tensor = OneRun.apply(*arguments[:2], *examples[2:])  # type: ignore[no-untyped-call]
                return folded.unflatten(0, (info.batch_size, -1)), 0
            stacks = [_stacked(a, dim, info.batch_size) for a, dim in zip(arguments, in_dims, strict=True)]
            return stacked.apply(*stacks), 0

    apply: Callable[..., Tensor] = OneRun.apply
    return apply


def _folded(argument: Any, dim: int | None, times: int) -> Any:
    return _stacked(argument, dim, times).flatten(0, 1) if isinstance(argument, Tensor) else argument


def _stacked(argument: Any, dim: int | None, runs: int) -> Any:
    if not isinstance(argument, Tensor):
        return argument
    return argument.expand(runs, *argument.shape) if dim is None else argument.movedim(dim, 0)


encode, decode, nll, criticise = (of_one_run(function) for function in (Encode, Decode, Nll, Critic))


class Fused(nn.Module):
    """A module whose parameters are one row, with a copy of it in the precision kernels multiply in."""

    copy: Tensor

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.row = nn.Parameter(torch.zeros(plan.packing.size))
        self.register_buffer("copy", torch.zeros(plan.packing.size))


class FusedEncoder(Fused):
    """Images to posteriors."""

    def forward(self, x: Tensor) -> Tensor:
        return encode(self.row, self.copy, x, self.plan)


class FusedDecoder(Fused):
    """Latents to images, or straight to the likelihood of given ones."""

    def __init__(self, plan: Plan, likelihood: str) -> None:
        super().__init__(plan)
        self.kind = KINDS[likelihood]

    def forward(self, z: Tensor) -> Tensor:
        return decode(self.row, self.copy, z, self.plan)

    def nll(self, x: Tensor, z: Tensor) -> Tensor:
        """-log p(x|z), summed over the pixels of each example."""
        return nll(self.row, self.copy, z, x, self.plan, self.kind)


class FusedCritic(Fused):
    """Codes to logits."""

    def forward(self, z: Tensor) -> Tensor:
        return criticise(self.row, self.copy, z, self.plan)


def fuse(net: VAENet, shape: tuple[int, ...], likelihood: str, able: Sequence[str]) -> VAENet:
    """The net with those of the named children that kernels exist for replaced; the others stay as they are."""
    for name, child in [(name, child) for name, child in net.named_children() if name in able]:
        fused = _fused(name, child, shape, likelihood)
        if fused is not None:
            setattr(net, name, fused)
    return net


def _fused(name: str, child: nn.Module, shape: tuple[int, ...], likelihood: str) -> Fused | None:
    if name == "encoder":
        plan = plan_encoder(child, shape)
        return None if plan is None else FusedEncoder(plan)
    if name == "decoder":
        plan = plan_decoder(child, shape)
        return None if plan is None or likelihood not in KINDS else FusedDecoder(plan, likelihood)
    plan = plan_dense(child)
    return None if plan is None else FusedCritic(plan)
