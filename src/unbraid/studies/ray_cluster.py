"""Connecting to a Ray cluster, and the tasks that its nodes can run."""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from unbraid.errors import UserError
from unbraid.studies.cluster_node import score_group, score_stack, stacks_on_node, train_stack_in_parts
from unbraid.studies.settings import StudySettings

RETRIES = 100  # maximum number of times that a stack is restarted because its worker or node died
CONNECT_SECONDS = 5.0  # time within which the address of a cluster must accept a connection
TOKEN_HINT = (
    "If the cluster needs a token, set RAY_AUTH_MODE=token, and set RAY_AUTH_TOKEN to the output of "
    "`ray get-auth-token` on the cluster."
)


@dataclass(frozen=True)
class RayCluster:
    """The nodes of a Ray cluster and the functions that they run for a study.

    Attributes:
        ray: The module `ray`, which is connected to the cluster.
        settings: How to train and score.
    """

    ray: Any
    settings: StudySettings

    @property
    def scores_separately(self) -> bool:
        """Whether runs are scored in tasks of their own, without a GPU."""
        return self.settings.scored and self.settings.device != "cpu"

    @property
    def stack_resources(self) -> dict[str, float]:
        """The numbers of cores and GPUs that the training of a stack needs.

        With a GPU, no core is reserved. Otherwise the GPU would wait while all cores score.
        """
        return {"CPU": self.settings.jobs or 1} if self.settings.device == "cpu" else {"GPU": 1}

    def resources(self) -> list[dict[str, float]]:
        """Return the resources of each node that is alive."""
        return [node["Resources"] for node in self.ray.nodes() if node["Alive"]]

    def slots(self) -> int:
        """Return the number of stacks that the nodes can train at the same time."""
        needs = self.stack_resources.items()
        return sum(int(min(node.get(kind, 0) // count for kind, count in needs)) for node in self.resources())

    def cores(self) -> int:
        """Return the number of cores of all nodes."""
        return int(sum(node.get("CPU", 0) for node in self.resources()))

    def check_resources(self) -> None:
        """Raise an error if no node of the cluster could ever train a stack, or score its runs."""
        nodes, cores = self.resources(), self.settings.jobs or 1
        if self.settings.device != "cpu" and not any(node.get("GPU") for node in nodes):
            raise UserError(
                f"None of the {len(nodes)} nodes of the cluster has a GPU. Add a node with a GPU, or use --device cpu."
            )
        if not any(node.get("CPU", 0) >= cores for node in nodes):
            raise UserError(
                f"No node of the cluster has the {cores} cores that a stack needs. Use fewer, such as --jobs 1."
            )

    @functools.cached_property
    def remote_functions(self) -> dict[str, Any]:
        """The functions that nodes run. Ray calls them again if a worker or node dies, but not after an exception."""
        training, cores = self.stack_resources, self.settings.jobs or 1
        train = self.remote(training.get("CPU", 0), training.get("GPU", 0))
        return {
            "train": train(train_stack_in_parts),
            "stacks": train(stacks_on_node),
            "score": self.remote(cores)(score_stack),
            "group": self.remote(1)(score_group),
        }

    def remote(self, cores: float, gpus: float = 0) -> Any:
        """Return Ray's decorator of functions that need these numbers of cores and GPUs."""
        environment = {name: value for name, value in os.environ.items() if name == "UNBRAID_DATA"}
        return self.ray.remote(
            num_cpus=cores, num_gpus=gpus, max_retries=RETRIES, retry_exceptions=False,
            runtime_env={"env_vars": {"OMP_NUM_THREADS": "1", **environment}},
        )  # fmt: skip

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
            raise UserError(f"A task was lost: {error}. Run the same command again to resume the study.") from error


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
