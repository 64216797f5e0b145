"""Part "cluster": a study on a Ray cluster whose workers, nodes and drivers are killed at random moments.

In the end the driver runs without a disturbance. Its runs must equal those of the same study on one machine.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from faults.jobs import STUDY, find_differences, read_results
from faults.judging import find_fault
from faults.parts import Outcome, Part
from faults.processes import run
from support.ray_nodes import started_nodes

LINE = ("study", "study.toml", "--out", "runs", "--samples", "100", "--quiet", "--metrics", "mig", "--jobs", "1")
NODES = 2
TARGETS = ("worker", "worker", "node", "driver")
SLOW_STUDY = STUDY.replace("steps = 30", "steps = 600")  # long enough to be hit
LONGEST = 1800.0  # seconds that a driver may take on a busy machine


@dataclass(frozen=True)
class Kill:
    """What is killed: the workers of a node, a node or the driver, some seconds after a worker trains."""

    target: str
    index: int
    seconds: float

    def __str__(self) -> str:
        return f"kill {self.target} {self.index} after {self.seconds:.1f} s"


@dataclass(frozen=True)
class ClusterCase:
    """Kills, one after the other, and whether the nodes write to a shared folder."""

    kills: tuple[Kill, ...]
    shared: bool

    def __str__(self) -> str:
        shared = " --cluster-shared" * self.shared
        return f"unbraid {' '.join(LINE)} --cluster HOST:PORT{shared}: {'; '.join(map(str, self.kills))}"


class Cluster(Part):
    """Part "cluster" of the campaign."""

    name = "cluster"
    weight = 0.05
    unit = "kills"

    def reason_to_skip(self) -> str:
        """Return that Ray is missing, or an empty text."""
        return "" if importlib.util.find_spec("ray") else 'Ray is not installed: pip install "unbraid[cluster]"'

    def prepare(self, folder: Path) -> None:
        """Start a cluster, and run the study on this machine."""
        self.folder, self.contexts = folder / "case", ExitStack()
        (folder / "whole").mkdir()
        (folder / "whole" / "study.toml").write_text(SLOW_STUDY)
        process = run(LINE, folder / "whole")
        assert process.status == 0, process.output
        self.expected = read_results(folder / "whole")
        self.nodes = self.contexts.enter_context(started_nodes(folder, NODES))

    def make_case(self, random: Random) -> ClusterCase:
        """Generate one to three kills within the first seconds."""
        kills = [
            Kill(random.choice(TARGETS), random.randrange(NODES), random.uniform(0, 3))
            for _ in range(random.choice([1, 2, 3]))
        ]
        return ClusterCase(tuple(kills), random.random() < 0.3)

    def start_driver(self, case: ClusterCase) -> subprocess.Popen[bytes]:
        """Start the study on the cluster."""
        line = [*LINE, "--cluster", self.nodes.address, *["--cluster-shared"] * case.shared]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with (self.folder / "errors").open("ab") as errors:
            command = [sys.executable, "-m", "unbraid", *line]
            return subprocess.Popen(command, cwd=self.folder, stdout=errors, stderr=errors, env=environment)

    def run(self, case: ClusterCase) -> Outcome:
        """Run a case."""
        self.folder.mkdir()
        (self.folder / "study.toml").write_text(SLOW_STUDY)
        driver = self.start_driver(case)
        done = 0
        try:
            for kill in case.kills:
                self.wait_for_worker(driver)
                time.sleep(kill.seconds)
                done += self.kill(kill, driver)
                if kill.target == "driver":
                    driver.wait()
                    driver = self.start_driver(case)
            status = driver.wait(LONGEST)
            if status == 2:  # the study was stopped by a lost stack, and says that it can be repeated
                status = self.start_driver(case).wait(LONGEST)
            output = (self.folder / "errors").read_text(errors="replace")
            (self.folder / "errors").unlink()
            fault = find_fault(("study",), status, output) if status != 2 else "status 2 of the repeated study"
            return Outcome(fault or find_differences(self.expected, self.folder), output, done)
        finally:
            driver.kill()
            driver.wait()
            shutil.rmtree(self.folder)

    def wait_for_worker(self, driver: subprocess.Popen[bytes]) -> None:
        """Wait until a worker trains or the study has ended."""
        while driver.poll() is None and not any(self.nodes.workers(node) for node in self.nodes.nodes):
            time.sleep(0.1)

    def kill(self, kill: Kill, driver: subprocess.Popen[bytes]) -> bool:
        """Kill a process. Return whether there was one."""
        if driver.poll() is not None:
            return False
        if kill.target == "driver":
            driver.kill()
            return True
        node = self.nodes.nodes[kill.index]
        if kill.target == "node":
            os.kill(self.nodes.raylet(node), signal.SIGKILL)
            self.nodes.cluster.remove_node(node, allow_graceful=False)
            self.nodes.nodes[kill.index] = self.nodes.add()
            return True
        workers = self.nodes.workers(node)
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        return bool(workers)

    def simpler(self, case: ClusterCase) -> Iterator[ClusterCase]:
        """Generate cases with one kill less."""
        if len(case.kills) > 1:
            yield from (replace(case, kills=case.kills[:i] + case.kills[i + 1 :]) for i in range(len(case.kills)))

    def close(self) -> None:
        """Stop the cluster."""
        self.contexts.close()
