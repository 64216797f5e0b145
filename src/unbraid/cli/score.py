"""Score trained runs, or codes and factors in files (.npy, .npz or .csv) with one row per example."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbraid.cli.parser import RUNS_HELP, Parser, add_device, add_only, add_quiet, add_trust_and_root, parse_and_run
from unbraid.cli.printing import write_csv
from unbraid.cli.values import MAX_EXAMPLES, MAX_JOBS, file_to_write, path, whole_number
from unbraid.errors import UserError
from unbraid.metrics import DEFAULT_METRICS, METRICS
from unbraid.metrics.protocol import DRAWS, Protocol, resolve_metric_names
from unbraid.runs.scores import read_protocol
from unbraid.scoring.array_files import read_arrays
from unbraid.scoring.arrays import factor_names, score_arrays
from unbraid.scoring.bounds_rows import BoundsSample, bounds_rows, run_samples
from unbraid.scoring.rows import ScoreRows

if TYPE_CHECKING:
    from unbraid.runs.run import Run

DRAWS_HELP = (
    "how rows are sampled: disjoint never uses a row for both training and testing; reference samples with "
    "replacement, as the code of Locatello et al. (2019) does [disjoint; for runs of a study, the value of the study]"
)


def main(parser: Parser, arguments: Sequence[str]) -> int:
    parser.add_argument("runs", nargs="*", type=path, metavar="RUNS", help=RUNS_HELP)
    add_only(parser)
    parser.add_argument("--codes", type=path, help="file with codes of shape (n, d), which are scored instead of runs")
    parser.add_argument("--factors", type=path, help="file with the factors of these codes, numbers of shape (n, k)")
    header = "whether the first row of a .csv file has the names of the columns [detected]"
    parser.add_argument("--header", action=argparse.BooleanOptionalAction, help=header)
    parser.add_argument("--continuous", metavar="A,B", help="continuous factors of --factors, by name [detected]")
    parser.add_argument("--discrete", metavar="A,B", help="factors of --factors whose values are classes [detected]")
    others = ", ".join(name for name in METRICS if name not in DEFAULT_METRICS)
    metrics = (
        f"metrics to compute, or all [{', '.join(DEFAULT_METRICS)}]; others: {others}; options follow the name of a "
        "metric, as in mig?bins=10"
    )
    parser.add_argument("--metrics", metavar="A,B", help=metrics)
    parser.add_argument("--train", type=whole_number(2, MAX_EXAMPLES), help="maximum number of training rows [10000]")
    parser.add_argument("--test", type=whole_number(2, MAX_EXAMPLES), help="maximum number of test rows [5000]")
    parser.add_argument(
        "--table", type=whole_number(2, MAX_EXAMPLES), help="maximum number of examples to encode [65536]"
    )
    parser.add_argument("--seed", type=whole_number(), help="random seed for the choice of rows [0]")
    parser.add_argument("--draws", choices=DRAWS, help=DRAWS_HELP)
    sides = "score training examples and held-out examples separately; needs runs on data with the option holdout"
    parser.add_argument("--sides", action="store_true", help=sides)
    add_device(parser)
    parser.add_argument(
        "--jobs", type=whole_number(1, MAX_JOBS), help="number of processes that compute metrics [all cores]"
    )
    bounds = "show the scores of a perfect code and of pure noise for comparison [yes, except with --json or --sides]"
    parser.add_argument("--bounds", action=argparse.BooleanOptionalAction, help=bounds)
    parser.add_argument("--json", action="store_true", help="print all scores as JSON instead of a table")
    parser.add_argument("--csv", type=file_to_write, metavar="FILE", help="also write all scores to a CSV file")
    add_quiet(parser)
    add_trust_and_root(parser)
    return parse_and_run(parser, arguments, run)


def run(options: Any) -> None:
    """Compute the scores and print them. With --csv, also write them to a file."""
    metrics = options.metrics.split(",") if options.metrics is not None else None
    names = resolve_metric_names(metrics)
    check_options(options)
    if options.codes:
        protocol = choose_protocol(options)
        rows, samples = score_files(options, metrics, protocol)
    else:
        rows, samples, protocol = score_runs(options, metrics)
    if options.bounds or (options.bounds is None and not options.json and not options.sides):
        rows.extend(bounds_rows(samples, names, protocol, options.quiet))
    if options.csv:
        write_csv(options.csv, rows)
    notes = dict.fromkeys(note for sample in samples for note in sample.label_notes())
    print(json.dumps(rows, indent=1) if options.json else "\n".join([rows.text(names), *notes]))


def check_options(options: Any) -> None:
    """Raise an error if a number is too small, if both or neither of runs and arrays are given, or if flags clash."""
    for flag, low in {"train": 2, "test": 2, "table": 2, "jobs": 1}.items():
        if (value := getattr(options, flag)) is not None and value < low:
            raise UserError(f"--{flag} must be at least {low}. Got {value} instead.")
    if (options.codes is None) != (options.factors is None) or (options.codes is None) == (not options.runs):
        raise UserError("Give either a folder of runs, or both --codes and --factors. See: unbraid score --help")
    if options.sides and (options.codes is not None or options.bounds):
        raise UserError(f"--sides cannot be used with {'--codes' if options.codes is not None else '--bounds'}.")
    for flag in ("header", "continuous", "discrete"):
        if options.codes is None and getattr(options, flag) is not None:
            raise UserError(
                f"--{flag} must be used with --codes and --factors. Got it with runs. To set the kinds of labels of a "
                "dataset, train on data with these options, such as photos?continuous=angle."
            )


def choose_protocol(options: Any, folders: Sequence[Path] = ()) -> Protocol:
    """Return the protocol of the studies in the folders, or the default protocol. Given flags replace its values."""
    flags = {name: getattr(options, name) for name in ("train", "test", "table", "seed", "draws")}
    given = {name: value for name, value in flags.items() if value is not None}
    protocols = {replace(read_protocol(folder), **given) for folder in folders} or {replace(Protocol(), **given)}
    if len(protocols) > 1:
        names = [name for name in flags if len({getattr(protocol, name) for protocol in protocols}) > 1]
        raise UserError(
            f"Runs that are scored together must have the same protocol. Got runs of studies that differ in "
            f"{', '.join(names)}. Score the folders separately, or pass {', '.join(f'--{name}' for name in names)}."
        )
    return protocols.pop()


def score_runs(options: Any, metrics: Sequence[str] | None) -> tuple[ScoreRows, list[BoundsSample], Protocol]:
    """Score all trained runs in the folders.

    Return the rows of scores, the samples on which perfect codes and noise are scored as bounds, and the protocol.
    """
    from unbraid.accel.devices import check_device
    from unbraid.runs.results_update import updated_results
    from unbraid.scoring.score import score_runs

    check_device(options.device)
    runs = trained_runs(options)
    protocol = choose_protocol(options, list(dict.fromkeys(run.path for run in runs if run.path is not None)))
    with updated_results(runs):
        if options.sides:
            from unbraid.scoring.holdout_sides import score_sides

            rows = score_sides(runs, metrics, protocol=protocol, jobs=options.jobs, quiet=options.quiet)
            return rows, [], protocol
        rows = score_runs(runs, metrics, protocol=protocol, jobs=options.jobs, quiet=options.quiet)
    return rows, run_samples(runs, protocol, options.quiet), protocol


def trained_runs(options: Any) -> list[Run]:
    """Return the trained runs in the folders, and print how many others were skipped."""
    from unbraid.runs.run import load_runs
    from unbraid.runs.search import search_runs

    found = search_runs(options.runs, options.only)
    runs = load_runs([run.path for run in found], device=options.device, trust=options.trust)
    trained = [run for run in runs if run.divergence is None]
    others = f"{len(runs) - len(trained)} diverged, {len(found) - len(runs)} not fully trained"
    if not trained:
        where = ", ".join(map(str, options.runs))
        raise UserError(f"No run in {where} can be scored: {others}. Finish the training first.")
    if len(trained) < len(found):
        print(f"unbraid: left out: {others}.", file=sys.stderr)
    return trained


def score_files(
    options: Any, metrics: Sequence[str] | None, protocol: Protocol
) -> tuple[ScoreRows, list[BoundsSample]]:
    """Return one row of scores for the arrays in the files, and the sample on which the bounds are computed."""
    codes, factors = read_arrays(options.codes, options.factors, options.header)
    names = tuple(factors.names or factor_names(factors.array.shape[1]))
    row, rows = score_arrays(
        codes.array,
        factors.array,
        metrics,
        names=names,
        continuous=options.continuous,
        discrete=options.discrete,
        protocol=protocol,
        label=str(options.codes),
        quiet=options.quiet,
    )
    for file in (codes, factors):
        print(f"unbraid: {file.describe()}", file=sys.stderr)
    return ScoreRows([row]), [BoundsSample("", None, rows, names)]
