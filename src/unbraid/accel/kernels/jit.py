"""Compiling with Triton, where it is installed."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any

import triton


def kernel(function: Callable[..., Any]) -> Any:
    """A function in Triton's language, compiled at its first launch; TRITON_INTERPRET=1 runs it in numpy instead."""
    return triton.jit(inspect.unwrap(function))  # the tests wrap every function in a run-time type check


@functools.cache
def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, on CPU tensors."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def blocks(n: int, size: int) -> int:
    """How many blocks of a size cover n."""
    return -(-n // size)


def power(n: int) -> int:
    """The smallest power of two that is not below n."""
    return 1 << (n - 1).bit_length()
