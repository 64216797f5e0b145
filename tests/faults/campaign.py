"""Run the campaign of faults: python -m faults.campaign --minutes 5, in the folder `tests`."""

from __future__ import annotations

import argparse
import itertools
import os
import secrets
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from faults.bad_input import BadInput
from faults.commands import check_coverage
from faults.disk import Disk
from faults.kills import Kills
from faults.pairs import Pairs
from faults.parts import Part, Result, run_number
from faults.processes import preload
from faults.requests import Requests

PARTS: dict[str, type[Part]] = {part.name: part for part in (BadInput, Kills, Pairs, Disk, Requests)}


@dataclass
class Tally:
    """The number of cases of a part, of what they did (signals, requests), and of faults, and the time."""

    cases: int = 0
    count: int = 0
    faults: int = 0
    seconds: float = 0.0


@contextmanager
def prepared(part: Part) -> Iterator[Part]:
    """Prepare a part in a temporary folder, which is removed in the end. Its commands print nothing."""
    with tempfile.TemporaryDirectory(prefix=f"faults-{part.name}-") as name:
        Path(name).chmod(0o755)
        with Path(os.devnull).open("w") as null, redirect_stdout(null), redirect_stderr(null):
            part.prepare(Path(name))
        try:
            yield part
        finally:
            part.close()


def run_part(part: Part, seed: int, numbers: Iterator[int], seconds: float, *, minimise: bool) -> Tally:
    """Run the cases with these numbers until the time is used up, and print the failures."""
    tally, start = Tally(), time.monotonic()
    with prepared(part):
        for number in numbers:
            result = run_number(part, seed, number, minimise=minimise)
            tally.cases += 1
            tally.count += result.outcome.count
            if result.outcome.fault:
                tally.faults += 1
                print_failure(result, seed)
            if time.monotonic() - start > seconds:
                break
    tally.seconds = time.monotonic() - start
    return tally


def print_failure(result: Result, seed: int) -> None:
    """Print a failing case, the command that repeats it, and the end of its output."""
    lines = [line for line in result.outcome.output.splitlines() if line.strip()]
    shown = lines[-6:-1] if "Traceback" in result.outcome.output else lines[-1:]
    print(f"FAULT in {result.part}: {result.outcome.fault}\n    {result.case}")
    print("".join(f"    {line[:300]}\n" for line in shown), end="")
    again = f"--parts {result.part} --seed {seed} --first {result.number} --cases 1"
    print(f"    To repeat it: make test-faults FAULTS='{again}'", flush=True)


def main() -> int:
    """Run all parts, print the number of cases and faults of each, and return 1 if there is a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="time to spend on all parts together [5]")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"parts to run [{','.join(PARTS)}]")
    parser.add_argument("--cases", type=int, default=10**9, help="largest number of cases of each part")
    parser.add_argument("--seed", type=int, help="seed of the generators [a new one each time]")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--no-minimise", action="store_true", help="print failing cases as they are")
    options = parser.parse_args()
    warnings.simplefilter("ignore", DeprecationWarning)  # forking a process with threads
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    check_coverage()
    preload()
    parts = [PARTS[name]() for name in options.parts.split(",")]
    total = sum(part.weight for part in parts)
    faults = 0
    for part in parts:
        numbers = itertools.islice(itertools.count(options.first), options.cases)
        seconds = 60 * options.minutes * part.weight / total
        tally = run_part(part, seed, numbers, seconds, minimise=not options.no_minimise)
        done = f"{tally.cases} cases, {tally.count} {part.unit}, {tally.faults} faults"
        print(f"{part.name:<9} {done}, {tally.seconds:.0f} s (seed {seed})", flush=True)
        faults += tally.faults
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
