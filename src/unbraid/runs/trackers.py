"""Writing the log of a finished run for Weights & Biases, in offline mode.

An offline run is a folder of files. Nothing is uploaded until the user calls ``wandb sync FOLDER``.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from unbraid.runs.folder import Log, RunFolder

FOLDER = "wandb"
PROJECT = "unbraid"


def update_wandb(folder: RunFolder, log: Log) -> None:
    """Write the settings and the log of a run when it is finished. An error becomes a warning.

    Unlike an event file of TensorBoard, an offline run cannot be extended, so nothing is written before the run is
    finished.
    """
    if folder.status not in ("done", "diverged") or (folder.path / FOLDER).exists():
        return
    try:
        write_wandb(folder, log)
    except Exception as error:  # an error in the log must not stop the training
        warnings.warn(f"The wandb log of run {folder.path.name} was not written: {error}", RuntimeWarning, stacklevel=2)


def write_wandb(folder: RunFolder, log: Log) -> Path:
    """Write an offline run to the folder `wandb` inside the folder of a run, and return the path of that folder."""
    import wandb

    settings: Any = wandb.Settings(
        silent=True, console="off", disable_git=True, disable_code=True, save_code=False, x_disable_stats=True
    )
    run = wandb.init(
        mode="offline", dir=folder.path, project=PROJECT, id=folder.spec.id, name=folder.spec.id,
        config=folder.spec.flat(), settings=settings, reinit="finish_previous",
    )  # fmt: skip
    for record in log:
        terms = {f"train/{name}": value for name, value in record.items() if name != "step"}
        run.log(terms, step=int(record["step"]))
    run.finish()
    return folder.path / FOLDER
