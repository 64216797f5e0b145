"""Compilation of functions with numba.

Importing numba is slow, so only modules that are themselves imported on first use may import this one.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def kernel(**options: Any) -> Callable[[F], F]:
    """Return a decorator that compiles a function to machine code on its first call.

    The compiled function releases the GIL and is cached on disk. It is compiled again if any Python file in its folder
    has changed, because it may contain code and constants of other kernels there. A kernel must not call kernels of
    other folders, except the operations of `unbraid.runtime.vectors`, on which every kernel depends.

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
            compiled = njit(bare, cache=cache, nogil=True, **options)
        except RuntimeError:  # no cache folder is writable, so every process has to compile
            return cast(F, njit(bare, nogil=True, **options))
        if cache:
            depend_on_files(compiled, Path(bare.__code__.co_filename).parent)
        return cast(F, compiled)

    return decorate


def depend_on_files(compiled: Any, folder: Path) -> None:
    """Let numba use the cached code of a function only while no Python file of the folder, or of this one, changes.

    By itself, numba only looks at the file of the function. It would then call outdated code of other files. The state
    of the files is a part of the version of the cache, because numba compares versions before it reads anything else.
    Otherwise it would fail if a type to which the cache refers does not exist any more.
    """
    file = compiled._cache._cache_file
    file._version = (file._version, folder_state(folder), folder_state(Path(__file__).parent))


@functools.cache
def folder_state(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Return the name, the time of modification and the size of each Python file of a folder."""
    files = [(path.name, path.stat()) for path in sorted(folder.glob("*.py"))]
    return tuple((name, status.st_mtime_ns, status.st_size) for name, status in files)
