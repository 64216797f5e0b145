"""Checking that a device exists, and computing with one CPU thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from unbraid.errors import UserError, warn_user


def check_device(device: str) -> None:
    """Accept "cpu", and also "cuda", "cuda:N" or "mps" if PyTorch finds such a GPU. Otherwise raise a `UserError`.

    A warning says that "mps" is untested.
    """
    import torch

    if device == "cpu":
        return
    kind, _, number = device.partition(":")
    if kind == "cuda" and torch.cuda.is_available():
        if number and not (number.isdecimal() and int(number) < torch.cuda.device_count()):
            count = torch.cuda.device_count()
            raise UserError(f"The device must be one of cuda:0 to cuda:{count - 1}. Got {device!r} instead.")
        return
    if device == "mps" and torch.backends.mps.is_available():
        warn_user(
            "The device mps uses ordinary PyTorch operations in fp32, and unbraid has not been tested on it. Compare a "
            "short run with the device cpu."
        )
        return
    raise UserError(f"The device must be cpu, or cuda or mps if PyTorch finds such a GPU. Got {device!r} instead.")


@contextmanager
def one_thread() -> Iterator[None]:
    """Run PyTorch operations on one CPU thread. For short operations, waiting for other threads takes longer."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
