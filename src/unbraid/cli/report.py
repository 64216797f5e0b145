"""Write one self-contained HTML page about trained runs: scores, pictures, and decoders that run in the browser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unbraid.cli.parser import RUNS_HELP, Parser, add_only, add_quiet, add_trust_and_root, parse_and_run
from unbraid.cli.values import file_to_write, path, whole_number
from unbraid.metrics import METRICS


def main(parser: Parser, arguments: Sequence[str]) -> int:
    parser.add_argument("runs", nargs="+", type=path, metavar="RUNS", help=RUNS_HELP)
    out = "file to write [report.html, in the folder of the runs or, for several folders, in the folder above them]"
    parser.add_argument("--out", type=file_to_write, metavar="FILE", help=out)
    add_only(parser)
    metrics = f"metrics to show, or all: {', '.join(METRICS)} [mig, dci, factor_vae, sap, modularity, unsupervised]"
    parser.add_argument("--metrics", metavar="A,B", help=metrics)
    parser.add_argument(
        "--rank",
        metavar="METRIC",
        help="metric by which runs are ranked [the first metric that any run has a score for]",
    )
    parser.add_argument(
        "--best", type=whole_number(1, 1000), default=4, help="number of runs shown in detail, with their decoders [4]"
    )
    parser.add_argument(
        "--no-score", action="store_true", help="do not compute missing scores; show stored scores only"
    )
    add_quiet(parser)
    add_trust_and_root(parser)
    return parse_and_run(parser, arguments, run)


def run(options: Any) -> None:
    """Write the page and print its path and size."""
    from unbraid.reporting.page import report
    from unbraid.reporting.runs_table import REPORT_METRICS

    metrics = options.metrics.split(",") if options.metrics is not None else REPORT_METRICS
    path = report(
        options.runs, options.out, metrics=metrics, rank=options.rank, best=options.best,
        scoring=not options.no_score, quiet=options.quiet, trust=options.trust, only=options.only,
    )  # fmt: skip
    print(f"The report was written to {path} ({path.stat().st_size / 1e6:.1f} MB). Open it in a browser.")
