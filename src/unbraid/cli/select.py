"""Rank trained runs without using labels: by how similar their latents are to those of other runs, or by PIPE."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from unbraid.cli.parser import RUNS_HELP, Parser, add_device, add_only, add_quiet, add_trust_and_root, parse_and_run
from unbraid.cli.values import MAX_EXAMPLES, path, whole_number
from unbraid.errors import UserError


def main(parser: Parser, arguments: Sequence[str]) -> int:
    parser.add_argument("runs", nargs="+", type=path, metavar="RUNS", help=RUNS_HELP)
    add_only(parser)
    by = (
        "criterion: udr compares latents, model_centrality encodes what other runs decode, pipe tests whether "
        "independent latents decode to possible examples [udr]"
    )
    parser.add_argument("--by", choices=("udr", "model_centrality", "pipe"), default="udr", help=by)
    method = "how udr compares the latents of two runs [lasso]"
    parser.add_argument("--method", choices=("lasso", "spearman"), default="lasso", help=method)
    within = (
        "which runs are compared with each other: settings compares runs that differ in the seed only, data compares "
        "all runs on the same dataset [settings if every setting has several seeds, else data]"
    )
    parser.add_argument("--within", choices=("settings", "data"), help=within)
    parser.add_argument(
        "--examples", type=whole_number(2, MAX_EXAMPLES), default=10_000, help="number of examples to encode [10000]"
    )
    parser.add_argument("--seed", type=whole_number(), default=0, help="random seed for the choice of examples [0]")
    add_device(parser)
    parser.add_argument("--json", action="store_true", help="print the ranking as JSON instead of a table")
    add_quiet(parser)
    add_trust_and_root(parser)
    return parse_and_run(parser, arguments, run)


def run(options: Any) -> None:
    """Rank the runs and print them, best first."""
    if options.examples < 2:
        raise UserError(f"--examples must be at least 2. Got {options.examples} instead.")
    from unbraid.accel.devices import check_device
    from unbraid.runs.run import load_runs
    from unbraid.scoring.selection import select

    check_device(options.device)
    loaded = load_runs(options.runs, device=options.device, trust=options.trust, only=options.only)
    runs = [run for run in loaded if run.divergence is None]
    rows = select(
        runs, by=options.by, method=options.method, within=options.within, examples=options.examples,
        seed=options.seed, quiet=options.quiet,
    )  # fmt: skip
    print(json.dumps(rows, indent=1) if options.json else rows)
