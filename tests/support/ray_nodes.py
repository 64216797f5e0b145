"""A real Ray cluster on this machine: several raylets, each a node with one core, that can be killed."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock


class Nodes:
    """A cluster of raylets on this machine whose workers and nodes can be killed."""

    def __init__(self, folder: Path, count: int) -> None:
        from ray.cluster_utils import Cluster

        self.folder = folder
        small_store = {"object_store_memory": 100 * 2**20, "include_dashboard": False}
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small_store})
        self.nodes = [self.add() for _ in range(count)]

    def add(self) -> Any:
        return self.cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20)

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def raylet(self, node: Any) -> int:
        return int(node.all_processes["raylet"][0].process.pid)

    def workers(self, node: Any) -> list[int]:
        """The ids of the processes of a node that train."""
        raylet = self.raylet(node)
        return [pid for pid, parent, title in processes() if parent == raylet and title.startswith("ray::train_stack")]

    def training(self, i: int) -> list[int]:
        """The ids of the processes that train on a node, as soon as there are some and a checkpoint is written."""
        saved = any("checkpoint.safetensors" in files for _, _, files in os.walk(self.folder))
        return self.workers(self.nodes[i]) if saved else []

    def kill_worker(self, i: int) -> None:
        """Kill the processes of a node that train."""
        for pid in wait_for(lambda: self.training(i)):
            os.kill(pid, signal.SIGKILL)

    def kill_node(self, i: int) -> None:
        """Kill a raylet while one of its processes trains, remove the node, and start another."""
        wait_for(lambda: self.training(i))
        node = self.nodes[i]
        os.kill(self.raylet(node), signal.SIGKILL)
        self.cluster.remove_node(node, allow_graceful=False)
        self.nodes[i] = self.add()


def processes() -> Iterator[tuple[int, int, str]]:
    """Id, parent and title of all processes."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            yield int(folder.name), parent, (folder / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue


def wait_for(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Call `condition` until its result is true, and return that result."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, "the condition was not met in time"
        time.sleep(0.1)
    return result


@contextmanager
def started_nodes(folder: Path, count: int) -> Iterator[Nodes]:
    """Start nodes and a head without cores. The temporary folders of the nodes are inside a folder."""
    sockets = tempfile.mkdtemp(prefix="r")  # paths of sockets must be short
    settings = {"RAY_TMPDIR": sockets, "TMPDIR": str(folder / "node"), "OMP_NUM_THREADS": "1",
                "RAY_USAGE_STATS_ENABLED": "0", "RAY_health_check_period_ms": "500"}  # fmt: skip
    (folder / "node").mkdir()
    with mock.patch.dict(os.environ, settings):
        started = Nodes(folder, count)
        try:
            yield started
        finally:
            import ray

            ray.shutdown()
            started.cluster.shutdown()
            shutil.rmtree(sockets, ignore_errors=True)
