"""Where a command computes."""

from __future__ import annotations

import argparse

from unbraid.errors import UserError


def add_device(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """The flag."""
    parser.add_argument("--device", default="cpu", help="cpu or cuda [cpu]")


def check_device(device: str) -> None:
    """Refuse a device this machine does not have."""
    import torch

    if device != "cpu" and not (device.startswith("cuda") and torch.cuda.is_available()):
        raise UserError(f"The device must be cpu, or cuda where PyTorch finds a GPU. Got {device!r} instead.")
