"""Run the campaign of faults: python -m faults.campaign --minutes 5, in the folder `tests`."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import secrets
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from faults.bad_input import BadInput
from faults.cluster import Cluster
from faults.commands import check_coverage
from faults.disk import Disk
from faults.hostile import Hostile
from faults.kills import Kills
from faults.pages import Pages
from faults.pairs import Pairs
from faults.parts import Part, Result, run_number
from faults.processes import preload
from faults.readers import Readers
from faults.requests import Requests
from faults.totals import Tally, add_session, tally_line
from unbraid.runtime.workers import end_with_parent

CLASSES = (BadInput, Readers, Kills, Cluster, Pairs, Disk, Hostile, Pages, Requests)
PARTS: dict[str, type[Part]] = {part.name: part for part in CLASSES}
ALL_CASES = 10**9


@dataclass(frozen=True)
class Plan:
    """What one of several processes does.

    Attributes:
        parts: The names of the parts.
        seed: The seed of the generators.
        numbers: The numbers of the cases. They are the same for every part.
        minutes: The time to spend on all parts together.
        minimise: Whether to make failing cases simpler.
    """

    parts: tuple[str, ...]
    seed: int
    numbers: range
    minutes: float
    minimise: bool


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


def run_part(part: Part, seed: int, numbers: Iterable[int], seconds: float, *, minimise: bool) -> Tally:
    """Run the cases with these numbers until the time is used up, and print the failures."""
    tally, start = Tally(part.unit), time.monotonic()
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
    again = f"--parts {result.part} --seed {seed} --first {result.number} --cases 1"
    text = [f"FAULT in {result.part}: {result.outcome.fault}", f"    {result.case}"]
    text += [*(f"    {line[:300]}" for line in shown), f"    To repeat it: make test-faults FAULTS='{again}'"]
    print("\n".join(text), flush=True)


def run_plan(plan: Plan) -> dict[str, Tally]:
    """Run the parts of a plan one after the other, and return their tallies by name."""
    parts = [PARTS[name]() for name in plan.parts]
    total = sum(part.weight for part in parts)
    return {
        part.name: run_part(
            part, plan.seed, plan.numbers, 60 * plan.minutes * part.weight / total, minimise=plan.minimise
        )
        for part in parts
    }


def run_plans(plans: list[Plan]) -> dict[str, Tally]:
    """Run each plan in a process of its own, and return the sums of the tallies."""
    if len(plans) == 1:
        return run_plan(plans[0])
    context, parent = multiprocessing.get_context("fork"), os.getpid()
    with ProcessPoolExecutor(len(plans), context, initializer=end_with_parent, initargs=(parent,)) as pool:
        found = list(pool.map(run_plan, plans))
    return {name: sum((tallies[name] for tallies in found[1:]), found[0][name]) for name in found[0]}


def parse() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="time to spend on all parts together [5]")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"parts to run [{','.join(PARTS)}]")
    parser.add_argument("--processes", type=int, default=1, help="processes that share the time and the cases [1]")
    parser.add_argument("--cases", type=int, default=ALL_CASES, help="largest number of cases of each part")
    parser.add_argument("--seed", type=int, help="seed of the generators [a new one each time]")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--no-minimise", action="store_true", help="print failing cases as they are")
    parser.add_argument("--out", type=Path, help="JSON file to which the totals are added")
    return parser.parse_args()


def available_parts(names: Iterable[str]) -> tuple[str, ...]:
    """Return the parts that can run on this machine, and print why others are skipped."""
    reasons = {name: PARTS[name]().reason_to_skip() for name in names}
    for name, reason in reasons.items():
        if reason:
            print(f"{name:<9} skipped: {reason}", flush=True)
    return tuple(name for name, reason in reasons.items() if not reason)


def main() -> int:
    """Run all parts, print the number of cases and faults of each, and return 1 if there is a fault."""
    options = parse()
    warnings.simplefilter("ignore", DeprecationWarning)  # forking a process with threads
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    check_coverage()
    preload()
    parts = available_parts(options.parts.split(","))
    numbers = range(options.first, options.first + options.cases)
    count = max(1, min(options.processes, options.cases))
    minutes = options.minutes / count
    tallies = run_plans([Plan(parts, seed, numbers[k::count], minutes, not options.no_minimise) for k in range(count)])
    for name, tally in tallies.items():
        print(f"{tally_line(name, tally)} (seed {seed})", flush=True)
    if options.out:
        add_session(options.out, seed, options.minutes, tallies)
    return int(any(tally.faults for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
