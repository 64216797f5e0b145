"""Score trained runs, or codes and factors in files (.npy, .npz or .csv) with one row per example."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbraid.cli.parser import Parser, add_device, add_quiet, add_root, add_trust, parse_and_run
from unbraid.cli.printing import metric_title, run_labels, to_csv, wide_table
from unbraid.cli.values import MAX_EXAMPLES, MAX_JOBS, file_to_write, path, whole_number
from unbraid.errors import UserError
from unbraid.metrics import METRICS, headline
from unbraid.metrics.protocol import DRAWS, Protocol, resolve_metric_names, sample_sentences
from unbraid.runs.scores import read_protocol
from unbraid.runtime.files import write_atomic
from unbraid.scoring.array_files import read_arrays
from unbraid.scoring.arrays import factor_names, score_arrays
from unbraid.scoring.bounds_rows import BoundsSample, bounds_rows, run_samples

if TYPE_CHECKING:
    from unbraid.runs.run import Run

DRAWS_HELP = (
    "how rows are sampled: disjoint never uses a row for both training and testing; reference samples with "
    "replacement, as the authors' code of the large study does [disjoint; for runs of a study, the value of the study]"
)


def main(parser: Parser, arguments: Sequence[str]) -> int:
    parser.add_argument("runs", nargs="?", type=path, help="a folder of runs, or one run")
    parser.add_argument("--codes", type=path, help="file with codes of shape (n, d), which are scored instead of runs")
    parser.add_argument("--factors", type=path, help="file with the factors of these codes, numbers of shape (n, k)")
    header = "whether the first row of a .csv file has the names of the columns [recognised]"
    parser.add_argument("--header", action=argparse.BooleanOptionalAction, help=header)
    parser.add_argument("--continuous", metavar="A,B", help="continuous factors of --factors, by name [recognised]")
    parser.add_argument("--discrete", metavar="A,B", help="factors of --factors whose values are classes [recognised]")
    parser.add_argument("--metrics", metavar="A,B", help=f"metrics to compute: {', '.join(METRICS)} [all]")
    parser.add_argument("--train", type=whole_number(2, MAX_EXAMPLES), help="maximum number of training rows [10000]")
    parser.add_argument("--test", type=whole_number(2, MAX_EXAMPLES), help="maximum number of test rows [5000]")
    parser.add_argument(
        "--table", type=whole_number(2, MAX_EXAMPLES), help="maximum number of examples to encode [65536]"
    )
    parser.add_argument("--seed", type=whole_number(), help="random seed for the choice of rows [0]")
    parser.add_argument("--draws", choices=DRAWS, help=DRAWS_HELP)
    add_device(parser)
    parser.add_argument(
        "--jobs", type=whole_number(1, MAX_JOBS), help="number of processes that compute metrics [all cores]"
    )
    bounds = "show the scores of a perfect code and of pure noise for comparison [yes, except with --json]"
    parser.add_argument("--bounds", action=argparse.BooleanOptionalAction, help=bounds)
    parser.add_argument("--json", action="store_true", help="print all scores as JSON instead of a table")
    parser.add_argument("--csv", type=file_to_write, metavar="FILE", help="also write all scores to a CSV file")
    add_quiet(parser)
    add_trust(parser)
    add_root(parser)
    return parse_and_run(parser, arguments, run)


def run(options: Any) -> None:
    """Compute the scores and print them. With --csv, also write them to a file."""
    metrics = options.metrics.split(",") if options.metrics else None
    names = resolve_metric_names(metrics)
    check_options(options)
    protocol = choose_protocol(options)
    if options.codes:
        rows, samples = score_files(options, metrics, protocol)
    else:
        rows, samples = score_runs(options, metrics, protocol)
    if options.bounds or (options.bounds is None and not options.json):
        rows += bounds_rows(samples, names, protocol, options.quiet)
    if options.csv:
        write_atomic(options.csv, to_csv(rows).encode())
    notes = dict.fromkeys(note for sample in samples for note in sample.label_notes())
    print(json.dumps(rows, indent=1) if options.json else "\n".join([score_table(rows, names), *notes]))


def check_options(options: Any) -> None:
    """Raise an error if a number is too small, or if both runs and arrays are given, or neither."""
    for flag, low in {"train": 2, "test": 2, "table": 2, "jobs": 1}.items():
        if (value := getattr(options, flag)) is not None and value < low:
            raise UserError(f"--{flag} must be at least {low}. Got {value} instead.")
    if (options.codes is None) != (options.factors is None) or (options.codes is None) == (options.runs is None):
        raise UserError("Give either a folder of runs, or both --codes and --factors. See: unbraid score --help")
    for flag in ("header", "continuous", "discrete"):
        if options.codes is None and getattr(options, flag) is not None:
            raise UserError(
                f"--{flag} must be used with --codes and --factors. Got it with runs. To set the kinds of labels of a "
                "dataset, train on data with these options, such as photos?continuous=angle."
            )


def choose_protocol(options: Any) -> Protocol:
    """Return the protocol of the study in the folder, or the default protocol, with the values of the given flags."""
    base = Protocol() if options.runs is None else read_protocol(options.runs)
    flags = {name: getattr(options, name) for name in ("train", "test", "table", "seed", "draws")}
    return replace(base, **{name: value for name, value in flags.items() if value is not None})


def score_runs(
    options: Any, metrics: Sequence[str] | None, protocol: Protocol
) -> tuple[list[dict[str, Any]], list[BoundsSample]]:
    """Return the score rows of all trained runs in the folder, and the samples for the bounds of these scores."""
    from unbraid.accel.devices import check_device
    from unbraid.scoring.score import score

    check_device(options.device)
    runs = trained_runs(options.runs, options.device, options.trust)
    rows = score(runs, metrics, protocol=protocol, jobs=options.jobs, quiet=options.quiet)
    return rows, run_samples(runs, protocol, options.quiet)


def trained_runs(folder: Path, device: str, trust: bool = False) -> list[Run]:
    """Return the trained runs in a folder, and print how many others were skipped."""
    from unbraid.runs.folder import find_runs
    from unbraid.runs.run import load_runs

    found = find_runs(folder)
    runs = load_runs(folder, device=device, trust=trust)
    trained = [run for run in runs if run.divergence is None]
    others = f"{len(runs) - len(trained)} diverged, {len(found) - len(runs)} not fully trained"
    if not trained:
        raise UserError(f"No run in {folder} can be scored: {others}. Finish the training first.")
    if len(trained) < len(found):
        print(f"unbraid: left out: {others}.", file=sys.stderr)
    return trained


def score_files(
    options: Any, metrics: Sequence[str] | None, protocol: Protocol
) -> tuple[list[dict[str, Any]], list[BoundsSample]]:
    """Return one row of scores for the arrays in the files, and the sample for the bounds of these scores."""
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
    return [row], [BoundsSample("", None, rows, names)]


def score_table(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """Format a table with the main score of each metric, and with the total correlation of sampled codes if present."""
    columns = {metric_title(name): headline(name) for name in names}
    sampled = "unsupervised.gaussian_total_correlation.sampled"
    if any(sampled in row for row in rows):
        columns["(sampled)"] = sampled
    columns = {head: key for head, key in columns.items() if any(key in row for row in rows)}
    scored = [row for row in rows if "bound" not in row]
    names_of_runs = dict(zip(map(id, scored), run_labels(scored), strict=True)) if "run" in scored[0] else {}
    first = {"run": [row.get("run", "") for row in rows]} if names_of_runs else {}
    title = "settings" if names_of_runs else "codes"
    first[title] = [names_of_runs.get(id(row), row["label"]) for row in rows]
    table = wide_table(first, {head: [row.get(key, "-") for row in rows] for head, key in columns.items()})
    samples = [(row["train_rows"], row["test_rows"], row["draws"]) for row in scored]
    return "\n".join([table, *sample_sentences(samples)])
