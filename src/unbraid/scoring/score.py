"""Score trained runs. Examples are encoded once per run, and metrics are computed from the codes on all cores.

Scoring codes and factors does not need torch. Modules that import torch are therefore imported only inside the
functions that score runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbraid.errors import UserError, warn_user
from unbraid.metrics import METRICS
from unbraid.metrics.protocol import Protocol, are_named, resolve_metric_names
from unbraid.runs.scores import read_protocol
from unbraid.runtime.arguments import explain_unknown_arguments
from unbraid.runtime.progress import progress
from unbraid.scoring.arrays import score_arrays
from unbraid.scoring.rows import ScoreRows

if TYPE_CHECKING:
    from unbraid.data.dataset import FactorData
    from unbraid.data.loading import DataLike
    from unbraid.runs.only import Only
    from unbraid.runs.run import Run
    from unbraid.scoring.run_scorer import RunScorer
    from unbraid.scoring.tasks import ScoringTask


@explain_unknown_arguments()
def score(
    runs: str | Path | Run | Iterable[str | Path | Run] | None = None,
    metrics: str | Iterable[str] | None = None,
    *,
    data: DataLike | None = None,
    codes: Any = None,
    factors: Any = None,
    continuous: str | Sequence[str] | None = None,
    discrete: str | Sequence[str] | None = None,
    protocol: Protocol | None = None,
    jobs: int | None = None,
    quiet: bool = False,
    trust: bool = False,
    only: Only = None,
    sides: bool = False,
) -> list[dict[str, Any]]:
    """Compute the scores of trained runs, or of codes from any other source.

    If a run has a folder, its scores are stored there in `scores.jsonl`, together with their estimator, sample sizes,
    seed and library versions. Stored scores are not computed again. If runs are given by folders that have a results
    table (`results.sqlite`), new scores are added to the table.

    Args:
        runs: One run, several runs, or one or several folders of runs. Diverged runs in folders are left out with a
            warning. A run that is given twice has one row. A model that was trained elsewhere and adopted twice has two
            rows with equal scores, and a warning names the two runs. If `runs` is None, `codes` and `factors` are
            scored instead.
        metrics: Names of metrics, as a list or separated by commas, or "all". A name may have options, as in
            "dci_es?probes=rff&sizes=16,32". By default `unbraid.metrics.DEFAULT_METRICS`. A metric that cannot be
            computed for the data raises an error if it is named here. By default and with "all", it is left out.
        data: The dataset to encode with all runs, in one of the forms that `train` accepts. By default each run encodes
            its own dataset.
        codes: For runs, the kinds of codes to score (see `Method.code_kinds`). By default all kinds of each method.
            Without runs, the codes themselves, (n, d), as an array, a tensor or a data frame.
        factors: Without runs, the factors of the same n examples: numbers or words of shape (n, k) or (n,) in an array,
            a data frame or a dictionary of columns. NaN or None is a missing label.
        continuous: Names of continuous columns of `factors`, as a list or separated by commas.
        discrete: Names of columns of `factors` whose values are classes. A column that is named in neither argument is
            continuous if it has many distinct numbers; see `unbraid.label_kinds.looks_continuous`. A warning announces
            this choice.
        protocol: Defines which examples the metrics use. By default each run uses the protocol of the study that it
            belongs to. For a run that belongs to no study, metrics are fitted and tested on disjoint samples.
        jobs: Number of processes that compute metrics of runs. By default one per core. The processes are started only
            if there is enough work.
        quiet: Whether to hide the progress bar.
        trust: Whether to import and run methods and networks that are not part of unbraid, if the folder of a run
            refers to them (see `load_runs`).
        only: Which runs to score, by their settings, such as "method=beta_vae,beta=8" (see `load_runs`). By default
            all.
        sides: Whether to score runs separately on the examples that they were trained on and on those that were held
            out, with two rows per run. The data must have the option ``holdout``, as in ``sprites?holdout=range``.

    Returns:
        One flat dictionary per run with `run` (id), `label`, all settings, and the scores. Scores of the first kind of
        codes, which is the posterior mean for most methods, are called ``metric.key``. Scores of other kinds have the
        kind as a suffix, such as ``metric.key.sampled``. ``protocol`` is a digest that is equal for scores that can be
        compared. ``train_rows``, ``test_rows`` and ``draws`` say which rows the metrics used. For codes and factors,
        the list has one dictionary with the label "codes". With `sides`, rows also have `side`, `examples` (the size of
        the side), `reconstruction_error` (mean squared error per pixel) and `readout_r2` (see
        `unbraid.scoring.holdout_sides.readout_scores`), and only factors that vary on both sides are scored. Notebooks
        and `print` show the list as a table.

    Raises:
        UserError: If a metric or a kind of codes is unknown, a run has diverged, or a metric in `metrics` cannot be
            computed.

    >>> import unbraid as ub
    >>> (run,) = ub.train("vae", data="toy", steps=5, quiet=True)
    >>> [row] = ub.score(run, "mig", quiet=True)
    >>> 0 <= row["mig.discrete_mig"] <= 1
    True
    >>> factors = ub.data.load("toy").factors(slice(None))
    >>> [row] = ub.score(codes=factors + 0.5, factors=factors, metrics="mig", quiet=True)
    >>> round(row["mig.discrete_mig"], 2)
    1.0
    """
    if runs is None or factors is not None:
        _check_arrays(runs, data, codes, factors)
        if sides:
            raise UserError("`sides` is for runs. Got codes and factors instead. Score each side in a call of its own.")
        row, _ = score_arrays(
            codes,
            factors,
            metrics,
            continuous=continuous,
            discrete=discrete,
            protocol=protocol or Protocol(),
            quiet=quiet,
        )
        return ScoreRows([row], metrics=resolve_metric_names(metrics))
    if continuous is not None or discrete is not None:
        raise UserError(
            "`continuous` and `discrete` are for `codes` and `factors`. Got them with runs. Pass them to the dataset "
            "instead, as in ub.data.from_arrays(images, factors, continuous='angle')."
        )
    if protocol is not None and not isinstance(protocol, Protocol):
        raise UserError(f"The protocol must be a Protocol, such as ub.Protocol(train=2_000). Got {protocol!r} instead.")
    given = _list_runs(runs)
    scored = scorable_runs(given, data, trust, only)
    if not scored:
        raise UserError("There must be at least one run to score. Got an empty list instead. Train some with ub.train.")
    with _results_of_folders(given, scored):
        if sides:
            from unbraid.scoring.holdout_sides import score_sides

            return score_sides(scored, metrics, data, codes, protocol, jobs, quiet)
        return score_runs(scored, metrics, data, codes, protocol, jobs, quiet)


def _list_runs(runs: Any) -> Any:
    """Return one run or one folder unchanged, and several of them as a list."""
    from unbraid.runs.run import Run

    return runs if isinstance(runs, str | Path | Run) or not isinstance(runs, Iterable) else list(runs)


def _results_of_folders(given: Any, runs: Sequence[Run]) -> AbstractContextManager[None]:
    """Return a context that keeps the results tables of runs up to date, if the runs were given by their folders.

    For runs that were given in another way, the context does nothing. If a loop scores single runs, the table of all
    runs is therefore not written again for each run.
    """
    from unbraid.runs.results_update import updated_results
    from unbraid.runs.run import are_folders

    return updated_results(runs) if are_folders(given) else nullcontext()


def _check_arrays(runs: Any, data: Any, codes: Any, factors: Any) -> None:
    """Raise a UserError if runs or their data are given too, or if codes or factors are missing."""
    if runs is not None or data is not None:
        raise UserError(
            "Pass either runs, with data= if needed, or codes and factors, but not both. The factors of runs are part "
            "of their dataset."
        )
    if codes is None or factors is None:
        given = (
            "codes without factors" if codes is not None else "factors without codes" if factors is not None else "none"
        )
        raise UserError(f"Pass runs, a folder of runs, or both codes and factors. Got {given} instead.")


def scorable_runs(runs: Any, data: DataLike | None, trust: bool, only: Only = None) -> list[Run]:
    """Return the runs to score. Diverged runs of folders are left out with a warning."""
    from unbraid.runs.run import are_folders, as_runs

    given = _list_runs(runs)
    found = as_runs(given, data, trust, only)
    if not are_folders(given):
        return found
    trained = [run for run in found if run.divergence is None]
    if not trained:
        where = given if isinstance(given, str | Path) else ", ".join(map(str, given))
        raise UserError(f"No run in {where} can be scored: {len(found)} diverged. The others are not fully trained.")
    if len(trained) < len(found):
        warn_user(f"left out: {len(found) - len(trained)} diverged run(s)")
    return trained


def score_runs(
    runs: Sequence[Run],
    metrics: str | Iterable[str] | None = None,
    data: DataLike | None = None,
    codes: Any = None,
    protocol: Protocol | None = None,
    jobs: int | None = None,
    quiet: bool = False,
) -> ScoreRows:
    """Compute the scores of trained runs. The arguments and the returned rows are those of `score`."""
    from unbraid.runs.same_model import same_model_notes
    from unbraid.scoring.run_scorer import share_encoding_queue
    from unbraid.scoring.tasks import ScoringTask, available_cores

    names = resolve_metric_names(metrics)
    kinds = {run.id: _code_kinds(run, codes) for run in runs}
    datasets = load_datasets(runs, data, quiet)
    named = are_named(metrics)
    if named:
        _check_labels(names, datasets.values())
    else:
        names = applicable_metrics(names, datasets.values())
    scorers = _make_scorers(runs, datasets, protocol)
    tasks = [
        ScoringTask(scorer, kind, missing)
        for scorer in scorers
        for kind in kinds[scorer.run.id]
        if (missing := scorer.missing_metrics(names, kind))
    ]
    share_encoding_queue([scorer for scorer in scorers if scorer.kinds_to_score])
    errors = _add_scores(tasks, jobs or available_cores(), named, quiet)
    for scorer in scorers:
        scorer.mark_latest(names, kinds[scorer.run.id])
    for note in same_model_notes(runs):
        warn_user(f"{note} Their scores are equal, so count them as one model.")
    for name, reason in errors.items():
        warn_user(f"left out: {name}: {reason}")
    rows = [{**describe_run(scorer.run), **scorer.flat_scores(names, kinds[scorer.run.id])} for scorer in scorers]
    table = ScoreRows(rows, [run.spec for run in runs], names)
    for scorer in scorers:
        default = scorer.run.spec.method.code_kinds[0]
        table.record_keys[scorer.run.id] = {name: scorer.record_key(name, default) for name in names}
    return table


def applicable_metrics(names: Iterable[str], datasets: Iterable[FactorData]) -> list[str]:
    """Return the metrics that can be computed for at least one of the datasets.

    A metric with a parameter `factors` needs labels, and one with a parameter `periods` needs cyclic factors.
    """
    given = list(datasets)
    available = {"factors": any(data.names for data in given), "periods": any(data.cyclic for data in given)}
    absent = {name for name, exists in available.items() if not exists}
    return [name for name in names if not absent & set(inspect.signature(METRICS[name]).parameters)]


def _check_labels(names: Iterable[str], datasets: Iterable[FactorData]) -> None:
    """Raise a UserError if a metric needs labels and a dataset has none."""
    needing = [name for name in names if "factors" in inspect.signature(METRICS[name]).parameters]
    unlabelled = next((data.name for data in datasets if not data.names), None)
    if needing and unlabelled is not None:
        others = ", ".join(name for name in METRICS if "factors" not in inspect.signature(METRICS[name]).parameters)
        raise UserError(
            f"{', '.join(needing)} {'needs' if len(needing) == 1 else 'need'} labels of the factors. {unlabelled} has "
            f"none. Choose metrics without labels ({others}), or rank the runs with: unbraid select (ub.select)."
        )


def _make_scorers(runs: Sequence[Run], datasets: dict[str, FactorData], protocol: Protocol | None) -> list[RunScorer]:
    """Return one scorer per run. Runs with the same dataset, device and protocol share a table of examples."""
    from unbraid.scoring.run_scorer import ExampleTable, RunScorer

    keys = [(run.spec.data, run.device, protocol or study_protocol(run)) for run in runs]
    tables = {key: ExampleTable.of(datasets[key[0]].to(key[1]), key[2]) for key in set(keys)}
    return [RunScorer(run, tables[key], key[2]) for run, key in zip(runs, keys, strict=True)]


def _add_scores(tasks: Sequence[ScoringTask], jobs: int, named: bool, quiet: bool) -> dict[str, str]:
    """Run tasks, add the scores to their runs, and return the errors by metric.

    The first error is raised instead if the user named the metrics (`named`), or if a run has no score at all.
    """
    from unbraid.scoring.tasks import ProgressCounter, run_tasks

    errors: dict[str, str] = {}
    with progress("scoring", sum(len(task.names) for task in tasks), quiet) as report:
        for task, outcome in run_tasks(tasks, jobs, ProgressCounter(report)):
            task.scorer.add_outcome(task.kind, outcome)
            if named or not task.scorer.records:
                outcome.values_or_raise()
            errors |= outcome.errors
    return errors


def _code_kinds(run: Run, codes: Any) -> list[str]:
    """Return the kinds of codes to score: those in `codes`, or all kinds of the method if `codes` is None."""
    available = run.spec.method.code_kinds
    given = available if codes is None else codes
    kinds = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    for kind in kinds:
        if not isinstance(kind, str):
            raise UserError(
                f"With runs, `codes` are kinds of codes, such as 'mean'. Got {type(codes).__name__} instead."
            )
        if kind not in available:
            raise UserError(f"Codes of {run.label} must be among {', '.join(available)}. Got {kind!r} instead.")
    return list(dict.fromkeys(kinds))


def study_protocol(run: Run) -> Protocol:
    """Return the protocol of the study that a run belongs to, or the default protocol if there is no study."""
    return Protocol() if run.path is None else read_protocol(run.path.parent)


def load_datasets(runs: Sequence[Run], data: DataLike | None = None, quiet: bool = False) -> dict[str, FactorData]:
    """Return the dataset for each dataset name in the specs of the runs. If `data` is given, use it for all names.

    Raises:
        UserError: If a dataset cannot be loaded, or if two runs have different data in memory with the same name.
    """
    from unbraid.data.loading import load_data
    from unbraid.runs.run_data import run_data

    if data is not None:
        return dict.fromkeys((run.spec.data for run in runs), load_data(data, quiet=quiet))
    first: dict[str, Run] = {}
    for run in runs:
        other = first.setdefault(run.spec.data, run)
        if other.data is not run.data and _fingerprint(other) != _fingerprint(run):
            raise UserError(
                f"Different datasets must have different names. Got the runs {other.id} and {run.id}, whose datasets "
                f"differ but are both called {run.spec.data!r}. Score the runs in separate calls, or give each dataset "
                "a name of its own."
            )
    return {name: run_data(run, quiet=quiet) for name, run in first.items()}


def _fingerprint(run: Run) -> str | None:
    """Return the fingerprint of the data that a run has in memory."""
    return getattr(run.data, "fingerprint", None)


def describe_run(run: Run) -> dict[str, Any]:
    """Return the id, label and settings of a run in one flat dictionary."""
    return {"run": run.id, "label": run.label, **run.spec.flat()}
