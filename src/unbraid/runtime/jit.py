"""Compilation with numba. Only modules that are imported on first use import this one, so that start-up stays fast."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def kernel(**options: Any) -> Callable[[F], F]:
    """Compile a function to machine code on its first call. It releases the GIL and is cached on disk.

    >>> @kernel()
    ... def double(x):
    ...     return 2 * x
    >>> double(4)
    8
    """

    def decorate(function: F) -> F:
        bare = inspect.unwrap(function)  # tests wrap every function in a type check
        cache = not bare.__code__.co_filename.startswith("<")
        try:
            return cast(F, njit(bare, cache=cache, nogil=True, **options))
        except RuntimeError:  # no folder is writable: compile again in every process
            return cast(F, njit(bare, nogil=True, **options))

    return decorate
