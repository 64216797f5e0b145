"""Measure how the time and the memory of every command that works on folders of runs grow with the number of runs.

The runs are beta-VAEs on toy data, trained for one step. Each command runs in a process of its own. Commands for a
single run (`export`, `traverse` on one run) and commands without runs (`list`, `data`, `demo`) are left out.

Run: python benchmarks/bench_growth.py [--full] [--jobs N] [--out FOLDER]. With --full, 12,600 runs are measured too.
With --jobs, commands that do not need each other's files run at the same time. Their CPU time is nearly the same as
when they run alone, and their wall time is not.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from machine import describe

SIZES = (10, 100, 1_000)
FULL_SIZE = 12_600
BETAS = "1,2,4,8"
METRICS = ["--metrics", "mig,sap"]
MIN_SECONDS = 0.5  # an exponent is fitted only if the time grows by at least this much
MIN_MEGABYTES = 20.0  # the same for memory
NAMES = ("seconds", "cpu_seconds", "megabytes")
STATUSES = {"reproduce": (0, 1, 2), "explore": (-signal.SIGTERM,)}  # other commands must end with 0
Measured = dict[str, float]


def commands(folder: Path, runs: int) -> dict[str, list[str]]:
    """Return the command lines in the order in which they run. Later ones need what earlier ones write."""
    here, few = str(folder / "runs"), str(folder.parent / "few")
    seeds = f"0-{max(1, runs // 4) - 1}"
    tiny = ["--data", "toy", "--steps", "1", "--batch", "8", "--latents", "4", "--quiet", "--out"]
    train = ["train", "beta_vae", "--beta", BETAS, "--seeds", seeds, *tiny, here]
    score = ["score", here, *METRICS, "--no-bounds", "--quiet", "--jobs", "1"]
    return {
        "train": train,
        "train again": train,
        "score": score,
        "score again": score,
        "index": ["index", here],
        "analyse": ["analyse", here, "--out", str(folder / "analyses")],
        "reproduce": ["reproduce", "locatello2019", "--runs", here],
        "compare": ["compare", here, few, "--quiet"],
        "select": ["select", here, "--within", "data", "--examples", "200", "--quiet"],
        "appearance": ["appearance", here, "--examples", "100", "--samples", "1", "--quiet"],
        "report": ["report", here, "--no-score", "--out", str(folder / "report.html"), "--quiet"],
        "explore": ["explore", here, "--best", "1"],
        "share export": ["share", "export", here, str(folder / "published")],
        "share check": ["share", "check", str(folder / "published")],
        "share import": ["share", "import", str(folder / "published"), str(folder / "imported")],
    }


def chains(names: Iterable[str]) -> list[list[str]]:
    """Return lists of commands. Commands of one list run one after the other, and different lists may run together."""
    sequences = [["index", "analyse", "reproduce"], ["share export", "share check", "share import"]]
    in_sequences = {name for sequence in sequences for name in sequence}
    return sequences + [[name] for name in names if name not in in_sequences]


def measure(line: list[str]) -> Measured:
    """Run a command and return its wall and CPU time in seconds, and its peak memory in MB.

    `explore` is stopped when it has started.
    """
    start = time.perf_counter()
    command = [sys.executable, "-m", "unbraid", *line]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        assert process.stdout is not None
        if line[0] == "explore":
            process.stdout.readline()
            process.terminate()  # a background job of a shell would ignore SIGINT
        process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
        errors.seek(0)
        if process.returncode not in STATUSES.get(line[0], (0,)):
            raise RuntimeError(f"{' '.join(line)}: status {process.returncode}: {errors.read()[-2000:]}")
    return {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "megabytes": usage.ru_maxrss / 1024,
    }


def exponent(measured: dict[int, Measured], name: str) -> float | None:
    """Return the exponent of the growth between the two largest sizes, after subtracting the value at the smallest.

    Return None if the value hardly grows.
    """
    smallest, *_, before, largest = sorted(measured)
    first, second = (measured[size][name] - measured[smallest][name] for size in (before, largest))
    low = MIN_MEGABYTES if name == "megabytes" else MIN_SECONDS
    if second < low:
        return None
    return math.log(second / max(first, low / 10)) / math.log(largest / before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help=f"also measure {FULL_SIZE:,} runs")
    parser.add_argument("--jobs", type=int, default=1, help="number of commands that run at the same time [1]")
    parser.add_argument("--out", type=Path, help="folder for the runs [a temporary folder]")
    options = parser.parse_args()
    sizes = (*SIZES, FULL_SIZE) if options.full else SIZES
    with tempfile.TemporaryDirectory(dir=options.out) as name:
        few = commands(Path(name) / "other", 12)
        for key in ("train", "score"):
            measure([word.replace(str(Path(name) / "other" / "runs"), str(Path(name) / "few")) for word in few[key]])
        measured: dict[str, dict[int, Measured]] = {}
        for size in sizes:
            folder = Path(name) / str(size)
            folder.mkdir()
            for key, found in measure_size(commands(folder, size), size, options.jobs).items():
                measured.setdefault(key, {})[size] = found
    save(measured)


def measure_size(lines: dict[str, list[str]], size: int, jobs: int) -> dict[str, Measured]:
    """Run the commands for one number of runs and return what was measured. All commands need `train` and `score`."""

    def run_chain(names: list[str]) -> dict[str, Measured]:
        found = {}
        for name in names:
            found[name] = one = measure(lines[name])
            shown = f"{one['seconds']:9.1f} s {one['cpu_seconds']:9.1f} s CPU {one['megabytes']:8.0f} MB"
            print(f"{size:>6} {name:<14}{shown}", flush=True)
        return found

    measured = run_chain(["train", "score"])
    with ThreadPoolExecutor(jobs) as pool:
        for found in pool.map(run_chain, chains(name for name in lines if name not in measured)):
            measured |= found
    return {name: measured[name] for name in lines}


def save(measured: dict[str, dict[int, Measured]]) -> None:
    """Print the exponents and write everything to the results folder."""
    rows: dict[str, Any] = {}
    for key, by_size in measured.items():
        exponents = {name: exponent(by_size, name) for name in NAMES}
        rows[key] = {"runs": {str(size): found for size, found in by_size.items()}, "exponents": exponents}
        shown = ", ".join(f"{name} {'flat' if v is None else format(v, '.2f')}" for name, v in exponents.items())
        print(f"{key:<14} exponents: {shown}")
    result = Path(__file__).parent / "results" / "bench_growth.json"
    result.write_text(json.dumps({**describe(), "commands": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
