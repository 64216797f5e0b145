"""Writing the log of a finished run for Weights & Biases or Trackio, without a network connection.

An offline run of wandb is a folder inside the folder of the run. Nothing is uploaded until the user calls
``wandb sync FOLDER``. Trackio has one folder for all projects (``TRACKIO_DIR``), which ``trackio show`` displays.
Nothing is uploaded until the user calls ``trackio sync``.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from unbraid.errors import warn_user
from unbraid.runs.folder import Log, RunFolder
from unbraid.runs.tensorboard import update_during_training

FOLDER = "wandb"
PROJECT = "unbraid"
REMOTE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")  # with one of these, Trackio sends the values to a server


def update_wandb(folder: RunFolder, log: Log) -> None:
    """Write the settings and the log of a run when it is finished. An error becomes a warning.

    Unlike an event file of TensorBoard, an offline run of wandb cannot be extended. Nothing is therefore written before
    the run is finished, or if the folder `wandb` already exists.
    """
    if not (folder.path / FOLDER).exists():
        write_if_finished(folder, log, write_wandb, "wandb")


def update_trackio(folder: RunFolder, log: Log) -> None:
    """Write the settings and the log of a run when it is finished. An error becomes a warning."""
    write_if_finished(folder, log, write_trackio, "Trackio")


UPDATES: dict[str, Callable[[RunFolder, Log], None]] = {
    "tensorboard": update_during_training,
    "wandb": update_wandb,
    "trackio": update_trackio,
}


def write_if_finished(folder: RunFolder, log: Log, write: Callable[[RunFolder, Log], object], title: str) -> None:
    """Call `write` if the training of a run has ended. An error becomes a warning, and training continues."""
    if folder.status not in ("done", "diverged"):
        return
    try:
        write(folder, log)
    except Exception as error:  # an error in the log must not stop the training
        name = folder.path.name
        warn_user(f"The {title} log of run {name} was not written: {error}")


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
        run.log(named_terms(record), step=int(record["step"]))
    run.finish()
    return folder.path / FOLDER


def write_trackio(folder: RunFolder, log: Log) -> None:
    """Write a run to the project `unbraid` in the folder of Trackio, in place of an earlier run with the same id.

    The run is written in a separate thread, because each thread has its own current run in Trackio. A run that the user
    has started with Trackio therefore stays open.
    """
    with ThreadPoolExecutor(1) as executor, contextlib.redirect_stdout(io.StringIO()):
        executor.submit(replace_trackio_run, folder, log).result()


def replace_trackio_run(folder: RunFolder, log: Log) -> None:
    """Write the log as a new run of Trackio, and delete earlier runs of the same name from the project."""
    import trackio

    with without_variables(REMOTE):
        run = trackio.init(
            project=PROJECT, name=folder.spec.id, group=folder.path.parent.name, config=folder.spec.flat(),
            embed=False, auto_log_gpu=False, auto_log_cpu=False,
        )  # fmt: skip
    for record in log:
        run.log(named_terms(record), step=int(record["step"]))
    trackio.finish()
    for stored in trackio.Api().runs(PROJECT):
        if stored.name == run.name and stored.id != run.id:
            stored.delete()


def named_terms(record: dict[str, float]) -> dict[str, float]:
    """Return the terms of a record of the log, with names such as ``train/kl``."""
    return {f"train/{name}": value for name, value in record.items() if name != "step"}


@contextlib.contextmanager
def without_variables(names: tuple[str, ...]) -> Iterator[None]:
    """Remove environment variables inside the block."""
    saved = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(saved)
