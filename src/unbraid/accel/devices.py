"""Checking that a device exists, and setting the number of CPU threads of PyTorch."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from unbraid.errors import UserError, warn_user

T = TypeVar("T")
_setting = threading.Lock()  # held while the number of PyTorch's threads is changed


def check_device(device: str) -> None:
    """Accept "cpu", and also "cuda", "cuda:N" or "mps" if PyTorch finds such a GPU. Otherwise raise a `UserError`.

    A warning says that "mps" is untested.
    """
    import torch

    if device == "cpu":
        return
    kind, _, number = device.partition(":")
    if kind == "cuda" and torch.cuda.is_available():
        if number and not (number.isdecimal() and int(number) < torch.cuda.device_count()):
            count = torch.cuda.device_count()
            raise UserError(f"The device must be one of cuda:0 to cuda:{count - 1}. Got {device!r} instead.")
        return
    if device == "mps" and torch.backends.mps.is_available():
        warn_user(
            "The device mps uses ordinary PyTorch operations in fp32, and unbraid has not been tested on it. Compare a "
            "short run with the device cpu."
        )
        return
    raise UserError(f"The device must be cpu, or cuda or mps if PyTorch finds such a GPU. Got {device!r} instead.")


def own_thread_count() -> int:
    """Return the number of CPU threads that operations of PyTorch use in the current thread.

    A thread gets its number from the process when it first calls PyTorch. Here, this does not happen while
    `set_own_thread_count` changes the number of the process for a moment.
    """
    import torch

    with _setting:
        return torch.get_num_threads()


def set_own_thread_count(n: int) -> None:
    """Let operations of PyTorch use `n` CPU threads in the current thread, but not in others.

    `torch.set_num_threads` also changes the number that other threads get when they first call PyTorch, and their
    results would then be rounded in another way. That number is restored here.
    """
    import torch

    with _setting:
        torch.get_num_threads()  # at its first call of PyTorch, this thread gets the number of the process
        of_new_threads = _call_in_new_thread(torch.get_num_threads)
        try:
            torch.set_num_threads(n)
        finally:
            _call_in_new_thread(functools.partial(torch.set_num_threads, of_new_threads))


def _call_in_new_thread(function: Callable[[], T]) -> T:
    """Return what a function returns in a thread that has not called PyTorch yet."""
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


@contextmanager
def use_threads(n: int) -> Iterator[None]:
    """Let operations of PyTorch use `n` CPU threads in the current thread inside this context."""
    before = own_thread_count()
    set_own_thread_count(n)
    try:
        yield
    finally:
        set_own_thread_count(before)


@contextmanager
def one_thread() -> Iterator[None]:
    """Run PyTorch operations on one CPU thread. For short operations, waiting for other threads takes longer."""
    with use_threads(1):
        yield


def _use_one_thread_after_fork() -> None:
    """Let PyTorch use one CPU thread in a process that was made by `fork`.

    Such a process has none of the threads of its parent. The OpenMP library of GCC, which PyTorch uses on Linux, does
    not know this. If the parent has computed with several threads, the process would wait for them forever.
    """
    global _setting
    _setting = threading.Lock()  # another thread of the parent may have held it
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_use_one_thread_after_fork)
