"""Datasets by name, with progress."""

from __future__ import annotations

from contextlib import ExitStack

import torch

from unbraid.data import load
from unbraid.data.dataset import FactorData
from unbraid.runtime.progress import progress


def load_data(data: str | FactorData, device: str | torch.device = "cpu", quiet: bool = False) -> FactorData:
    """A dataset by name, with progress if making it takes a while."""
    if not isinstance(data, str):
        return data.to(device)
    with ExitStack() as stack:
        report = None if quiet else stack.enter_context(progress(f"preparing {data}", 100))
        return load(data, device=device, progress=report and (lambda part: report(100 * part)))
