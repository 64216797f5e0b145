"""Score trained runs. Examples are encoded once per run, and metrics are computed from the codes on all cores."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from unbraid.data.dataset import FactorData
from unbraid.data.loading import load_data
from unbraid.errors import UserError
from unbraid.metrics import METRICS
from unbraid.metrics.protocol import Protocol, resolve_metric_names
from unbraid.runs.run import Run
from unbraid.runs.scores import read_protocol
from unbraid.runtime.progress import ignore_progress, progress
from unbraid.scoring.run_scorer import ExampleTable, RunScorer, share_encoding_queue
from unbraid.scoring.tasks import ProgressCounter, ScoringTask, available_cores, run_tasks


def score(
    runs: Run | Sequence[Run],
    metrics: Iterable[str] | None = None,
    *,
    data: str | FactorData | None = None,
    codes: Iterable[str] | None = None,
    protocol: Protocol | None = None,
    jobs: int | None = None,
    quiet: bool = False,
) -> list[dict[str, Any]]:
    """Compute the scores of trained runs.

    If a run has a folder, its scores are stored there in `scores.jsonl`, together with their estimator, sample sizes,
    seed and library versions. Stored scores are not computed again.

    Args:
        runs: One run or several runs.
        metrics: Names of metrics. By default all metrics. A metric that cannot be computed for the data raises an error
            if it is named here, and is left out with a warning otherwise.
        data: The dataset to encode with all runs. By default each run encodes its own dataset.
        codes: Kinds of codes to score (see `Method.code_kinds`). By default all kinds of each method.
        protocol: Defines which examples the metrics use. By default each run uses the protocol of the study that it
            belongs to. If it belongs to no study, metrics are fitted and tested on disjoint samples.
        jobs: Number of processes that compute metrics. By default one per core. The processes are started only if
            there is enough work.
        quiet: Whether to hide the progress bar.

    Returns:
        One flat dictionary per run with `run` (id), `label`, all settings, and the scores. Scores of the first kind of
        codes, which is the posterior mean for most methods, are called ``metric.key``. Scores of other kinds have the
        kind as a suffix, such as ``metric.key.sampled``. ``protocol`` is a digest that is equal for scores that can be
        compared. ``train_rows``, ``test_rows`` and ``draws`` say which rows the metrics used.

    Raises:
        UserError: If a metric or a kind of codes is unknown, a run has diverged, or a metric in `metrics` cannot be
            computed.

    >>> import unbraid as ub
    >>> (run,) = ub.train(ub.methods.VAE(), data="toy", steps=5, quiet=True)
    >>> [row] = ub.score(run, ["mig"], quiet=True)
    >>> 0 <= row["mig.discrete_mig"] <= 1
    True
    """
    runs = [runs] if isinstance(runs, Run) else list(runs)
    names = resolve_metric_names(metrics)
    kinds = {run.id: _code_kinds(run, codes) for run in runs}
    datasets = load_datasets(runs, data, quiet)
    if metrics is None and not any(dataset.names for dataset in datasets.values()):
        names = [name for name in names if "factors" not in inspect.signature(METRICS[name]).parameters]
    scorers = _make_scorers(runs, datasets, protocol)
    tasks = [
        ScoringTask(scorer, kind, missing)
        for scorer in scorers
        for kind in kinds[scorer.run.id]
        if (missing := scorer.missing_metrics(names, kind))
    ]
    share_encoding_queue([scorer for scorer in scorers if scorer.kinds_to_score])
    errors = _add_scores(tasks, jobs or available_cores(), metrics is not None, quiet)
    for name, reason in errors.items():
        warnings.warn(f"left out: {name}: {reason}", RuntimeWarning, stacklevel=2)
    return [{**describe_run(scorer.run), **scorer.flat_scores(names, kinds[scorer.run.id])} for scorer in scorers]


def _make_scorers(runs: Sequence[Run], datasets: dict[str, FactorData], protocol: Protocol | None) -> list[RunScorer]:
    """Return one scorer per run. Runs with the same dataset, device and protocol share a table of examples."""
    keys = [(run.spec.data, run.device, protocol or study_protocol(run)) for run in runs]
    tables = {key: ExampleTable.of(datasets[key[0]].to(key[1]), key[2]) for key in set(keys)}
    return [RunScorer(run, tables[key], key[2]) for run, key in zip(runs, keys, strict=True)]


def _add_scores(tasks: Sequence[ScoringTask], jobs: int, named: bool, quiet: bool) -> dict[str, str]:
    """Run tasks, add the scores to their runs, and return the errors by metric.

    If `named` is True, which means that the user named the metrics, or if a run has no score at all, the first error is
    raised instead.
    """
    errors: dict[str, str] = {}
    with progress("scoring", sum(len(task.names) for task in tasks)) as report:
        counter = ProgressCounter(ignore_progress if quiet else report)
        for task, outcome in run_tasks(tasks, jobs, counter):
            task.scorer.add_outcome(task.kind, outcome)
            if named or not task.scorer.records:
                outcome.values_or_raise()
            errors |= outcome.errors
    return errors


def _code_kinds(run: Run, codes: Iterable[str] | None) -> list[str]:
    """Return the kinds of codes to score: those in `codes`, or all kinds of the method if `codes` is None."""
    available = run.spec.method.code_kinds
    kinds = list(available if codes is None else codes)
    for kind in kinds:
        if kind not in available:
            raise UserError(f"Codes of {run.label} must be among {', '.join(available)}. Got {kind!r} instead.")
    return kinds


def study_protocol(run: Run) -> Protocol:
    """Return the protocol of the study that a run belongs to, or the default protocol if there is no study."""
    return Protocol() if run.path is None else read_protocol(run.path.parent)


def load_datasets(
    runs: Sequence[Run], data: str | FactorData | None = None, quiet: bool = False
) -> dict[str, FactorData]:
    """Return the dataset for each dataset name in the specs of the runs. If `data` is given, use it for all names."""
    names = dict.fromkeys(run.spec.data for run in runs)
    if data is None:
        return {name: load_data(name, quiet=quiet) for name in names}
    return dict.fromkeys(names, load_data(data, quiet=quiet))


def describe_run(run: Run) -> dict[str, Any]:
    """Return the id, label and settings of a run in one flat dictionary."""
    return {"run": run.id, "label": run.label, **run.spec.flat()}
