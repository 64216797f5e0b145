"""Running a study on a Ray cluster. Nodes train stacks, and the driver process writes the runs that they return.

A Ray task is what one process would claim on a single machine (`study_tasks`): one stack, or on a GPU several small
stacks that train at the same time. A task returns each run as a separate Ray object, so that the driver never has more
than one run in memory.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from unbraid.errors import UserError
from unbraid.nets.registry import resolve_net
from unbraid.runs.spec import RunSpec
from unbraid.runtime.files import make_folder, resolve_path
from unbraid.runtime.progress import progress
from unbraid.studies.cluster_node import cached_data, read_run_files, stacks_on_node, store_run, train_stack_in_parts
from unbraid.studies.local import POLL_SECONDS, StudyProgress, finish_study, write_study_file
from unbraid.studies.planned import PlannedRun, runs_by_dataset
from unbraid.studies.run_scores import unfinished_runs
from unbraid.studies.settings import StudySettings
from unbraid.studies.stacks import StudyStack, claim_stack, study_tasks
from unbraid.version import __version__

STACKS_PER_SLOT = 2  # number of stacks to submit for each stack that the nodes can train at the same time
RETRIES = 100  # maximum number of times that a stack is restarted because its worker or node died
CONNECT_SECONDS = 5.0  # time within which the address of a cluster must accept a connection
TOKEN_HINT = (
    "If the cluster needs a token, set RAY_AUTH_MODE=token, and set RAY_AUTH_TOKEN to the output of "
    "`ray get-auth-token` on the cluster."
)


@dataclass(frozen=True)
class SubmittedStack:
    """A stack that was submitted to the cluster.

    Attributes:
        stack: The stack.
        claim: The context that holds the claim of the stack. Closing the context releases the claim.
        runs: Maps the id of each unfinished run to the Ray reference of its files. Empty if nodes write the runs.
    """

    stack: StudyStack
    claim: ExitStack
    runs: dict[str, Any]


@dataclass
class ClusterStudy:
    """A study on a Ray cluster.

    Attributes:
        ray: The module `ray`.
        settings: How to train and score.
        shared: Whether the nodes write to the output folder themselves. If so, tasks return no runs.
        progress: Shows the progress of the study.
        submitted: Maps the first Ray reference of each unfinished task to the stack that was submitted.
    """

    ray: Any
    settings: StudySettings
    shared: bool
    progress: StudyProgress
    submitted: dict[Any, SubmittedStack] = field(default_factory=dict)

    @property
    def stack_resources(self) -> dict[str, float]:
        """The numbers of cores and GPUs that a stack needs."""
        return {"CPU": self.settings.jobs or 1, **({"GPU": 1} if self.settings.device != "cpu" else {})}

    def node_resources(self) -> list[dict[str, float]]:
        """Return the resources of each node that is alive."""
        return [node["Resources"] for node in self.ray.nodes() if node["Alive"]]

    def slots(self) -> int:
        """Return the number of stacks that the nodes can train at the same time."""
        needs = self.stack_resources.items()
        return sum(int(min(node.get(kind, 0) // count for kind, count in needs)) for node in self.node_resources())

    def is_full(self) -> bool:
        """Return whether enough stacks are submitted to keep all nodes busy."""
        return len(self.submitted) >= STACKS_PER_SLOT * max(1, self.slots())

    def check_resources(self) -> None:
        """Raise an error if no node of the cluster could ever train a stack."""
        nodes, needs = self.node_resources(), self.stack_resources
        if "GPU" in needs and not any(node.get("GPU") for node in nodes):
            raise UserError(
                f"None of the {len(nodes)} nodes of the cluster has a GPU. Add a node with a GPU, or use --device cpu."
            )
        if not self.slots():
            raise UserError(
                f"No node of the cluster has the {needs['CPU']} cores that a stack needs. Use fewer, such as --jobs 1."
            )

    @functools.cached_property
    def remote_functions(self) -> dict[str, Any]:
        """The functions that nodes run. Ray calls them again if a worker or node dies, but not after an exception."""
        environment = {name: value for name, value in os.environ.items() if name == "UNBRAID_DATA"}
        needs = self.stack_resources
        remote = self.ray.remote(
            num_cpus=needs["CPU"], num_gpus=needs.get("GPU", 0), max_retries=RETRIES, retry_exceptions=False,
            runtime_env={"env_vars": {"OMP_NUM_THREADS": "1", **environment}},
        )  # fmt: skip
        return {"train": remote(train_stack_in_parts), "stacks": remote(stacks_on_node)}

    def result(self, reference: Any) -> Any:
        """Return the result of a remote call. If the call raised an exception, raise it here."""
        errors = self.ray.exceptions
        try:
            return self.ray.get(reference)
        except errors.RayTaskError as error:
            if isinstance(error.cause, UserError | ValueError | TypeError | OSError):
                raise error.cause from None
            raise
        except errors.RayError as error:
            raise UserError(
                f"The training of a stack was lost: {error}. Run the same command again to resume the study."
            ) from error

    def stacks_by_dataset(self, planned: Sequence[PlannedRun]) -> Iterator[list[StudyStack]]:
        """Yield the stacks of each dataset of a study, as on a single machine (see `study_tasks`).

        The sizes of the stacks depend on the GPU. If only the nodes have a GPU, a node chooses the sizes.
        """
        on_node = self.settings.device != "cpu" and not torch.cuda.is_available()
        for name, group in runs_by_dataset(planned):
            runs = list(group)
            if not on_node:
                yield list(study_tasks(runs, self.settings))
                continue
            parts = self.result(self.remote_functions["stacks"].remote(runs, self.settings))
            data = cached_data(name, "cpu")
            yield [StudyStack(part, data, resolve_net(part[0].spec.net)[1]) for part in parts]

    def submit(self, stack: StudyStack) -> bool:
        """Submit the unfinished runs of a stack. Return False if another process has claimed the stack."""
        settings = self.settings
        with ExitStack() as claim:
            if not (self.shared or claim.enter_context(claim_stack(settings.out, stack))):
                return False
            unfinished = {run.spec.id: run.spec for run in unfinished_runs(stack, settings)}
            if not unfinished:
                self.progress.finish_stack(stack)
                return True
            first, *others = self.start_task(stack, unfinished)
            runs = {} if self.shared else dict(zip(unfinished, [first, *others], strict=True))
            self.submitted[first] = SubmittedStack(stack, claim.pop_all(), runs)
        return True

    def start_task(self, stack: StudyStack, unfinished: dict[str, RunSpec]) -> list[Any]:
        """Start the training of a stack on a node. Return the Ray reference of each unfinished run.

        If the nodes write to the output folder themselves, there is only one reference, and its result is empty.
        """
        settings, train = self.settings, self.remote_functions["train"]
        if self.shared:
            specs = [run.spec.to_dict() for run in stack.runs]
            return [train.remote(__version__, specs, stack.runs[0].spec.data, settings, None, {})]
        specs = [spec.to_dict() for spec in unfinished.values()]
        folders = [settings.out / name for name in unfinished]
        started = {folder.name: read_run_files(folder) for folder in folders if folder.is_dir()}
        scratch = hashlib.sha256(f"{settings.out} {stack.name}".encode()).hexdigest()[:16]
        call = (__version__, specs, specs[0]["data"], settings, scratch, started)
        references = train.options(num_returns=len(specs)).remote(*call)
        return references if len(specs) > 1 else [references]

    def collect(self) -> None:
        """Wait a short time for submitted stacks to finish, and write the runs that they return."""
        done, _ = self.ray.wait(list(self.submitted), timeout=POLL_SECONDS)
        for reference in done:
            task = self.submitted.pop(reference)
            with task.claim:
                self.result(reference) if self.shared else self.store_runs(task.runs)
            self.progress.finish_stack(task.stack)
        self.progress.update(0, f"{len(self.node_resources())} nodes alive")

    def store_runs(self, references: dict[str, Any]) -> None:
        """Write the runs of a finished task one after another, and remove the reference of each written run."""
        for name in list(references):
            store_run(self.settings.out, name, self.result(references[name]))
            del references[name]

    def train(self, planned: Sequence[PlannedRun]) -> list[PlannedRun]:
        """Train all stacks, and return the planned runs with the specs that were used for training."""
        trained: list[PlannedRun] = []
        claimed_by_others: list[StudyStack] = []
        for stacks in self.stacks_by_dataset(planned):
            runs = [run for stack in stacks for run in stack.runs]
            trained += runs
            write_study_file(self.settings, runs)
            for stack in stacks:
                while self.is_full():
                    self.collect()
                if not self.submit(stack):
                    claimed_by_others.append(stack)
        while self.submitted or claimed_by_others:
            self.collect() if self.submitted else time.sleep(POLL_SECONDS)
            claimed_by_others = [stack for stack in claimed_by_others if self.is_full() or not self.submit(stack)]
        return trained

    def cancel(self) -> None:
        """Stop all submitted stacks. This is called when the study ends early, for example after an error."""
        for reference, task in self.submitted.items():
            self.ray.cancel(reference, force=True)
            task.claim.close()


def run_cluster(
    planned: Sequence[PlannedRun],
    settings: StudySettings,
    address: str = "auto",
    shared: bool = False,
    quiet: bool = False,
) -> Path:
    """Run a study as `run_study` does, but on the nodes of a Ray cluster. Return the path of the results table.

    Args:
        planned: The runs of the study.
        settings: How to train and score.
        address: "HOST:PORT", "ray://HOST:PORT", or "auto" for the cluster of this machine, which is started if there is
            none.
        shared: Whether all nodes can access the output folder and write to it. Otherwise they return their runs.
        quiet: If True, do not show progress.
    """
    device = (
        "cpu" if settings.device == "cpu" else "cuda"
    )  # no index, because Ray makes only the GPU of the task visible
    settings = dataclasses.replace(settings, out=resolve_path(settings.out), device=device, jobs=settings.jobs or 1)
    make_folder(settings.out)
    with ray_session(address) as ray, ExitStack() as contexts:
        steps = sum(run.spec.steps for run in planned)
        report = contexts.enter_context(progress("study", steps, quiet))
        study = ClusterStudy(ray, settings, shared, StudyProgress(report, len(planned)))
        contexts.callback(study.cancel)
        study.check_resources()
        trained = study.train(planned)
    local_device = device if device == "cpu" or torch.cuda.is_available() else "cpu"
    return finish_study(trained, dataclasses.replace(settings, device=local_device), quiet)


@contextmanager
def ray_session(address: str) -> Iterator[Any]:
    """Connect to Ray at an address and disconnect afterwards. An existing connection is used and stays open."""
    try:
        import ray
    except ImportError as error:
        raise UserError('--cluster needs Ray. Install it with: pip install "unbraid[cluster]"') from error
    new = not ray.is_initialized()
    try:
        if new:
            connect(ray, address)
        yield ray
    finally:
        if new:
            ray.shutdown()


def connect(ray: Any, address: str) -> None:
    """Connect to a cluster. If the address is "auto" and no cluster is found, start one on this machine."""
    if address != "auto":
        check_address(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # by default, Ray sends usage statistics to its developers
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        ray.init(address=address, **options)
    except (OSError, RuntimeError, ValueError) as error:
        if address != "auto" or not isinstance(error, ConnectionError):
            hint = f". {TOKEN_HINT}" if address.startswith("ray://") else ""
            raise UserError(f"Could not connect to a Ray cluster at {address}: {error}{hint}") from error
        ray.init(address="local", include_dashboard=False, **options)


def check_address(address: str) -> None:
    """Raise an error if an address is not of the form HOST:PORT or ray://HOST:PORT, or does not respond."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):
        raise UserError(f"--cluster must be auto, HOST:PORT or ray://HOST:PORT. Got {address!r} instead.")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"No Ray cluster at {address}: {error}. Start one there with: ray start --head") from error
