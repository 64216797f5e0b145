"""Load a dataset by name and show the progress."""

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
    """Return a dataset on `device`, and load it first if `data` is a name.

    Progress is shown if loading takes more than two seconds.

    Args:
        data: A dataset, or a name or path that `unbraid.data.load` accepts.
        device: Device on which to store the examples.
        quiet: Whether to hide the progress.
        root: Folder of the published files; see `unbraid.data.load`.

    Returns:
        The dataset.

    Raises:
        UserError: If the dataset cannot be loaded.
    """
    if not isinstance(data, str):
        return data.to(device)
    with ExitStack() as stack:
        show_percent = None if quiet else stack.enter_context(progress(f"preparing {data}", 100))
        show_fraction = None if show_percent is None else (lambda fraction: show_percent(100 * fraction))
        return load(data, device=device, progress=show_fraction, root=root)
