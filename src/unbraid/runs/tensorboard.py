"""Event files for TensorBoard, written from the log of a run: every training term over the steps, and the settings."""

from __future__ import annotations

import importlib.util
import io
import warnings
from pathlib import Path

from unbraid.errors import UserError, unknown_name_message
from unbraid.runs.folder import Log, RunFolder
from unbraid.runs.run import Run
from unbraid.runs.spec import RunSpec
from unbraid.runtime.files import make_folder, write_atomic

FOLDER = "tensorboard"
FILE = "events.out.tfevents.0.unbraid"  # TensorBoard opens files with "tfevents" in their name
KINDS = ("tensorboard",)


def check_log(log: str | None, out: object) -> None:
    """Check before training that a kind of log is known, installed, and has a folder `out` to be written to."""
    if log is None:
        return
    if log not in KINDS:
        raise UserError(unknown_name_message("kind of log", log, KINDS))
    if importlib.util.find_spec("tensorboard") is None:
        raise UserError(
            "A log for TensorBoard needs the package tensorboard, which is not installed. Install it: "
            'pip install "unbraid[tensorboard]"'
        )
    if out is None:
        raise UserError("A log for TensorBoard is written into the folder of the run. Give a folder (out=, --out).")


def write_tensorboard(run: Run | RunFolder | str | Path) -> Path:
    """Write the log and the settings of a run as an event file for TensorBoard.

    The log of a run in training is that of its last checkpoint.

    Args:
        run: A run that was trained with a folder, or the path of its folder.

    Returns:
        The folder `tensorboard` inside the folder of the run. Pass it, or any folder above it, to
        ``tensorboard --logdir``.

    Raises:
        UserError: If the run has no folder, or the package tensorboard is not installed.
    """
    if isinstance(run, Run) and run.path is None:
        raise UserError("Event files are written into the folder of a run. This run has no folder. Train it with out=.")
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
        warnings.warn(f"no log for TensorBoard of {folder.path.name}: {error}", RuntimeWarning, stacklevel=2)


def update_event_file(folder: RunFolder, log: Log) -> Path:
    """Write the event file of a log and return its folder.

    A log only grows. If the file is a prefix of the new content, the rest is appended, so that TensorBoard, which keeps
    the file open, shows it. Otherwise (the run was trained again) the file is replaced.
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


def event_records(spec: RunSpec, log: Log, begun: float) -> bytes:
    """The content of an event file: a record of the settings, then one record per line of the log.

    All records have the wall time `begun` (seconds since the epoch), because logs contain no times.
    """
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    buffer = io.BytesIO()
    writer = RecordWriter(buffer)
    writer.write(Event(wall_time=begun, file_version="brain.Event:2").SerializeToString())
    summary = Summary.FromString(hyperparameter_summary(spec, begun))
    writer.write(Event(wall_time=begun, summary=summary).SerializeToString(deterministic=True))
    for line in log:
        terms = [Summary.Value(tag=f"train/{name}", simple_value=value) for name, value in line.items()
                 if name != "step"]  # fmt: skip
        step = int(line["step"])
        writer.write(Event(wall_time=begun, step=step, summary=Summary(value=terms)).SerializeToString())
    return buffer.getvalue()


def hyperparameter_summary(spec: RunSpec, begun: float) -> bytes:
    """The settings of a run as a summary for the hyperparameter table of TensorBoard, always as the same bytes."""
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb

    summary = hparams_pb(spec.flat(), trial_id=spec.id, start_time_secs=begun)
    plugin = summary.value[0].metadata.plugin_data
    plugin.content = HParamsPluginData.FromString(plugin.content).SerializeToString(deterministic=True)
    content: bytes = summary.SerializeToString(deterministic=True)
    return content
