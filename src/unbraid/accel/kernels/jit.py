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
    return triton.jit(inspect.unwrap(function))  # tests wrap every function in a type check, which is removed here


def kernel_for_any_sizes(function: Callable[..., Any]) -> Any:
    """Do the same as `kernel`, but compile only once for all values of certain arguments.

    These are the arguments whose names have two characters and are in lower case. Triton would otherwise compile a
    kernel again if such a number is 1, or if it is a multiple of 16.
    """
    names = [name for name in inspect.signature(function).parameters if len(name) == 2 and name.islower()]
    return triton.jit(inspect.unwrap(function), do_not_specialize=names)


@functools.cache
def is_interpreted() -> bool:
    """Return whether kernels run in the interpreter of Triton, on CPU tensors."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def block_count(n: int, size: int) -> int:
    """Return the number of blocks of `size` elements that cover n elements."""
    return -(-n // size)


def divisor(n: int, most: int) -> int:
    """Return the largest divisor of n that is at most `most`."""
    return next(d for d in range(min(n, most), 0, -1) if n % d == 0)


def next_power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()
