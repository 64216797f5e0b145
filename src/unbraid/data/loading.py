"""Load a dataset by name, with a progress display."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import torch

from unbraid.data import load
from unbraid.data.dataset import FactorData
from unbraid.runtime.progress import progress


def load_data(
    data: str | FactorData,
    device: str | torch.device = "cpu",
    quiet: bool = False,
    root: str | Path | None = None,
) -> FactorData:
    """Return the dataset on `device`; load it if `data` is a name, with progress if that takes more than two seconds.

    Args:
        data: A dataset, or a name or path as `unbraid.data.load` takes it.
        device: Device on which to store the examples.
        quiet: Whether to show no progress.
        root: Folder of the published files; see `unbraid.data.load`.

    Returns:
        The dataset.

    Raises:
        UserError: If the dataset cannot be loaded.
    """
    if not isinstance(data, str):
        return data.to(device)
    with ExitStack() as stack:
        report = None if quiet else stack.enter_context(progress(f"preparing {data}", 100))
        return load(data, device=device, progress=report and (lambda part: report(100 * part)), root=root)
