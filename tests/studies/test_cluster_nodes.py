"""Studies on a real Ray cluster: separate raylets, each a node with one core, killed at odd moments."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_cluster import equal
from test_study import order

from unbraid.cli.dispatch import main
from unbraid.methods import METHODS, AnnealedVAE
from unbraid.runs.folder import find_runs
from unbraid.studies import cluster as spreading
from unbraid.studies.planned import Planned, crossed, swept
from unbraid.studies.runner import run_study

HAS_RAY = importlib.util.find_spec("ray") is not None
real = pytest.mark.skipif(not HAS_RAY, reason='Ray is not installed: pip install "unbraid[cluster]"')


def disturbed() -> list[Planned]:
    """Five stacks of four runs, some seconds each."""
    methods = [swept(METHODS[name], "lambda_od", (1.0, 10.0)) for name in ("dip_vae_i", "dip_vae_ii")]
    methods += [swept(METHODS[name], "beta", (1.0, 4.0)) for name in ("beta_vae", "beta_tcvae")]
    settings = [setting for group in [*methods, swept(AnnealedVAE, "c_max", (5.0, 25.0))] for setting in group]
    return list(crossed(["toy"], settings, 2, steps=STEPS, batch=8, latents=3))


STEPS = 600
DRIVER = """
import sys
from pathlib import Path
from test_cluster_nodes import disturbed
from test_study import order
from unbraid.study.cluster import run_cluster
run_cluster(disturbed(), order(Path(sys.argv[1]), checkpoint_seconds=1.0), sys.argv[2], sys.argv[3] == "shared")
"""


class Nodes:
    """A cluster of raylets on this machine, and ways to hurt it."""

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
        """Processes of a node that train."""
        raylet = self.raylet(node)
        return [pid for pid, parent, title in processes() if parent == raylet and title.startswith("ray::train_stack")]

    def under_way(self, i: int) -> list[int]:
        """Processes that train on a node, once there are some and a checkpoint is kept."""
        kept = any("checkpoint.safetensors" in files for _, _, files in os.walk(self.folder))
        return self.workers(self.nodes[i]) if kept else []

    def kill_worker(self, i: int) -> None:
        """End a process that trains."""
        for pid in until(lambda: self.under_way(i)):
            os.kill(pid, signal.SIGKILL)

    def kill_node(self, i: int) -> None:
        """End a raylet while a process of its trains, then what else is left of the node, and start another."""
        until(lambda: self.under_way(i))
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


def until(look: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What `look` finds, as soon as it finds something."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.1)
    return found


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    """Two nodes and a head without cores; scratch folders of the nodes under the test's own folder."""
    sockets = tempfile.mkdtemp(prefix="r")  # paths of sockets must be short
    settings = {"RAY_TMPDIR": sockets, "TMPDIR": str(tmp_path / "node"), "OMP_NUM_THREADS": "1",
                "RAY_USAGE_STATS_ENABLED": "0", "RAY_health_check_period_ms": "500"}  # fmt: skip
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "node").mkdir()
    made = Nodes(tmp_path, 2)
    try:
        yield made
    finally:
        import ray

        ray.shutdown()
        made.cluster.shutdown()
        shutil.rmtree(sockets, ignore_errors=True)


def driver(out: Path, address: str, mode: str = "own") -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(out), address, mode], env={**os.environ, "PYTHONPATH": path}
    )


@real
@pytest.mark.slow
def test_workers_nodes_and_drivers_die_and_the_study_ends_as_undisturbed(tmp_path: Path, nodes: Nodes) -> None:
    """Two workers, two nodes and the driver killed: every run once, bit for bit that of one process."""
    out = tmp_path / "cut"
    run_study(disturbed(), order(tmp_path / "whole"), quiet=True)
    first = driver(out, nodes.address)
    try:
        nodes.kill_worker(0)
        nodes.kill_node(1)
        until(lambda: find_runs(out))
        nodes.kill_worker(0)
    finally:
        first.kill()
        first.wait()
    some = len(find_runs(out))
    assert 0 < some < 20
    second = driver(out, nodes.address)
    try:
        nodes.kill_node(0)
        assert second.wait(timeout=240) == 0
    finally:
        second.kill()
        second.wait()
    equal(tmp_path / "whole", out)
    assert not (out / ".arriving").exists()
    assert not [path for path in (tmp_path / "node").glob("*/*") if path.is_dir()]


