"""Rank trained runs without labels: by how far their latents are those of the other runs (UDR)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from unbraid.cli.devices import add_device, check_device
from unbraid.cli.parser import Parser, add_root
from unbraid.cli.printing import labels, table
from unbraid.errors import UserError


def main(parser: Parser, arguments: Sequence[str]) -> None:
    parser.add_argument("runs", type=Path, help="a folder of runs")
    parser.add_argument(
        "--method", choices=("lasso", "spearman"), default="lasso", help="how latents are compared [lasso]"
    )
    parser.add_argument(
        "--within",
        choices=("settings", "data"),
        help="compare runs that differ in the seed only, or all runs on the same data [settings, if all have a pair]",
    )
    parser.add_argument("--examples", type=int, default=10_000, help="examples to encode [10000]")
    parser.add_argument("--seed", type=int, default=0, help="of the sampling [0]")
    add_device(parser)
    parser.add_argument("--json", action="store_true", help="print every row as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    add_root(parser)
    options = parser.parse_all(arguments)
    if options.examples < 2:
        raise UserError(f"--examples must be at least 2. Got {options.examples} instead.")
    check_device(options.device)
    from unbraid.runs.run import load_runs
    from unbraid.scoring.selection import rank

    runs = [run for run in load_runs(options.runs, device=options.device) if run.divergence is None]
    how = {"method": options.method, "within": options.within, "examples": options.examples, "seed": options.seed}
    rows = rank(runs, quiet=options.quiet, **how)
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    body = [[r["run"], name, r["informative"], r["udr"]] for r, name in zip(rows, labels(rows), strict=True)]
    print(table(["run", "settings", "informative latents", "udr"], body))
