"""Rejecting runs of a user's own method or network before they are trained.

A run is rejected if its first step fails, if the seed does not determine its results, or if its buffers would be lost.
"""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from unbraid.data.dataset import FactorData
from unbraid.errors import PACKAGE, UserError
from unbraid.methods.method import Method
from unbraid.nets.vae import PairBuilder
from unbraid.runs.spec import RunSpec, method_name
from unbraid.training.stack import Stack


def check_randomness(spec: RunSpec, data: FactorData, builder: PairBuilder) -> None:
    """Compute the first step of a run twice, and raise an error if it draws random numbers without `noise`.

    Operations of PyTorch that draw random numbers are rejected on every device. Other sources, such as NumPy, are
    detected only on a CPU, where equal computations have equal results. An error is also raised if the step replaces a
    buffer by another tensor, or changes a buffer that is not stored, because the new value would be lost.
    """
    check_decorator(type(spec.method))
    stack = Stack([spec], data, builder, vmapped=False, fused=False)
    initial, found = {name: value.clone() for name, value in stack.buffers.items()}, []
    for _ in range(2):
        for name, value in initial.items():
            stack.buffers[name].copy_(value)
        with explained_step(spec), RejectRandomness():  # type: ignore[no-untyped-call]
            found.append(stack._gradients_one_by_one(stack.device_step)[0].nan_to_num())
        reject_lost_buffers(stack, initial)
    first, second = found
    if data.device.type == "cpu" and not torch.equal(first, second):
        raise randomness_error("different results for the same step, seed and parameters")


def check_decorator(cls: type[Method]) -> None:
    """Raise an error if a class has settings but is not a dataclass, so that the settings are not fields."""
    left = [name for name, value in vars(cls).items() if isinstance(value, dataclasses.Field)]
    if left:
        raise UserError(
            f"{cls.__name__} must be a dataclass to have settings. Got the setting {left[0]} in a class without a "
            "decorator. Write @dataclass(frozen=True) above the class, and annotate the setting: "
            f"{left[0]}: Hyper = setting(...)."
        )


@contextmanager
def explained_step(spec: RunSpec) -> Iterator[None]:
    """Turn errors of a user's own method or network into a UserError that says where they occurred."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if isinstance(error, MemoryError) or "memory" in str(error):
            raise
        frames = traceback.extract_tb(error.__traceback__)[1:]
        libraries = (PACKAGE, str(Path(torch.__file__).parent))
        own = [frame for frame in frames if not frame.filename.startswith(libraries)]
        where = f" in line {own[-1].lineno} of {own[-1].filename}" if own else ""
        message = str(error).replace('"', "'").partition("\n")[0]
        raise UserError(
            f'The first step of {method_name(spec.method)} has failed{where}: {type(error).__name__}: "{message}". '
            "objective(net, batch, noise, step) must return the loss and a dictionary of its terms. The loss and each "
            "term must be a tensor with a single number."
        ) from error


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
