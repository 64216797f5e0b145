"""Studies on a real Ray cluster: several raylets, each a node with one core, that are killed at different times."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ray_nodes import Nodes, started_nodes, wait_for
from support.studies import assert_same_studies, small_settings
from unbraid.cli.dispatch import main
from unbraid.methods import METHODS, AnnealedVAE
from unbraid.runs.folder import find_runs
from unbraid.studies import cluster
from unbraid.studies.group_scores import GROUP_METRICS
from unbraid.studies.local import run_study
from unbraid.studies.planned import PlannedRun, grid, sweep

HAS_RAY = importlib.util.find_spec("ray") is not None
real = pytest.mark.skipif(not HAS_RAY, reason='Ray is not installed: pip install "unbraid[cluster]"')


def slow_study() -> list[PlannedRun]:
    """Five stacks of four runs, which take some seconds each."""
    methods = [sweep(METHODS[name], "lambda_od", (1.0, 10.0)) for name in ("dip_vae_i", "dip_vae_ii")]
    methods += [sweep(METHODS[name], "beta", (1.0, 4.0)) for name in ("beta_vae", "beta_tcvae")]
    settings = [setting for group in [*methods, sweep(AnnealedVAE, "c_max", (5.0, 25.0))] for setting in group]
    return list(grid(["toy"], settings, 2, steps=STEPS, batch=8, latents=3))


STEPS = 600
DRIVER = """
import sys
from pathlib import Path
from test_cluster_nodes import slow_study
from support.studies import small_settings
from unbraid.studies.cluster import run_cluster
from unbraid.studies.group_scores import GROUP_METRICS
settings = small_settings(Path(sys.argv[1]), checkpoint_seconds=1.0, group_metrics=GROUP_METRICS)
run_cluster(slow_study(), settings, sys.argv[2], sys.argv[3] == "shared")
"""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """Two nodes and a head without cores. The temporary folders of the nodes are inside the test's folder."""
    with started_nodes(tmp_path, 2) as started:
        yield started


def driver(out: Path, address: str, mode: str = "own") -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(out), address, mode], env={**os.environ, "PYTHONPATH": path}
    )


@real
@pytest.mark.slow
def test_a_study_survives_killed_workers_nodes_and_drivers(tmp_path: Path, nodes: Nodes) -> None:
    """Two workers, two nodes and the driver are killed: each run exists once and equals that of one process."""
    out = tmp_path / "killed"
    run_study(slow_study(), small_settings(tmp_path / "whole", group_metrics=GROUP_METRICS), quiet=True)
    first = driver(out, nodes.address)
    try:
        nodes.kill_worker(0)
        nodes.kill_node(1)
        wait_for(lambda: find_runs(out))
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
    assert_same_studies(tmp_path / "whole", out)
    assert not (out / ".arriving").exists()
    assert not [path for path in (tmp_path / "node").glob("*/*") if path.is_dir()]


@real
@pytest.mark.slow
def test_a_study_in_a_shared_folder_survives_killed_workers_and_nodes(tmp_path: Path, nodes: Nodes) -> None:
    out = tmp_path / "killed"
    run_study(slow_study(), small_settings(tmp_path / "whole", group_metrics=GROUP_METRICS), quiet=True)
    child = driver(out, nodes.address, "shared")
    try:
        nodes.kill_worker(0)
        nodes.kill_node(1)
        assert child.wait(timeout=240) == 0
    finally:
        child.kill()
        child.wait()
    assert_same_studies(tmp_path / "whole", out)


@real
@pytest.mark.slow
def test_errors_of_a_real_cluster_are_one_line(
    tmp_path: Path, nodes: Nodes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--data", "toy", "--only", "method=beta_vae", "--only", "level=0", "--seeds", "0", "--steps", "5"]
    line = ["study", "locatello2019", *flags, "--out", str(tmp_path / "s"), "--metrics", "mig", "--samples", "100"]
    assert main([*line, "--cluster", nodes.address, "--device", "cuda"]) == 2
    assert "None of the 3 nodes of the cluster has a GPU" in capsys.readouterr().err
    monkeypatch.setattr(cluster, "__version__", "9.9")
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
    """The ray:// address of a cluster that needs a token, and an environment with that token."""
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
        wait_for(listens)
        yield f"ray://127.0.0.1:{ports[1]}", environment
    finally:
        head.terminate()
        head.wait(timeout=60)
        shutil.rmtree(sockets, ignore_errors=True)


@real
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason='Ray has no client: pip install "ray[client]"')
def test_a_study_can_be_started_from_outside_the_cluster(tmp_path: Path, outside: tuple[str, dict[str, str]]) -> None:
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
    assert_same_studies(tmp_path / "near", tmp_path / "far")
    lacking = {**environment, "RAY_AUTH_MODE": "disabled"}
    done = subprocess.run([*line, str(tmp_path / "no"), "--cluster", address], env=lacking, capture_output=True)
    assert done.returncode == 2
    assert "RAY_AUTH_MODE=token" in done.stderr.decode()
    assert not find_runs(tmp_path / "no")
