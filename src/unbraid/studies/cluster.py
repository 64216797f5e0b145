"""Ray as a second way to spread a study: stacks are tasks on many machines, and one process writes what they return."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from unbraid.data.dataset import FactorData
from unbraid.data.loading import load_data
from unbraid.errors import UserError
from unbraid.nets.registry import name_net
from unbraid.runs.scores import add_scores
from unbraid.runs.spec import RunSpec
from unbraid.runtime.files import make_folder
from unbraid.runtime.locks import lock
from unbraid.runtime.progress import progress, silent
from unbraid.studies import runner as execute
from unbraid.studies.planned import Planned
from unbraid.studies.runner import Files, Order, Stackful, Tally, claimed, pack, prepared, unpack
from unbraid.version import __version__

AHEAD = 2  # stacks handed out for every one that the nodes can train at a time
RETRIES = 100  # deaths of workers and nodes that a stack outlives
POLL = 2.0  # seconds between looks at the nodes, and at stacks that other processes hold
KNOCK = 5.0  # seconds within which an address must answer
TOKEN = "If it asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to what `ray get-auth-token` says there."


def place(out: Path, name: str, files: Files) -> None:
    """Put a finished run where it belongs, whole or not at all; one that is there only gains scores."""
    target, arriving = out / name, out / ".arriving" / name
    with lock(out / ".arriving.lock"):
        if (target / "weights.safetensors").exists():
            lines = files.get("scores.jsonl", b"").splitlines()
            add_scores(target, [json.loads(line) for line in lines])
            return
        leaving = arriving.with_name(f"{name}.old")
        for leftover in (arriving, leaving):
            shutil.rmtree(leftover, ignore_errors=True)
        unpack(arriving, files)
        if target.exists():
            target.rename(leaving)  # a beginning, which what has arrived goes on from
        arriving.rename(target)
        shutil.rmtree(leaving, ignore_errors=True)
        with suppress(OSError):  # what a killed process left there waits for its run
            arriving.parent.rmdir()


@functools.cache
def opened(name: str, device: str) -> FactorData:
    """A dataset, opened once by every process that trains."""
    return load_data(name, device, quiet=True)


def train_stack(
    version: str, specs: list[dict[str, Any]], data: str, order: Order, scratch: str | None, begun: dict[str, Files]
) -> dict[str, Files]:
    """What a node does: train and score a stack in a folder of its own, and return the folders of its runs.

    A stack that died here before goes on from its last checkpoint. Without `scratch` it works in the shared folder of
    the order, and returns nothing.
    """
    here = socket.gethostname()
    if version != __version__:
        raise UserError(f"Every node must have unbraid {version}. Got {__version__} on {here}: install that one there.")
    if scratch is None and not (order.out / "study.json").exists():
        raise UserError(f"Every node must see {order.out}. {here} does not: leave out --cluster-shared.")
    torch.set_num_threads(1)
    wanted = [RunSpec.from_dict(spec) for spec in specs]
    builder = name_net(wanted[0].net)[1]
    stack = Stackful([Planned(0, spec, 0.0, 0) for spec in wanted], opened(data, order.device), builder)
    if scratch is None:
        work(stack, order)
        return {}
    with own_folder(scratch, begun) as folder:
        work(stack, dataclasses.replace(order, out=folder))
        return {spec.id: pack(folder / spec.id) for spec in wanted}


@contextmanager
def own_folder(name: str, begun: dict[str, Files]) -> Iterator[Path]:
    """A folder of this node that outlives its process, not its work; what was begun elsewhere is put there first."""
    root = Path(tempfile.gettempdir()) / f"unbraid-{os.getuid()}"
    make_folder(root)
    with lock(root / f"{name}.lock"):
        for run, files in begun.items():
            if not (root / name / run).exists():
                unpack(root / name / run, files)
        yield root / name
        shutil.rmtree(root / name)


def work(stack: Stackful, order: Order) -> None:
    """Train and score a stack in the order's folder, once no other process is at it."""
    with execute.Scoring(order) as scorer:
        while not execute.attempt(stack, order, Tally(silent, len(stack.runs)), scorer):
            time.sleep(POLL)


