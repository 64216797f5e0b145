"""The cost of the driver of a study on a Ray cluster: all 12,600 specs of locatello2019, with one step each.

The study runs twice: nodes return their runs to the driver, which writes them, or nodes write to a shared folder. The
nodes are several Ray nodes of one core each on this machine. While the study runs, nodes are killed and others join.
The networks, the methods, the batches and the image size are those of the study. The seven datasets are replaced by
seven random subsets of `sprites`, because the published files are not needed to measure the driver, and runs are not
scored. Both make the share of the driver larger than in a real study, in which nodes train 300,000 steps per run. To
save disk space, this program empties the file of weights of a run a minute after it was written.

The driver is a process of its own. Its processor time and its peak memory are those of the operating system. The
processor time of the nodes is read from /proc twice per second, so that of a killed process is slightly too small.
Run: python benchmarks/bench_cluster.py --full, and again with --shared
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from machine import describe
from unbraid.runs.results import load_results
from unbraid.runtime.files import write_atomic
from unbraid.studies.cluster import run_cluster
from unbraid.studies.planned import PlannedRun
from unbraid.studies.runner import select_runs
from unbraid.studies.settings import StudySettings

RESULT = Path(__file__).parent / "results" / "bench_cluster.json"
DATA = [f"sprites?subset=1000&seed={seed}" for seed in range(7)]
SAMPLE_SECONDS = 0.5  # between two readings of the processes
EMPTY_AFTER_SECONDS = 60.0  # a file of weights is emptied this long after it was written
TICKS = os.sysconf("SC_CLK_TCK")


def planned_runs(seeds: int) -> list[PlannedRun]:
    """Return the runs of the study with one step each and the first `seeds` of its 50 seeds."""
    return select_runs("locatello2019", None, range(seeds), 1, None, 1.0, DATA, None)


def run_driver(out: Path, address: str, seeds: int, shared: bool) -> None:
    """Run the study, and write what it cost this process to `driver.json`."""
    started = time.perf_counter()
    planned = planned_runs(seeds)
    settings = StudySettings(out, scored=False, group_metrics=(), jobs=1)
    run_cluster(planned, settings, address, shared, quiet=True)
    used = resource.getrusage(resource.RUSAGE_SELF)
    cost = {
        "runs": len(planned), "wall_seconds": time.perf_counter() - started,
        "cpu_seconds": used.ru_utime + used.ru_stime, "peak_bytes": used.ru_maxrss * 1024,
    }  # fmt: skip
    (out / "driver.json").write_text(json.dumps(cost))


class Nodes:
    """Ray nodes of one core each on this machine, and the processor time of all their processes."""

    def __init__(self, count: int) -> None:
        from ray.cluster_utils import Cluster

        small: dict[str, Any] = {"object_store_memory": 1 << 30, "include_dashboard": False}
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
        self.nodes = [self.add() for _ in range(count)]
        self.joined, self.lost = count, 0
        self.seconds: dict[tuple[int, int], tuple[str, float]] = {}

    def add(self) -> Any:
        """Start a node."""
        return self.cluster.add_node(num_cpus=1, object_store_memory=1 << 30)

    def replace_one(self) -> None:
        """Kill the oldest node with all its workers, and start another."""
        node = self.nodes.pop(0)
        os.kill(int(node.all_processes["raylet"][0].process.pid), signal.SIGKILL)
        self.cluster.remove_node(node, allow_graceful=False)
        self.nodes.append(self.add())
        self.joined, self.lost = self.joined + 1, self.lost + 1

    def sample(self) -> None:
        """Read the processor time of all processes of Ray."""
        for pid, started, title, seconds in processes():
            if title.startswith("ray::"):
                self.seconds[pid, started] = ("workers", seconds)
            elif "raylet" in title or "gcs_server" in title:
                self.seconds[pid, started] = ("ray", seconds)

    def cpu_seconds(self) -> dict[str, float]:
        """Return the processor time of the workers and of Ray's own processes."""
        total: Counter[str] = Counter()
        for kind, seconds in self.seconds.values():
            total[kind] += seconds  # type: ignore[assignment]
        return dict(total)


