"""Event files for TensorBoard, made from a run's own log: every term over the steps, and the settings of the run."""

from __future__ import annotations

import importlib.util
import io
import warnings
from pathlib import Path

from unbraid.errors import UserError, unknown
from unbraid.runtime.files import make_folder, write_atomic
from unbraid.runs.run import Run
from unbraid.runs.spec import RunSpec
from unbraid.runs.folder import Log, RunDir

FOLDER = "tensorboard"
FILE = "events.out.tfevents.0.unbraid"  # TensorBoard opens what has "tfevents" in its name
KINDS = ("tensorboard",)


def check_log(log: str | None, out: object) -> None:
    """Refuse a kind of log that is unknown, not installed, or has no folder to go to, before anything is trained."""
    if log is None:
        return
    if log not in KINDS:
        raise UserError(unknown("kind of log", log, KINDS))
    if importlib.util.find_spec("tensorboard") is None:
        raise UserError(
            "A log for TensorBoard needs the package tensorboard, which is not installed here. Install it: "
            'pip install "unbraid[tensorboard]"'
        )
    if out is None:
        raise UserError("A log for TensorBoard lies beside the run: give a folder for the runs (out=, --out).")


def write_tensorboard(run: Run | RunDir | str | Path) -> Path:
    """Write `tensorboard/` beside a run from its stored log, that of its last checkpoint if it is under way.

    Returns that folder: ``tensorboard --logdir`` takes it, or any folder above it.
    """
    if isinstance(run, Run) and run.path is None:
        raise UserError("A run that was trained without a folder has no place for event files. Train it with out=.")
    folder = RunDir.open(Path(run)) if isinstance(run, str | Path) else run
    if isinstance(folder, Run):
        folder = RunDir(Path(str(folder.path)), folder.spec)
    check_log("tensorboard", folder.path)
    log = folder.read_checkpoint()[1] if folder.status == "partial" else folder.read_log()
    return update(folder, log)


def follow(folder: RunDir, log: Log) -> None:
    """Bring a run's event file up to date while it trains; what goes wrong is told and stops nothing."""
    try:
        update(folder, log)
    except Exception as error:  # training must not end because of a picture of it
        warnings.warn(f"no log for TensorBoard of {folder.path.name}: {error}", RuntimeWarning, stacklevel=2)


def update(folder: RunDir, log: Log) -> Path:
    """Make the event file hold this log.

    A log only grows, so the file's bytes are the beginning of the new ones and the rest is appended: TensorBoard, which
    holds the file open, sees it. Where they are not (another try of the run), the file is replaced.
    """
    path = folder.path / FOLDER / FILE
    make_folder(path.parent)
    content = events(folder.spec, log, (folder.path / "run.json").stat().st_mtime)
    there = path.read_bytes() if path.exists() else None
    if there is not None and content.startswith(there):
        with path.open("ab") as file:
            file.write(content[len(there) :])
    else:
        write_atomic(path, content)
    return path.parent


def events(spec: RunSpec, log: Log, begun: float) -> bytes:
    """Records of the settings, then of every line of the log; all carry the time `begun`, for logs have none."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    buffer = io.BytesIO()
    writer = RecordWriter(buffer)
    writer.write(Event(wall_time=begun, file_version="brain.Event:2").SerializeToString())
    summary = Summary.FromString(settings(spec, begun))
    writer.write(Event(wall_time=begun, summary=summary).SerializeToString(deterministic=True))
    for line in log:
        terms = [Summary.Value(tag=f"train/{name}", simple_value=value) for name, value in line.items()
                 if name != "step"]  # fmt: skip
        step = int(line["step"])
        writer.write(Event(wall_time=begun, step=step, summary=Summary(value=terms)).SerializeToString())
    return buffer.getvalue()


def settings(spec: RunSpec, begun: float) -> bytes:
    """A run's settings as the summary that TensorBoard's table of hyperparameters reads, the same bytes every time."""
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb

    values = spec.to_dict()
    method = values.pop("method")
    flat = {"method": method.pop("name"), **method, **values}
    summary = hparams_pb(flat, trial_id=spec.id, start_time_secs=begun)
    plugin = summary.value[0].metadata.plugin_data
    plugin.content = HParamsPluginData.FromString(plugin.content).SerializeToString(deterministic=True)
    found: bytes = summary.SerializeToString(deterministic=True)
    return found
