"""Compilation of functions with numba.

Importing numba is slow, so only modules that are themselves imported on first use may import this one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def kernel(**options: Any) -> Callable[[F], F]:
    """Return a decorator that compiles a function to machine code on its first call.

    The compiled function releases the GIL and is cached on disk.

    Args:
        **options: Further options of `numba.njit`.

    >>> @kernel()
    ... def double(x):
    ...     return 2 * x
    >>> double(4)
    8
    """

    def decorate(function: F) -> F:
        bare = inspect.unwrap(function)  # because tests wrap every function in a type check
        cache = not bare.__code__.co_filename.startswith("<")  # code without a file cannot be cached
        try:
            return cast(F, njit(bare, cache=cache, nogil=True, **options))
        except RuntimeError:  # no cache folder is writable, so every process has to compile
            return cast(F, njit(bare, nogil=True, **options))

    return decorate
