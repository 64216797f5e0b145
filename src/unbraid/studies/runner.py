"""The public functions that run a study or estimate its cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from unbraid.accel.devices import check_device
from unbraid.errors import UserError
from unbraid.metrics.protocol import Protocol
from unbraid.runs.only import Only
from unbraid.runs.spec import RunSpec
from unbraid.runtime.arguments import explain_unknown_arguments
from unbraid.studies.checking import trainable_runs
from unbraid.studies.cluster import run_cluster
from unbraid.studies.devices import train_on_devices
from unbraid.studies.estimate import Estimate, estimate_study
from unbraid.studies.local import run_study
from unbraid.studies.planned import PlannedRun
from unbraid.studies.published import STUDIES
from unbraid.studies.reduction import Reduction, select_shard
from unbraid.studies.settings import StudySettings, split_metrics
from unbraid.studies.study_files import find_study, plan_runs

StudySource = str | Path | Iterable[RunSpec | PlannedRun]
"""The name of a study in `STUDIES`, the path of a study file (.py, .toml or .json), or a list of runs."""


@explain_unknown_arguments()
def study(
    source: StudySource,
    out: str | Path,
    *,
    only: Only = None,
    seeds: Sequence[int] | None = None,
    steps: int | None = None,
    learning_rate: float | None = None,
    scale: float = 1.0,
    data: str | Sequence[str] | None = None,
    shard: tuple[int, int] | None = None,
    metrics: Iterable[str] | None = None,
    samples: int = 10_000,
    draws: str | None = None,
    jobs: int | None = None,
    precision: str | None = None,
    likelihood: str | None = None,
    device: str = "cpu",
    devices: Sequence[str] | None = None,
    cluster: str | None = None,
    cluster_shared: bool = False,
    quiet: bool = False,
) -> Path:
    """Train and score all runs of a study and write its results table.

    The same call resumes a study that was interrupted, and does not repeat finished runs. Several processes or machines
    can work in the same output folder, each on different runs. All runs are checked before the first is trained. A
    run is left out with a warning if its dataset cannot be loaded, or if it cannot be trained on this dataset.

    Args:
        source: The name of a study in `unbraid.studies.STUDIES`, the path of a study file (.py, .toml or .json), or a
            list of `RunSpec` or `PlannedRun`.
        out: The folder for the runs and `results.sqlite`.
        only: Which runs to select by their properties: data, method, level (the index of the strength in the sweep of
            its method, from 0), a hyperparameter and so on. Pass a mapping such as ``{"method": "beta_vae", "level":
            [0, 5]}``, or a text such as "method=beta_vae,level=0,5".
        seeds: The seeds to select. None selects all seeds.
        steps: Number of training steps of all runs. Schedules of methods are rescaled. None keeps the study's number.
        learning_rate: Learning rate of all runs. None keeps the study's value.
        scale: Fraction of the work to do, above 0 and at most 1. The numbers of seeds and of steps are both multiplied
            by its square root, but at least 2 seeds and 100 steps remain.
        data: One or more datasets that replace the study's datasets, in order. Datasets of the study that are not
            replaced are dropped.
        shard: ``(i, n)`` runs only part i of n, with i from 1 to n.
        metrics: Metrics to compute. A name may have options, as in "mig?bins=10". None computes
            `unbraid.studies.settings.STUDY_METRICS`. An empty list computes no metrics.
        samples: Number of training rows of the metrics. There are half as many test rows.
        draws: How metrics sample rows. "disjoint" never uses a row for both training and testing, and "reference"
            samples with replacement, as the authors' code for `locatello2019` does. None means "reference" for
            the studies in `unbraid.studies.STUDIES` and "disjoint" for all others.
        jobs: Number of processes that compute metrics. None uses all cores. On a cluster, this is the number of cores
            of each task that scores runs, and None means 1.
        precision: "fp32", "tf32" or "bf16". None chooses the fastest on the device.
        likelihood: Likelihood of all runs: "bernoulli", "gaussian" (variance 1) or "normal" (variance 0.1). None keeps
            the study's value.
        device: "cpu" or "cuda".
        devices: Several devices of this machine, such as ``["cuda:0", "cuda:1"]``. One process per device trains and
            scores a part of the runs. None uses `device` only.
        cluster: Address of a Ray cluster on which to run: "HOST:PORT", "ray://HOST:PORT", or "auto" for the cluster of
            this machine, which is started if there is none. None uses no cluster.
        cluster_shared: Whether all nodes of the cluster can access `out` and write to it. Otherwise they send their
            runs back.
        quiet: If True, do not show progress.

    Returns:
        The path of the results table, `out`/results.sqlite. `unbraid.runs.results.load_results` reads it.

    Raises:
        UserError: If an argument is invalid, no run matches the selection, or no run can be trained.

    >>> import tempfile
    >>> import unbraid as ub
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = study(
    ...         "locatello2019", folder, data="toy", only={"method": "beta_vae", "level": "0"}, seeds=[0, 1], steps=5,
    ...         metrics=["mig"], samples=100, quiet=True,
    ...     )
    ...     path.name, len(ub.load_runs(folder))
    ('results.sqlite', 2)
    """
    if cluster_shared and cluster is None:
        raise UserError(
            "cluster_shared needs a cluster. Add --cluster auto (cluster='auto'), or the address of a cluster."
        )
    if devices is not None:
        device = check_devices(devices, cluster)
    if cluster is None or not device.startswith("cuda"):  # on a cluster, only the nodes need a GPU
        check_device(device)
    names = None if metrics is None else list(metrics)
    run_metrics, group_metrics = split_metrics(names)
    selected = select_runs(source, only, seeds, steps, learning_rate, scale, data, shard)
    published = isinstance(source, str) and source in STUDIES
    draws = draws or ("reference" if published else "disjoint")
    protocol = Protocol(train=samples, test=max(1, samples // 2), draws=draws)
    settings = StudySettings(
        Path(out), device, precision, run_metrics, protocol, jobs, scored=names != [], group_metrics=group_metrics,
        likelihood=likelihood,
    )  # fmt: skip
    runs = trainable_runs(selected, settings)
    if cluster is not None:
        return run_cluster(runs, settings, cluster, cluster_shared, quiet)
    if devices is not None:
        train_on_devices(runs, settings, devices, quiet)
    return run_study(runs, settings, quiet)


def check_devices(devices: Sequence[str], cluster: str | None) -> str:
    """Return the first of several devices. Raise a UserError if there is no device, or if a cluster is given too."""
    if isinstance(devices, str) or not devices:
        raise UserError(f"`devices` must be a list such as ['cuda:0', 'cuda:1']. Got {devices!r} instead.")
    if cluster is not None:
        raise UserError("`devices` and a cluster cannot be used together. Got both. Leave out one of them.")
    return devices[0]


def plan_study(
    source: StudySource,
    *,
    only: Only = None,
    seeds: Sequence[int] | None = None,
    steps: int | None = None,
    learning_rate: float | None = None,
    scale: float = 1.0,
    data: str | Sequence[str] | None = None,
    shard: tuple[int, int] | None = None,
    precision: str | None = None,
    likelihood: str | None = None,
    device: str = "cpu",
) -> list[Estimate]:
    """Estimate the stacks, memory and training time of a study.

    For each combination of dataset, method and number of steps, one stack is trained for two seconds. On a GPU, small
    stacks that train at the same time are measured together. Nothing is written. The arguments are those of `study`.

    Returns:
        One estimate for each combination of dataset, method and number of steps.
    """
    check_device(device)
    selected = select_runs(source, only, seeds, steps, learning_rate, scale, data, shard)
    settings = StudySettings(Path(), device, precision, likelihood=likelihood)
    return estimate_study(trainable_runs(selected, settings), settings)


def select_runs(
    source: StudySource,
    only: Only,
    seeds: Sequence[int] | None,
    steps: int | None,
    learning_rate: float | None,
    scale: float,
    data: str | Sequence[str] | None,
    shard: tuple[int, int] | None,
) -> list[PlannedRun]:
    """Return the selected runs of a study with the requested changes. The arguments are those of `study`."""
    runs = Reduction(only, seeds, steps, scale, data, learning_rate).apply(planned_runs(source))
    return runs if shard is None else select_shard(runs, *shard)


def planned_runs(source: StudySource) -> list[PlannedRun]:
    """Return all runs of a study with their indices."""
    if isinstance(source, str | Path):
        return list(find_study(str(source))())
    runs = plan_runs(list(source))
    if not runs:
        raise UserError("A study must have at least one run. Got an empty list instead.")
    return runs
