"""Sharing CPU cores among Python threads in the computation of one run.

PyTorch can compute one operation with several threads. This helps little for small operations, and the threads of one
operation may add numbers in an order that depends on their number. Inside `shared_cores`, every operation therefore
uses one thread, and independent parts of the computation are given to different Python threads. Operations of PyTorch
release the lock of the interpreter, so these threads run at the same time.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")

MIN_COLUMNS = 2**15  # narrower parts of a matrix are not worth a thread
COLUMN_UNIT = 64  # the widths of parts are multiples of this, which keeps vector instructions aligned

_local = threading.local()


def usable_cores() -> int:
    """Return the number of cores that the current thread may divide among Python threads. It is 1 by default."""
    return getattr(_local, "cores", 1)


@contextlib.contextmanager
def shared_cores() -> Iterator[None]:
    """Compute each operation with one thread inside this context, and let `run_tasks` use all threads of PyTorch.

    The context concerns the current thread only. A nested context changes nothing.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    _local.cores = threads
    torch.set_num_threads(1)
    try:
        yield
    finally:
        _local.cores = 1
        torch.set_num_threads(threads)


@functools.cache
def _pool(threads: int, cores: int, process: int) -> ThreadPoolExecutor:
    """Return a pool of threads. Threads do not survive a fork, so each process has its own pools."""
    return ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(cores,))


def thread_pool(threads: int) -> ThreadPoolExecutor:
    """Return a pool of threads that divide the cores of the current thread equally among themselves."""
    cores = max(usable_cores(), torch.get_num_threads())
    return _pool(threads, max(1, cores // threads), os.getpid())


def run_tasks(tasks: Sequence[Callable[[], Result]], cores: int) -> list[Result]:
    """Call all functions and return their results in order.

    The current thread and at most `cores` - 1 others take the next function as soon as they are free. No gradients are
    recorded.
    """
    results: dict[int, Result] = {}
    waiting = deque(enumerate(tasks))

    def work() -> None:
        with torch.no_grad():
            while waiting:
                try:
                    i, task = waiting.popleft()
                except IndexError:  # another thread took the last task
                    return
                results[i] = task()

    helpers = min(cores, len(tasks)) - 1
    pool = _pool(os.cpu_count() or 1, 1, os.getpid())
    futures = [pool.submit(work) for _ in range(helpers)]
    try:
        work()
    finally:
        started = [future for future in futures if not future.cancel()]
        wait(started)
    for future in started:
        future.result()  # raises the error of a task
    return [results[i] for i in range(len(tasks))]


def split_columns(matrix: Tensor) -> list[Tensor]:
    """Divide the columns of a matrix into one part for each core. Small matrices have one part."""
    columns = matrix.shape[1]
    width = max(MIN_COLUMNS, -(-columns // usable_cores() // COLUMN_UNIT) * COLUMN_UNIT)
    return list(matrix.split(width, 1))
