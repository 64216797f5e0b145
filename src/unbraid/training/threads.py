"""CPU threads that compute different runs, or different stacks, at the same time."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from unbraid.accel.devices import own_thread_count, set_own_thread_count, use_threads

T = TypeVar("T")
NO_MORE_WORK = "cannot schedule new futures"  # what Python says if a pool gets work after the main thread has ended


@functools.cache
def _thread_pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Return a pool of threads of a process. The process id is given because `fork` does not copy threads."""
    return ThreadPoolExecutor(threads, "runs")


def _call_with_cores(cores: int, function: Callable[..., T], *arguments: object) -> T:
    """Call a function in a thread of the pool, which then computes with this number of cores."""
    if own_thread_count() != cores:
        set_own_thread_count(cores)
    return function(*arguments)


def map_in_threads(threads: int, function: Callable[..., T], *arguments: Iterable[object]) -> list[T]:
    """Do the same as `list(map(function, *arguments))` with several threads, which share the cores equally.

    The cores are those that the current thread uses. If a call fails, the error is raised when all calls have ended.
    """
    cores = max(1, own_thread_count() // threads)
    calls, pool = list(zip(*arguments, strict=True)), _thread_pool(threads, os.getpid())
    futures: list[Future[T]] = []
    try:
        for each in calls:
            futures.append(pool.submit(_call_with_cores, cores, function, *each))
    except RuntimeError as error:
        if NO_MORE_WORK not in str(error):
            raise
    wait(futures)
    found = [future.result() for future in futures]
    if rest := calls[len(found) :]:  # a thread of the user trains after the main thread of the program has ended
        with use_threads(cores):
            found += [function(*each) for each in rest]
    return found
