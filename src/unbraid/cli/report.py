"""Write one self-contained page on trained runs: scores, pictures, and decoders that run in the browser."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unbraid.cli.parser import Parser, add_root
from unbraid.metrics import METRICS


def main(parser: Parser, arguments: Sequence[str]) -> None:
    parser.add_argument("runs", type=Path, help="a folder of runs, a study, or one run")
    parser.add_argument("--out", type=Path, help="the page [RUNS/report.html]")
    parser.add_argument("--metrics", help=f"comma list of {', '.join(METRICS)} [mig and five more]")
    parser.add_argument("--rank", metavar="METRIC", help="what the best runs are the best by [the first metric]")
    parser.add_argument("--best", type=int, default=4, help="runs shown in detail, with their decoders [4]")
    parser.add_argument("--no-score", action="store_true", help="take the scores that are kept, compute none")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    add_root(parser)
    options = parser.parse_all(arguments)
    from unbraid.reporting.content import REPORTED
    from unbraid.reporting.page import report

    metrics = options.metrics.split(",") if options.metrics else REPORTED
    path = report(options.runs, options.out, metrics=metrics, rank=options.rank, best=options.best,
                  scoring=not options.no_score, quiet=options.quiet)  # fmt: skip
    print(f"{path} ({path.stat().st_size / 1e6:.1f} MB): open it in any browser")
