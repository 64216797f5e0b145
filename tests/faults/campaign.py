"""Run the campaign: python -m faults.campaign --minutes 5, in the folder `tests`."""

from __future__ import annotations

import argparse
import importlib
import os
import secrets
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from faults.commands import check_coverage, write_files
from faults.execution import Result, run_case


def preload() -> None:
    """Import everything that commands import, so that forked processes start fast."""
    import torch

    from unbraid.cli.dispatch import COMMANDS

    torch.set_num_threads(1)
    for command in COMMANDS.values():
        importlib.import_module(f"unbraid.cli.{command.module}")
    for name in ("analysis", "studies.runner", "studies.appearance", "reporting.page", "reporting.explore",
                 "pictures.pair", "exporting.export", "scoring.selection", "scoring.comparison", "reproduction",
                 "manipulation", "runs.results"):  # fmt: skip
        importlib.import_module(f"unbraid.{name}")
    import matplotlib.pyplot  # noqa: F401
    import pandas  # noqa: F401
    import sklearn.linear_model  # noqa: F401


def run_cases(seed: int, numbers: Iterator[int]) -> Iterator[Result]:
    """Run the cases with these numbers."""
    check_coverage()
    preload()
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        template, scratch = Path(name) / "template", Path(name) / "cases"
        template.mkdir()
        scratch.mkdir()
        with Path(os.devnull).open("w") as null, redirect_stdout(null), redirect_stderr(null):
            write_files(template)
        for number in numbers:
            yield run_case(seed, number, template, scratch)


def main() -> int:
    """Run cases until the time or the cases are used up, print the failures, and return how many there are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="time to spend [5]")
    parser.add_argument("--cases", type=int, default=10**9, help="largest number of cases")
    parser.add_argument("--seed", type=int, help="seed of the generator [a new one each time]")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--every", type=int, default=1, help="distance of the numbers of two cases")
    options = parser.parse_args()
    warnings.simplefilter("ignore", DeprecationWarning)
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    end = time.monotonic() + 60 * options.minutes
    numbers = range(options.first, options.first + options.cases * options.every, options.every)
    counts: Counter[str] = Counter()
    for result in run_cases(seed, iter(numbers)):
        counts["cases"] += 1
        if result.fault:
            counts["faults"] += 1
            lines = [line for line in result.output.splitlines() if line.strip()]
            shown = lines[-3:-1] if "Traceback" in result.output else lines[-1:]
            print(f"{result.fault} (--seed {seed} --first {result.number} --cases 1): {result.case}", flush=True)
            print("".join(f"    {line[:300]}\n" for line in shown), end="", flush=True)
        if time.monotonic() > end:
            break
    print(f"{counts['cases']} cases, {counts['faults']} faults, seed {seed}")
    return int(counts["faults"] > 0)


if __name__ == "__main__":
    sys.exit(main())
