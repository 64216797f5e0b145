"""A cache for fits that several metrics share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
_cache: ContextVar[dict[bytes, Any] | None] = ContextVar("fit_cache", default=None)


@contextmanager
def cached_fits() -> Iterator[None]:
    """Compute equal fits only once inside this block. Fits are equal if their codes, labels and options are equal.

    Blocks may be nested. An inner block shares the cache of the outer one. The cache is cleared when the outermost
    block ends.

    >>> from unbraid.metrics.trees import boosted_trees
    >>> codes, labels = np.array([[0.0], [1.0]]), np.array([0, 1])
    >>> with cached_fits():
    ...     boosted_trees(codes, labels) is boosted_trees(codes.copy(), labels)
    True
    """
    if _cache.get() is not None:
        yield
        return
    token = _cache.set({})
    try:
        yield
    finally:
        _cache.reset(token)


def cached_fit(compute: Callable[[], T], *content: np.ndarray[Any, np.dtype[Any]] | object) -> T:
    """Return the result of `compute`, or the cached result for equal `content` in this block of `cached_fits`.

    Outside such a block the result is always computed.

    >>> cached_fit(lambda: 3, "three")
    3
    """
    cache = _cache.get()
    if cache is None:
        return compute()
    key = _digest(content)
    if key not in cache:
        cache[key] = compute()
    result: T = cache[key]
    return result


def _digest(content: tuple[object, ...]) -> bytes:
    """Return a digest of arrays and plain values. Digests are equal only if types, shapes and values are equal."""
    total = hashlib.blake2b()
    for part in content:
        if isinstance(part, np.ndarray):
            total.update(f"{part.dtype.str}{part.shape};".encode())
            total.update(np.ascontiguousarray(part).tobytes())
        else:
            total.update(f"{part!r};".encode())
    return total.digest()
