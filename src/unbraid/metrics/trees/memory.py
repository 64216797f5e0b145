"""Fits that several metrics need, done once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
_kept: ContextVar[dict[bytes, Any] | None] = ContextVar("kept", default=None)


@contextmanager
def remembered() -> Iterator[None]:
    """Inside this block equal fits are done once: same codes, labels and options, wherever they come from.

    Blocks may be nested: the inner one shares what the outer one has. All is forgotten when the outermost one ends.

    >>> from unbraid.metrics.trees import boosted_trees
    >>> codes, labels = np.array([[0.0], [1.0]]), np.array([0, 1])
    >>> with remembered():
    ...     boosted_trees(codes, labels) is boosted_trees(codes.copy(), labels)
    True
    """
    if _kept.get() is not None:
        yield
        return
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


def once(make: Callable[[], T], *content: np.ndarray[Any, np.dtype[Any]] | object) -> T:
    """What `make` returns, or what it returned for equal content before in this block; outside of one, always anew.

    >>> once(lambda: 3, "three")
    3
    """
    kept = _kept.get()
    if kept is None:
        return make()
    key = _digest(content)
    if key not in kept:
        kept[key] = make()
    made: T = kept[key]
    return made


def _digest(content: tuple[object, ...]) -> bytes:
    """A name for arrays and plain values: equal for equal types, shapes and values only."""
    total = hashlib.blake2b()
    for part in content:
        if isinstance(part, np.ndarray):
            total.update(f"{part.dtype.str}{part.shape};".encode())
            total.update(np.ascontiguousarray(part).tobytes())
        else:
            total.update(f"{part!r};".encode())
    return total.digest()
