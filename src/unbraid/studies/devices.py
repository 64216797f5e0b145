"""Training a study on several devices of one machine, with one process per device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from unbraid.accel.devices import check_device
from unbraid.errors import UserError
from unbraid.runtime.progress import progress
from unbraid.runtime.workers import worker_pool
from unbraid.scoring.tasks import available_cores
from unbraid.studies.local import run_study
from unbraid.studies.planned import PlannedRun
from unbraid.studies.reduction import select_shard
from unbraid.studies.settings import StudySettings
from unbraid.training.schedule import group_by_stack_key


def train_on_devices(
    runs: Sequence[PlannedRun], settings: StudySettings, devices: Sequence[str], quiet: bool = False
) -> None:
    """Train the runs of a study on several devices, with one process per device.

    Each process trains and scores a part of the runs and writes them to the folder of the study. A process scores on
    its share of the cores, on a GPU while the next runs are trained. Metrics of groups of runs are not computed,
    because the runs of a group may be trained by different processes.

    Args:
        runs: The runs.
        settings: The settings of the study. Their `device` is not used.
        devices: The devices, such as ["cuda:0", "cuda:1"]. A device that is listed twice gets two processes.
        quiet: Whether to hide the progress.

    Raises:
        UserError: If a device does not exist, or if a process ends before its runs are trained.
    """
    from joblib import delayed
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    for device in devices:
        check_device(device)
    parts = split_runs(runs, len(devices))
    jobs = settings.jobs or available_cores()
    own = replace(settings, jobs=max(1, jobs // len(parts)), group_metrics=())
    tasks = [
        delayed(run_study)(part, replace(own, device=device), True)
        for part, device in zip(parts, devices, strict=False)
    ]
    try:
        with (
            progress(f"training on {len(tasks)} devices", len(tasks), quiet) as report,
            worker_pool(len(tasks)) as pool,
        ):
            for done, _ in enumerate(pool(tasks), 1):
                report(done)
    except TerminatedWorkerError as error:
        raise UserError(
            "A process that trains on one of the devices was killed, perhaps because memory ran out. Run the same "
            "command again to resume, with fewer devices if it happens again."
        ) from error


def split_runs(runs: Sequence[PlannedRun], parts: int) -> list[list[PlannedRun]]:
    """Divide runs into at most `parts` parts.

    If there are at least `parts` stacks, whole stacks are distributed over the parts. Otherwise stacks are divided, and
    the numbers of runs of the parts differ by at most 1.
    """
    stacks = len(group_by_stack_key(runs, lambda run: run.spec))
    if stacks >= parts:
        return [select_shard(runs, part, parts) for part in range(1, parts + 1)]
    return [list(part) for i in range(parts) if (part := runs[i::parts])]
