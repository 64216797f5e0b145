"""Rejecting runs whose results the seed does not determine, or whose buffers would be lost."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.nets.vae import PairBuilder
from unbraid.runs.spec import RunSpec
from unbraid.training.stack import Stack


def check_randomness(spec: RunSpec, data: FactorData, builder: PairBuilder) -> None:
    """Compute the first step of a run twice, and raise an error if it draws random numbers without `noise`.

    Operations of PyTorch that draw random numbers are rejected on every device. Other sources, such as NumPy, are
    detected only on a CPU, where equal computations have equal results. An error is also raised if the step replaces a
    buffer by another tensor, or changes a buffer that is not stored, because the new value would be lost.
    """
    stack = Stack([spec], data, builder, vmapped=False, fused=False)
    initial, found = {name: value.clone() for name, value in stack.buffers.items()}, []
    for _ in range(2):
        for name, value in initial.items():
            stack.buffers[name].copy_(value)
        with RejectRandomness():  # type: ignore[no-untyped-call]
            found.append(stack._gradients_one_by_one(stack.device_step)[0].nan_to_num())
        reject_lost_buffers(stack, initial)
    first, second = found
    if data.device.type == "cpu" and not torch.equal(first, second):
        raise randomness_error("different results for the same step, seed and parameters")


def reject_lost_buffers(stack: Stack, initial: dict[str, Tensor]) -> None:
    """Raise an error if a step has changed a buffer that is not stored with the run."""
    for name, before in initial.items():
        if name not in stack.state_sources.values() and not torch.equal(stack.buffers[name], before):
            raise UserError(
                f"A buffer that training changes must be stored. Got the buffer {name}, which was registered with "
                "persistent=False. Register it with persistent=True."
            )


class RejectRandomness(TorchDispatchMode):
    """A mode that rejects operations of PyTorch that draw random numbers.

    PyTorch marks operations that can draw random numbers. Some of them, such as attention without dropout, draw none.
    An operation is therefore rejected only if it is called with a generator or changes the state of a default
    generator.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **options)
        before = generator_states()
        result = func(*args, **options)
        unchanged = all(map(torch.equal, before, generator_states()))
        if options.get("generator") is not None or not unchanged:
            raise randomness_error(f"the operation {func}")
        return result


def generator_states() -> list[torch.Tensor]:
    """Return the states of the default random generators of the CPU and the GPUs."""
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else []
    return [torch.get_rng_state(), *gpus]


def randomness_error(source: str) -> UserError:
    """Return the error for random numbers from a source other than `noise`."""
    return UserError(
        f"An objective, its network and its data must draw all random numbers from `noise`. Got {source} instead. The "
        "seed of the run does not determine such numbers, so two runs of the same spec would differ. Use "
        "noise.normal(...), noise.uniform(...), noise.integers(...) or noise.shuffle(...)."
    )
