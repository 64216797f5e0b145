"""Compilation of kernels with Triton, and the sizes of launch grids."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any

import triton


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a Triton function at its first launch. TRITON_INTERPRET=1 runs it in numpy instead."""
    return triton.jit(inspect.unwrap(function))  # because tests wrap every function in a type check


@functools.cache
def is_interpreted() -> bool:
    """Return whether kernels run in the interpreter of Triton, on CPU tensors."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def block_count(n: int, size: int) -> int:
    """Return the number of blocks of `size` elements that cover n elements."""
    return -(-n // size)


def next_power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()
