"""Event files for TensorBoard with the settings of a run and the logged values of its training terms."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path

from unbraid.errors import UserError, unknown_name_message, warn_user
from unbraid.runs.folder import Log, RunFolder
from unbraid.runs.run import Run
from unbraid.runs.spec import RunSpec
from unbraid.runtime.arguments import explain_unknown_arguments
from unbraid.runtime.files import make_folder, write_atomic

FOLDER = "tensorboard"
FILE = "events.out.tfevents.0.unbraid"  # TensorBoard opens files with "tfevents" in their name
KINDS = ("tensorboard", "wandb", "trackio")


def check_log(log: str | None, out: object) -> None:
    """Raise an error if a kind of log is unknown, its package is not installed, or the folder `out` is None."""
    if log is None:
        return
    if log not in KINDS:
        raise UserError(unknown_name_message("kind of log", log, KINDS))
    title = {"tensorboard": "TensorBoard", "trackio": "Trackio"}.get(log, log)
    if importlib.util.find_spec(log) is None:
        raise UserError(
            f"A log for {title} needs the package {log}, which is not installed. Install it with: "
            f'pip install "unbraid[{log}]"'
        )
    if out is None:
        raise UserError(
            f"A log for {title} needs runs that are stored in a folder. Got no folder. Pass one with out= or --out."
        )


@explain_unknown_arguments()
def write_tensorboard(run: Run | RunFolder | str | Path) -> Path:
    """Write the log and the settings of a run as an event file for TensorBoard.

    For a run whose training is not finished, the log of its last checkpoint is written.

    Args:
        run: A run that has a folder, or the path of its folder.

    Returns:
        The folder `tensorboard` inside the folder of the run. Pass it, or any folder above it, to
        ``tensorboard --logdir``.

    Raises:
        UserError: If the run has no folder, or the package tensorboard is not installed.
    """
    if isinstance(run, Run) and run.path is None:
        raise UserError(
            "Event files are written to the folder of a run. Got a run without a folder. Train it with out=."
        )
    folder = RunFolder.open(Path(run)) if isinstance(run, str | Path) else run
    if isinstance(folder, Run):
        folder = RunFolder(Path(str(folder.path)), folder.spec)
    check_log("tensorboard", folder.path)
    log = folder.read_checkpoint()[1] if folder.status == "partial" else folder.read_log()
    return update_event_file(folder, log)


def update_during_training(folder: RunFolder, log: Log) -> None:
    """Update the event file of a run during training. An error becomes a warning and does not stop the training."""
    try:
        update_event_file(folder, log)
    except Exception as error:  # an error in the log must not stop the training
        warn_user(f"The TensorBoard log of run {folder.path.name} was not written: {error}")


def update_event_file(folder: RunFolder, log: Log) -> Path:
    """Write a log to the event file of a run and return the folder of the file.

    If the new content begins with the content of the existing file, only the rest is appended, because TensorBoard
    keeps the file open and reads what is appended. Otherwise the run has been trained again, and the file is replaced.
    """
    path = folder.path / FOLDER / FILE
    make_folder(path.parent)
    content = event_records(folder.spec, log, (folder.path / "run.json").stat().st_mtime)
    present = path.read_bytes() if path.exists() else None
    if present is not None and content.startswith(present):
        with path.open("ab") as file:
            file.write(content[len(present) :])
    else:
        write_atomic(path, content)
    return path.parent


def event_records(spec: RunSpec, log: Log, start_time: float) -> bytes:
    """Return the content of an event file: one record of the settings, then one record per logged step.

    All records have the wall time `start_time` (seconds since the epoch), because logs contain no times.
    """
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    buffer = io.BytesIO()
    writer = RecordWriter(buffer)
    writer.write(Event(wall_time=start_time, file_version="brain.Event:2").SerializeToString())
    summary = Summary.FromString(hyperparameter_summary(spec, start_time))
    writer.write(Event(wall_time=start_time, summary=summary).SerializeToString(deterministic=True))
    for line in log:
        terms = [Summary.Value(tag=f"train/{name}", simple_value=value) for name, value in line.items()
                 if name != "step"]  # fmt: skip
        step = int(line["step"])
        writer.write(Event(wall_time=start_time, step=step, summary=Summary(value=terms)).SerializeToString())
    return buffer.getvalue()


def hyperparameter_summary(spec: RunSpec, start_time: float) -> bytes:
    """Return the settings of a run as a summary for TensorBoard's hyperparameter table.

    Equal settings give equal bytes.
    """
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb

    summary = hparams_pb(spec.flat(), trial_id=spec.id, start_time_secs=start_time)
    plugin = summary.value[0].metadata.plugin_data
    plugin.content = HParamsPluginData.FromString(plugin.content).SerializeToString(deterministic=True)
    content: bytes = summary.SerializeToString(deterministic=True)
    return content
