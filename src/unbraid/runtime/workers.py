"""Worker processes that end together with the process that started them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from unbraid.runtime.interrupts import Interrupts

WATCH_SECONDS = 0.5  # time between two checks whether the parent still exists


@contextmanager
def worker_pool(jobs: int) -> Iterator[Any]:
    """Provide worker processes inside this context.

    The workers use one thread each. They end with this process, even if it is killed.

    Args:
        jobs: The number of processes.

    Yields:
        A `joblib.Parallel` object. Called with delayed function calls, it returns a generator of their results.
    """
    from joblib import Parallel, parallel_config

    settings = {"inner_max_num_threads": 1, "initializer": prepare_worker, "initargs": (os.getpid(),)}
    with (
        parallel_config("loky", n_jobs=jobs, **settings),
        Parallel(return_as="generator", max_nbytes=None) as pool,
    ):
        yield pool


def prepare_worker(parent: int) -> None:
    """Let this process end with its parent, and let interrupts end its work even if a library catches them.

    Args:
        parent: The id of the process that started this process.
    """
    end_with_parent(parent)
    Interrupts().install()


def end_with_parent(parent: int) -> None:
    """End this process soon after the process that started it has ended.

    A thread of this process checks regularly whether the parent still exists. Linux could send a signal at the end of
    the parent, but it sends the signal as soon as the thread that started the worker ends. That thread may end before
    the parent does.

    Args:
        parent: The id of the process that started this process.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="end_with_parent").start()