def processes() -> Iterator[tuple[int, int, str, float]]:
    """Yield the id, the start, the title and the processor seconds of all processes of this user."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            title = (folder / "cmdline").read_text().replace("\0", " ")
            yield int(folder.name), int(fields[19]), title, (int(fields[11]) + int(fields[12])) / TICKS


def empty_weights(out: Path, done: dict[str, int]) -> None:
    """Empty files of weights that the driver wrote some seconds ago. Count how often each file was written."""
    before = time.time() - EMPTY_AFTER_SECONDS
    for file in out.glob("*/weights.safetensors"):
        facts = file.stat()
        if facts.st_size and facts.st_mtime < before:
            done[file.parent.name] = done.get(file.parent.name, 0) + 1
            os.truncate(file, 0)


def measure(seeds: int, nodes: int, losses: int, minutes: float, shared: bool) -> dict[str, Any]:
    """Run the study on nodes that join and leave. Return the cost of the driver and of the nodes."""
    folder = Path(tempfile.mkdtemp(prefix="b"))
    (folder / "node").mkdir()
    os.environ |= {
        "RAY_TMPDIR": str(folder), "TMPDIR": str(folder / "node"), "OMP_NUM_THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0", "RAY_health_check_period_ms": "500",
    }  # fmt: skip
    out, written = folder / "out", dict[str, int]()
    started = Nodes(nodes)
    command = [sys.executable, __file__, "--driver", str(out), str(started.cluster.address), "--seeds", str(seeds)]
    command += ["--shared"] * shared
    driver = subprocess.Popen(command)
    try:
        pause, next_loss = 60 * minutes / (losses + 1), time.monotonic() + 60 * minutes / (losses + 1)
        while driver.poll() is None:
            started.sample()
            empty_weights(out, written)
            if started.lost < losses and time.monotonic() > next_loss:
                started.replace_one()
                next_loss = time.monotonic() + pause
                print(f"{len(written)} runs written, {started.lost} nodes lost", flush=True)
            time.sleep(SAMPLE_SECONDS)
        if driver.returncode:
            raise SystemExit(f"the driver ended with status {driver.returncode}")
        cost = json.loads((out / "driver.json").read_text())
        table = load_results(out)
        ids = {run.spec.id for run in planned_runs(seeds)}
        return summary(cost, started, {"rows": len(table), "different": table["run"].nunique(), "planned": len(ids)})
    finally:
        driver.kill()
        import ray

        ray.shutdown()
        started.cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def summary(cost: dict[str, Any], nodes: Nodes, rows: dict[str, int]) -> dict[str, Any]:
    """Return the result of the benchmark."""
    used = nodes.cpu_seconds()
    total = cost["cpu_seconds"] + sum(used.values())
    return {
        **cost, "worker_cpu_seconds": used["workers"], "ray_cpu_seconds": used["ray"],
        "share_of_cpu": cost["cpu_seconds"] / total, "share_of_wall": cost["cpu_seconds"] / cost["wall_seconds"],
        "seconds_per_run": cost["cpu_seconds"] / cost["runs"], "nodes_joined": nodes.joined, "nodes_lost": nodes.lost,
        "table": rows, "every_run_once": rows["rows"] == rows["different"] == rows["planned"] == cost["runs"],
    }  # fmt: skip


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="all 50 seeds, which are 12,600 runs")
    parser.add_argument("--seeds", type=int, default=2, help="seeds without --full")
    parser.add_argument("--shared", action="store_true", help="let the nodes write to a shared folder")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--losses", type=int, default=2, help="number of nodes that are killed and replaced")
    parser.add_argument("--minutes", type=float, default=1.0, help="time within which nodes are killed")
    parser.add_argument("--driver", nargs=2, metavar=("OUT", "ADDRESS"), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    seeds = 50 if options.full else options.seeds
    if options.driver:
        run_driver(Path(options.driver[0]), options.driver[1], seeds, options.shared)
        return
    how = "shared" if options.shared else "returned"
    found = measure(seeds, options.nodes, options.losses, options.minutes, options.shared)
    print(json.dumps(found, indent=1))
    before = json.loads(options.out.read_text()) if options.out.exists() else {}
    result = {**before, how: {**describe(), "nodes": options.nodes, **found}}
    write_atomic(options.out, (json.dumps(result, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
