"""Keeping freed memory in the process during training on a CPU.

By default, the allocator of glibc returns large blocks to the operating system as soon as they are freed. The next
training step then allocates them again, and the system maps and clears each of their pages. In fp32, this took about
a fifth of the time of a step.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from typing import Any

import torch

# Parameters of mallopt, from malloc.h of glibc.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
MAX_KEPT_BYTES = 2**31 - 1  # the largest value that mallopt accepts
MAX_BLOCK_BYTES = 2**30  # larger blocks are returned to the system when they are freed


@functools.cache
def _glibc() -> Any:
    """Return the C library if it is glibc, and None otherwise."""
    try:
        library = ctypes.CDLL(None)
        return library if hasattr(library, "gnu_get_libc_version") else None
    except (OSError, TypeError):  # TypeError on Windows
        return None


@functools.cache
def keep_freed_memory() -> bool:
    """Let the allocator keep freed memory for later steps, from now on. Return whether the allocator supports this.

    Memory that is kept can be used by all code of the process. `release_freed_memory` returns it to the system.
    """
    library = _glibc()
    if library is None:
        return False
    settings = {MMAP_THRESHOLD: MAX_BLOCK_BYTES, TRIM_THRESHOLD: MAX_KEPT_BYTES}
    return all(library.mallopt(name, value) == 1 for name, value in settings.items())


def release_freed_memory() -> None:
    """Return to the operating system all memory that was freed but kept in the process."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


@contextlib.contextmanager
def freed_memory_kept(device: torch.device) -> Iterator[None]:
    """Keep freed memory inside this context if the device is a CPU, and return it to the system at the end."""
    if device.type != "cpu" or not keep_freed_memory():
        yield
        return
    try:
        yield
    finally:
        release_freed_memory()
