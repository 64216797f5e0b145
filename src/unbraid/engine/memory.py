"""Memory habits of a training process."""

from __future__ import annotations

import ctypes
import functools
import sys

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # of glibc's malloc.h
LARGE = 1 << 30


@functools.cache
def keep_freed_memory() -> bool:
    """Ask glibc to reuse freed memory for large tensors instead of handing every one back to the system.

    By default each activation of a few megabytes is mapped and unmapped anew at every step, and the page faults of
    touching it again cost about as much as the arithmetic. The process keeps its peak memory until it ends. Same
    effect as the environment variables MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_. True if it took effect.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return all(mallopt(option, LARGE) for option in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD)) and bool(
        mallopt(M_TOP_PAD, LARGE >> 4)
    )
