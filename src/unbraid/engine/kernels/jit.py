"""Compiling with Triton, where it is installed."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import os
from collections.abc import Callable
from typing import Any

import torch
import triton


def kernel(function: Callable[..., Any]) -> Any:
    """A function in Triton's language, compiled at its first launch; TRITON_INTERPRET=1 runs it in numpy instead."""
    return triton.jit(inspect.unwrap(function))  # the tests wrap every function in a run-time type check


@functools.cache
def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, on CPU tensors."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def multiprocessors(device: torch.device) -> int:
    """How many programs a device runs truly side by side."""
    return 1 if interpreted() else torch.cuda.get_device_properties(device).multi_processor_count


def blocks(n: int, size: int) -> int:
    """How many blocks of a size cover n."""
    return -(-n // size)


def power(n: int) -> int:
    """The smallest power of two that is not below n."""
    return 1 << (n - 1).bit_length()


def installed() -> bool:
    """Whether Triton can be imported."""
    return importlib.util.find_spec("triton") is not None
