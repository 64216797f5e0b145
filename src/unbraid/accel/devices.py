"""Checking that a device exists."""

from __future__ import annotations

from unbraid.errors import UserError


def check_device(device: str) -> None:
    """Accept "cpu", and also "cuda" or "cuda:N" if PyTorch finds a GPU. Otherwise raise a `UserError`."""
    import torch

    if device != "cpu" and not (device.startswith("cuda") and torch.cuda.is_available()):
        raise UserError(f"The device must be cpu, or cuda if PyTorch finds a GPU. Got {device!r} instead.")
