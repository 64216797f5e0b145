"""Memory that reveals mistakes of kernels: it is filled with NaN and lies between guards."""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
GUARD = 64  # elements on either side, a multiple of every alignment


def guarded_memory(shape: tuple[int, ...], **options: Any) -> tuple[Tensor, Tensor]:
    """Memory filled with NaN (or the smallest integer), and the longer tensor of which it is the middle."""
    size = math.prod(shape)
    whole = torch.zeros(size + 2 * GUARD, **options)
    whole.fill_(math.nan if whole.dtype.is_floating_point else torch.iinfo(whole.dtype).min)
    return whole[GUARD : GUARD + size].view(shape), whole


@contextlib.contextmanager
def guarded_allocations() -> Iterator[None]:
    """Fill uninitialised allocations with NaN, and assert at the end that nothing around them was written."""
    empty, allocations = torch.empty, []

    def poisoned(*shape: Any, **options: Any) -> Tensor:
        size = tuple(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
        if not set(options) <= {"dtype", "device"} or math.prod(size) == 0 or options.get("dtype") == torch.bool:
            return empty(size, **options)
        inside, whole = guarded_memory(size, **options)
        allocations.append(whole)
        return inside

    def like(tensor: Tensor) -> Tensor:
        return poisoned(tensor.shape, dtype=tensor.dtype, device=tensor.device)

    def new(tensor: Tensor, *shape: Any, **options: Any) -> Tensor:
        return poisoned(*shape, **{"dtype": tensor.dtype, "device": tensor.device, **options})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "empty", poisoned)
        patch.setattr(torch, "empty_like", like)
        patch.setattr(torch.Tensor, "new_empty", new)
        yield
    for whole in allocations:
        for guard in (whole[:GUARD], whole[-GUARD:]):
            untouched = guard.isnan() if guard.dtype.is_floating_point else guard == torch.iinfo(guard.dtype).min
            assert bool(untouched.all())


@contextlib.contextmanager
def faster_interpreter() -> Iterator[None]:
    """Switch off the overflow checks of the interpreter, which double its time. The shapes in tests are small."""
    interpreter = importlib.import_module("triton.runtime.interpreter")
    options = getattr(getattr(interpreter, "interpreter_builder", None), "options", None)
    with pytest.MonkeyPatch.context() as patch:
        if options is not None:
            patch.setitem(vars(options), "sanitize_overflow", False)
        yield