def survey(planned: list[Planned], order: Order) -> list[list[Planned]]:
    """The stacks of a study as the device of a node decides them."""
    return [stack.runs for stack in prepared(planned, order)]


@dataclass
class Fleet:
    """The nodes of a cluster, and the stacks that are with them."""

    ray: Any
    order: Order
    shared: bool
    tally: Tally
    away: dict[Any, tuple[Stackful, ExitStack]] = field(default_factory=dict)

    @property
    def needs(self) -> dict[str, float]:
        """What a stack takes of a node."""
        return {"CPU": self.order.jobs or 1, **({"GPU": 1} if self.order.device != "cpu" else {})}

    def nodes(self) -> list[dict[str, float]]:
        """What each node that is alive has."""
        return [node["Resources"] for node in self.ray.nodes() if node["Alive"]]

    def slots(self) -> int:
        """Stacks that the nodes can train at a time."""
        return sum(int(min(node.get(kind, 0) // count for kind, count in self.needs.items())) for node in self.nodes())

    def full(self) -> bool:
        """Whether enough is handed out."""
        return len(self.away) >= AHEAD * max(1, self.slots())

    def check(self) -> None:
        """Refuse a cluster that could never train a stack."""
        nodes = self.nodes()
        if "GPU" in self.needs and not any(node.get("GPU") for node in nodes):
            raise UserError(f"No node with a GPU among the {len(nodes)} of the cluster. Add one, or say --device cpu.")
        if not self.slots():
            raise UserError(
                f"No node of the cluster has the {self.needs['CPU']} cores of a stack. Say fewer: --jobs 1."
            )

    @functools.cached_property
    def calls(self) -> dict[str, Any]:
        """What nodes can be asked to do: again when a worker or node dies, not when it raises."""
        kept = {name: value for name, value in os.environ.items() if name == "UNBRAID_DATA"}
        remote = self.ray.remote(
            num_cpus=self.needs["CPU"], num_gpus=self.needs.get("GPU", 0), max_retries=RETRIES, retry_exceptions=False,
            runtime_env={"env_vars": {"OMP_NUM_THREADS": "1", **kept}},
        )  # fmt: skip
        return {"train": remote(train_stack).remote, "survey": remote(survey).remote}

    def answer(self, reference: Any) -> Any:
        """What a call returned; what it raised is raised here."""
        errors = self.ray.exceptions
        try:
            return self.ray.get(reference)
        except errors.RayTaskError as error:
            if isinstance(error.cause, UserError | ValueError | TypeError | OSError):
                raise error.cause from None
            raise
        except errors.RayError as error:
            raise UserError(f"A stack was lost for good: {error}. Give the same command again to go on.") from error

    def stacks(self, planned: Sequence[Planned]) -> Iterator[Stackful]:
        """The stacks of a study; a node with a GPU is asked for them where there is none here."""
        if self.order.device == "cpu" or torch.cuda.is_available():
            yield from prepared(planned, self.order)
            return
        for name, group in groupby(sorted(planned, key=lambda run: run.index), lambda run: run.spec.data):
            for runs in self.answer(self.calls["survey"](list(group), self.order)):
                yield Stackful(runs, opened(name, "cpu"), name_net(runs[0].spec.net)[1])

    def send(self, stack: Stackful) -> bool:
        """Hand out what is left of a stack, if anything; not if another process holds it."""
        order = self.order
        with ExitStack() as claim:
            if not (self.shared or claim.enter_context(claimed(order.out, stack))):
                return False
            missing = execute.left(stack, order)
            if not missing:
                self.tally.finish(stack)
                return True
            specs = [run.spec.to_dict() for run in (stack.runs if self.shared else missing)]
            folders = [] if self.shared else [order.out / run.spec.id for run in missing]
            begun = {folder.name: pack(folder) for folder in folders if folder.is_dir()}
            scratch = None if self.shared else hashlib.sha256(f"{order.out} {stack.name}".encode()).hexdigest()[:16]
            sent = self.calls["train"](__version__, specs, missing[0].spec.data, order, scratch, begun)
            self.away[sent] = stack, claim.pop_all()
        return True

    def receive(self) -> None:
        """Wait a little for a stack, and write what it brings."""
        done, _ = self.ray.wait(list(self.away), timeout=POLL)
        for reference in done:
            stack, claim = self.away.pop(reference)
            with claim:
                for name, files in self.answer(reference).items():
                    place(self.order.out, name, files)
            self.tally.finish(stack)
        self.tally.within(0, f"{len(self.nodes())} nodes alive")

    def train(self, planned: Sequence[Planned]) -> list[Planned]:
        """Every stack to the end, no more than a few handed out at a time; the runs as they were made."""
        known: list[Planned] = []
        elsewhere: list[Stackful] = []
        for stack in self.stacks(planned):
            known += stack.runs
            execute.keep_places(self.order, stack.runs)
            while self.full():
                self.receive()
            if not self.send(stack):
                elsewhere.append(stack)
        while self.away or elsewhere:
            self.receive() if self.away else time.sleep(POLL)
            elsewhere = [stack for stack in elsewhere if self.full() or not self.send(stack)]
        return known

    def recall(self) -> None:
        """Stop what is under way, if the study ends before it."""
        for reference, (_, claim) in self.away.items():
            self.ray.cancel(reference, force=True)
            claim.close()


def run_cluster(
    planned: Sequence[Planned], order: Order, address: str = "auto", shared: bool = False, quiet: bool = False
) -> Path:
    """The same as `run_study` on the nodes of a Ray cluster; only if the folder is `shared` do they write into it."""
    device = "cpu" if order.device == "cpu" else "cuda"  # Ray shows a task the GPU it is to use, and no other
    order = dataclasses.replace(order, out=order.out.resolve(), device=device, jobs=order.jobs or 1)
    make_folder(order.out)
    with connected(address) as ray, ExitStack() as stack:
        report = silent if quiet else stack.enter_context(progress("study", sum(run.spec.steps for run in planned)))
        fleet = Fleet(ray, order, shared, Tally(report, len(planned)))
        stack.callback(fleet.recall)
        fleet.check()
        known = fleet.train(planned)
    here = device if device == "cpu" or torch.cuda.is_available() else "cpu"
    return execute.finished(known, dataclasses.replace(order, device=here), quiet)


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray at an address, `auto` for the cluster of this machine or a new one; let go, and ended if it began here."""
    try:
        import ray
    except ImportError as error:
        raise UserError('--cluster needs Ray. Install it: pip install "unbraid[cluster]"') from error
    ours = not ray.is_initialized()
    try:
        if ours:
            join(ray, address)
        yield ray
    finally:
        if ours:
            ray.shutdown()


def join(ray: Any, address: str) -> None:
    """Connect to a cluster; `auto` starts one where none runs."""
    if address != "auto":
        check_address(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no word to anybody
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        ray.init(address=address, **options)
    except (OSError, RuntimeError, ValueError) as error:
        if address != "auto" or not isinstance(error, ConnectionError):
            hint = f". {TOKEN}" if address.startswith("ray://") else ""
            raise UserError(f"No Ray cluster could be joined at {address}: {error}{hint}") from error
        ray.init(address="local", include_dashboard=False, **options)


def check_address(address: str) -> None:
    """Refuse an address of another form, or one where nothing listens."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):
        raise UserError(f"--cluster must be auto, HOST:PORT or ray://HOST:PORT. Got {address!r} instead.")
    try:
        socket.create_connection((host, int(port)), KNOCK).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"No Ray cluster at {address}: {error}. Start one there: ray start --head") from error
