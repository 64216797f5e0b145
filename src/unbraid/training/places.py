"""Where the processes that divide a batch compute, and how torch.distributed connects them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from unbraid.accel.devices import use_threads
from unbraid.errors import UserError

INTERFACE = "GLOO_SOCKET_IFNAME"  # the variable that names the interface on which gloo listens


@dataclass(frozen=True)
class Place:
    """Where one process computes its part.

    Attributes:
        index: The index of the part, and the rank of the process.
        count: The number of parts.
        device: The device of the process.
        backend: The backend of torch.distributed.
        store: The file with which the processes find each other.
        threads: The number of CPU threads of the process.
    """

    index: int
    count: int
    device: str
    backend: str
    store: Path
    threads: int

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Connect this process with the others inside this context. The first sum makes all connections."""
        on_device = nullcontext() if self.device == "cpu" else torch.cuda.device(self.device)
        with use_threads(self.threads), on_device:
            store = dist.FileStore(str(self.store), self.count)  # type: ignore[attr-defined]
            with loopback_only():
                dist.init_process_group(self.backend, store=store, rank=self.index, world_size=self.count)
            try:
                dist.all_reduce(torch.zeros(1, device=self.device))
                yield
            finally:
                dist.destroy_process_group()


@contextmanager
def loopback_only() -> Iterator[None]:
    """Let gloo listen on the loopback interface inside this context, so that other machines cannot connect.

    If the user has set GLOO_SOCKET_IFNAME, it is not changed.
    """
    names = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    if not names or INTERFACE in os.environ:
        yield
        return
    os.environ[INTERFACE] = names[0]
    try:
        yield
    finally:
        del os.environ[INTERFACE]


def check_distributed() -> None:
    """Raise an error unless this process can connect with others by torch.distributed."""
    if not dist.is_available():
        raise UserError("Several devices need torch.distributed, which this build of PyTorch lacks. Use one device.")
    if dist.is_initialized():
        raise UserError(
            "Several devices need torch.distributed, which this process already uses. Train in a process of its own, "
            "which is not started by torchrun and does not call init_process_group."
        )


def places(devices: Sequence[str], store: Path) -> list[Place]:
    """Return the place of each process. NCCL needs a different GPU for each process, so otherwise gloo is used."""
    different = len(set(devices)) == len(devices)
    backend = "nccl" if "cpu" not in devices and different and dist.is_nccl_available() else "gloo"
    threads = max(1, torch.get_num_threads() // len(devices))
    return [Place(i, len(devices), device, backend, store, threads) for i, device in enumerate(devices)]
