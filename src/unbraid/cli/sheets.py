"""The flags that the commands `samples` and `reconstruct` share, and the choice of the runs that they draw."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from unbraid.cli.parser import Parser, add_trust_and_root
from unbraid.cli.values import file_to_write, path

if TYPE_CHECKING:
    from unbraid.runs.run import Run


def add_sheet_flags(parser: Parser, file: str) -> None:
    """Add the flags of a command that draws several runs in one file."""
    parser.add_argument("runs", type=path, nargs="+", metavar="RUNS", help="folders of runs, or single runs")
    parser.add_argument("--data", help="dataset of the examples, such as mnist?part=test [that of the runs]")
    every = "draw all seeds of each setting [only the lowest seed]"
    parser.add_argument("--all", action="store_true", help=every)
    out = f"file to write [{file} in the first folder]"
    parser.add_argument("--out", type=file_to_write, metavar="PNG", help=out)
    add_trust_and_root(parser)


def load_sheet_runs(options: Any, without: str = "") -> list[Run]:
    """Load the runs to draw: only runs with a decoder and, unless --all is given, only one run per setting.

    If `without` is "prior", runs of methods without a prior are also left out, unless no run has a prior. The number
    of runs that are left out is printed, separately for a missing decoder and a missing prior.
    """
    from unbraid.cli.traverse import runs_with_decoder
    from unbraid.pictures.sheets import one_run_per_setting
    from unbraid.runs.prior import has_prior
    from unbraid.runs.run import load_runs

    loaded = [run for folder in options.runs for run in load_runs(folder, trust=options.trust)]
    runs = runs_with_decoder(loaded, options.runs[0])
    if without == "prior" and any(has_prior(run) for run in runs):
        left = [run for run in runs if not has_prior(run)]
        if left:
            print(f"unbraid: left out: {len(left)} run(s) of methods without a prior.", file=sys.stderr)
        runs = [run for run in runs if has_prior(run)]
    return runs if options.all else one_run_per_setting(runs)