@real
@pytest.mark.slow
def test_a_shared_folder_survives_a_worker_and_a_node(tmp_path: Path, nodes: Nodes) -> None:
    out = tmp_path / "cut"
    run_study(disturbed(), order(tmp_path / "whole"), quiet=True)
    child = driver(out, nodes.address, "shared")
    try:
        nodes.kill_worker(0)
        nodes.kill_node(1)
        assert child.wait(timeout=240) == 0
    finally:
        child.kill()
        child.wait()
    equal(tmp_path / "whole", out)


@real
@pytest.mark.slow
def test_a_real_cluster_refuses_with_one_line(
    tmp_path: Path, nodes: Nodes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--data", "toy", "--only", "method=beta_vae", "--only", "level=0", "--seeds", "0", "--steps", "5"]
    line = ["study", "locatello2019", *flags, "--out", str(tmp_path / "s"), "--metrics", "mig", "--samples", "100"]
    assert main([*line, "--cluster", nodes.address, "--device", "cuda"]) == 2
    assert "No node with a GPU among the 3" in capsys.readouterr().err
    monkeypatch.setattr(spreading, "__version__", "9.9")
    assert main([*line, "--cluster", nodes.address]) == 2
    assert "error: Every node must have unbraid 9.9." in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.setenv("RAY_ADDRESS", nodes.address)
    assert main([*line, "--cluster", "auto"]) == 0
    assert "1 runs in" in capsys.readouterr().out


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The ray:// address of a cluster that asks for a token, and an environment that has it."""
    sockets, ports = tempfile.mkdtemp(prefix="r"), [free_port(), free_port()]
    found = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "c0ffee" * 8, "RAY_USAGE_STATS_ENABLED": "0"}
    environment = {**os.environ, **found, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--num-cpus=1",
               f"--port={ports[0]}", f"--ray-client-server-port={ports[1]}", "--include-dashboard=false",
               f"--object-store-memory={100 * 2**20}", f"--temp-dir={sockets}"]  # fmt: skip
    head = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def listens() -> bool:
        assert head.poll() is None
        with socket.socket() as caller:
            return caller.connect_ex(("127.0.0.1", ports[1])) == 0

    try:
        until(listens)
        yield f"ray://127.0.0.1:{ports[1]}", environment
    finally:
        head.terminate()
        head.wait(timeout=60)
        shutil.rmtree(sockets, ignore_errors=True)


@real
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason='Ray has no client: pip install "ray[client]"')
def test_a_study_is_given_from_outside_the_cluster(tmp_path: Path, outside: tuple[str, dict[str, str]]) -> None:
    address, environment = outside
    flags = ["--data", "toy", "--only", "method=beta_vae", "--only", "level=0", "--seeds", "0-1", "--steps", "5"]
    line = [
        sys.executable,
        "-m",
        "unbraid",
        "study",
        "locatello2019",
        *flags,
        "--metrics",
        "mig",
        "--samples",
        "100",
        "--out",
    ]
    done = subprocess.run([*line, str(tmp_path / "far"), "--cluster", address], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    subprocess.run([*line, str(tmp_path / "near")], env=environment, check=True)
    equal(tmp_path / "near", tmp_path / "far")
    lacking = {**environment, "RAY_AUTH_MODE": "disabled"}
    done = subprocess.run([*line, str(tmp_path / "no"), "--cluster", address], env=lacking, capture_output=True)
    assert done.returncode == 2
    assert "RAY_AUTH_MODE=token" in done.stderr.decode()
    assert not find_runs(tmp_path / "no")
