"""Locks between processes that work in the same folder. A lock is released when its process ends for any reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from unbraid.errors import UserError


@contextmanager
def lock(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock file `path` inside this context. Wait while another process holds it.

    Args:
        path: The lock file. It is created if necessary and is not deleted when the lock is released.
        on_wait: Function that is called once if another process holds the lock.

    Raises:
        UserError: If the file cannot be created.
    """
    with try_lock(path) as acquired:
        if acquired:
            yield
            return
    on_wait()
    with FileLock(path):
        yield


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the lock file `path` inside this context, unless another process holds it.

    The context yields whether the lock was acquired. It never waits.

    Raises:
        UserError: If the file cannot be created.
    """
    file_lock = FileLock(path)
    try:
        file_lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    except OSError as error:
        raise UserError(
            f"Could not create {path}: {error.strerror}. Choose a folder that can be written to."
        ) from error
    try:
        yield True
    finally:
        file_lock.release()
