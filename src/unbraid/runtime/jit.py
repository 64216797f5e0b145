"""Compilation with numba; imported only by files that are loaded when first called, so that importing stays fast."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def kernel(**options: Any) -> Callable[[F], F]:
    """Compile a function to machine code on its first call, kept on disk for the next process; the GIL is released.

    >>> @kernel()
    ... def double(x):
    ...     return 2 * x
    >>> double(4)
    8
    """

    def compiled(function: F) -> F:
        bare = inspect.unwrap(function)  # the tests wrap every function in a run-time type check
        keep = not bare.__code__.co_filename.startswith("<")
        try:
            return cast(F, njit(bare, cache=keep, nogil=True, **options))
        except RuntimeError:  # no folder on this machine can be written to: compile in every process
            return cast(F, njit(bare, nogil=True, **options))

    return compiled
