"""Checking that a device exists."""

from __future__ import annotations

from unbraid.errors import UserError


def check_device(device: str) -> None:
    """Raise a `UserError` unless `device` is "cpu", or "cuda" (or "cuda:N") and PyTorch finds a GPU."""
    import torch

    if device != "cpu" and not (device.startswith("cuda") and torch.cuda.is_available()):
        raise UserError(f"The device must be cpu, or cuda if PyTorch finds a GPU. Got {device!r} instead.")
