"""The functions that the nodes of a Ray cluster run for a study, and the transfer of run folders between machines."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch

from unbraid.data.dataset import FactorData
from unbraid.data.loading import load_data
from unbraid.errors import UserError
from unbraid.nets.registry import resolve_net
from unbraid.runs.folder import RunFolder
from unbraid.runs.scores import Record, add_scores, read_scores
from unbraid.runs.spec import RunSpec
from unbraid.runtime.files import make_folder, write_atomic
from unbraid.runtime.locks import lock
from unbraid.runtime.progress import ignore_progress
from unbraid.studies.group_scores import GroupScoring
from unbraid.studies.local import POLL_SECONDS, StudyProgress, try_train_stack
from unbraid.studies.planned import PlannedRun
from unbraid.studies.run_scores import BackgroundScoring
from unbraid.studies.settings import StudySettings
from unbraid.studies.stacks import StudyStack, study_tasks
from unbraid.version import __version__

WEIGHTS, CHECKPOINT, SCORES = "weights.safetensors", "checkpoint.safetensors", "scores.jsonl"
RunFiles = dict[str, bytes]
"""The contents of the files in the folder of a run, by file name."""


def read_run_files(folder: Path) -> RunFiles:
    """Read the files in the folder of a run, except hidden files and subfolders."""
    files = (path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith("."))
    return {path.name: path.read_bytes() for path in files}


def write_run_files(folder: Path, files: RunFiles) -> None:
    """Write files to the folder of a run, each atomically."""
    make_folder(folder)
    for name, content in files.items():
        write_atomic(folder / name, content)


def store_run(out: Path, name: str, files: RunFiles) -> None:
    """Write a finished run to the folder `out`. If the run is already finished there, only add its scores.

    A run folder that exists is never removed. If the process is killed, the run in `out` is either finished or as
    before, that is, absent or partly trained.
    """
    target, arriving = out / name, out / ".arriving" / name
    with lock(out / ".arriving.lock"):
        if (target / WEIGHTS).exists():
            lines = files.get(SCORES, b"").splitlines()
            add_scores(target, [json.loads(line) for line in lines])
        elif target.exists():
            finish_partial_run(target, files)
        else:
            shutil.rmtree(arriving, ignore_errors=True)
            write_run_files(arriving, files)
            arriving.rename(target)
        shutil.rmtree(arriving, ignore_errors=True)  # left by a process that was killed
        with suppress(OSError):  # not empty if the transfer of another run was killed
            arriving.parent.rmdir()


def finish_partial_run(folder: Path, files: RunFiles) -> None:
    """Replace the files of a partly trained run by those of the finished run.

    A run is finished when its weights exist, so they are written after all other files. The checkpoint is deleted last.
    """
    write_run_files(folder, {name: content for name, content in files.items() if name != WEIGHTS})
    for name in read_run_files(folder).keys() - files.keys() - {CHECKPOINT}:
        (folder / name).unlink()
    write_run_files(folder, {WEIGHTS: files[WEIGHTS]})
    (folder / CHECKPOINT).unlink(missing_ok=True)


@functools.cache
def cached_data(name: str, device: str) -> FactorData:
    """Load a dataset once per process."""
    return load_data(name, device, quiet=True)


def train_stack(
    version: str,
    specs: list[dict[str, Any]],
    data: str,
    settings: StudySettings,
    scratch: str | None,
    started: dict[str, RunFiles],
) -> dict[str, RunFiles]:
    """Train and score a stack on this node.

    A stack that was interrupted on this node resumes from its last checkpoint.

    Args:
        version: The version of unbraid on the driver, the machine that started the study. The node must have the same
            version.
        specs: The specs of the runs as dictionaries.
        data: The name of the dataset.
        settings: How to train and score.
        scratch: The name of a temporary folder on this node, or None to write to the shared folder `settings.out`.
        started: The files of runs that are partly trained or lack scores, by the id of the run.

    Returns:
        The files of all runs of the stack by the id of the run, or an empty dictionary if `scratch` is None.
    """
    check_node(version, settings, scratch)
    run_specs = [RunSpec.from_dict(spec, trust=True) for spec in specs]  # trusted: they come from the user's own study
    builder = resolve_net(run_specs[0].net)[1]
    runs = [PlannedRun(0, spec, 0.0, 0) for spec in run_specs]
    stack = StudyStack(runs, cached_data(data, settings.device), builder)
    if scratch is None:
        train_and_score(stack, settings)
        return {}
    with scratch_folder(scratch, started) as folder:
        train_and_score(stack, dataclasses.replace(settings, out=folder))
        return {spec.id: read_run_files(folder / spec.id) for spec in run_specs}


def score_stack(*arguments: Any) -> dict[str, RunFiles]:
    """Score trained runs on the cores of this node. The arguments are those of `train_stack`.

    Returns:
        The file of scores of each run by the id of the run, or an empty dictionary if nodes write to a shared folder.
    """
    runs = train_stack(*arguments)  # finished runs are only scored
    return {name: {SCORES: files[SCORES]} for name, files in runs.items() if SCORES in files}


def score_group(
    version: str, names: list[str], data: str, settings: StudySettings, scratch: str | None, runs: dict[str, RunFiles]
) -> dict[str, list[Record]]:
    """Compute the scores of a group of runs that differ in the seed only. The arguments are those of `train_stack`.

    Returns:
        The new scores of each run by the id of the run, or an empty dictionary if `scratch` is None.
    """
    check_node(version, settings, scratch)
    with nullcontext(settings.out) if scratch is None else scratch_folder(scratch, runs) as folder:
        scoring = GroupScoring(folder, settings.group_metrics, settings.protocol, settings.device)
        loaded = cached_data(data, settings.device)
        group = [RunFolder.open(folder / name) for name in names]
        scoring.score_group(group, loaded, scoring.sample(loaded))
        if scratch is None:
            return {}
        found = {run.path.name: read_scores(run.path) for run in group}
    return {
        name: [record for record in records if record["metric"] in settings.group_metrics]
        for name, records in found.items()
    }


def check_node(version: str, settings: StudySettings, scratch: str | None) -> None:
    """Raise an error if this node has another version or cannot access a shared folder. Let torch use one thread."""
    host = socket.gethostname()
    if version != __version__:
        raise UserError(
            f"Every node must have unbraid {version}. Got {__version__} on {host} instead. Install {version} there."
        )
    if scratch is None and not (settings.out / "study.json").exists():
        raise UserError(f"Every node must have access to {settings.out}. {host} does not. Remove --cluster-shared.")
    torch.set_num_threads(1)


def train_stack_in_parts(*arguments: Any) -> list[RunFiles] | RunFiles:
    """Train and score a stack as `train_stack` does, and return the files of each run as a separate object.

    For several objects, Ray expects a list. For one object, it expects the object itself. If `train_stack` returns no
    files, the result is an empty dictionary.
    """
    runs = list(train_stack(*arguments).values())
    return runs if len(runs) > 1 else runs[0] if runs else {}


@contextmanager
def scratch_folder(name: str, started: dict[str, RunFiles]) -> Iterator[Path]:
    """Provide a temporary folder on this node that contains the runs in `started`.

    The folder is deleted when the work is done. If the process is killed, the folder remains, and the next call resumes
    the training from it.
    """
    root = Path(tempfile.gettempdir()) / f"unbraid-{os.getuid()}"
    make_folder(root)
    with lock(root / f"{name}.lock"):
        for run, files in started.items():
            if not (root / name / run).exists():
                write_run_files(root / name / run, files)
        yield root / name
        shutil.rmtree(root / name)


def train_and_score(stack: StudyStack, settings: StudySettings) -> None:
    """Train and score a stack in the folder `settings.out`. If another process has claimed it, wait."""
    with BackgroundScoring(settings) as scoring:
        while not try_train_stack(stack, settings, StudyProgress(ignore_progress, len(stack.runs)), scoring):
            time.sleep(POLL_SECONDS)


def stacks_on_node(planned: list[PlannedRun], settings: StudySettings) -> list[list[PlannedRun]]:
    """Return the runs of each task of a study. The sizes of the stacks fit the device of this node."""
    return [task.runs for task in study_tasks(planned, settings)]
