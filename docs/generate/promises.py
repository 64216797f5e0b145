"""The tables in docs/design/promises.md: the campaign of faults, and the growth of time and memory with the runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from generate import ROOT
from generate.markdown import RESULTS, replace_block, result, table

PAGE = ROOT / "docs" / "design" / "promises.md"
PARTS = {
    "input": "wrong command lines and damaged files, for every command",
    "readers": "damaged files, for every reader of published data",
    "kills": "signals sent to commands that were running",
    "cluster": "Ray workers, nodes and drivers killed",
    "pairs": "pairs of commands at the same time in one folder",
    "disk": "commands on a full or read-only disk, in a folder that disappears, or with a clock that goes backwards",
    "hostile": "hostile folders, archives and names",
    "pages": "hostile pages, in Chromium",
    "requests": "requests to `unbraid explore`",
}
COMMAND = "cd tests && python -m faults.campaign --minutes 45 --processes 3 --out ../benchmarks/results/faults.json"


def promise_pages() -> dict[Path, str]:
    """Return the page with its current tables."""
    text = replace_block(PAGE.read_text(), "faults", campaign())
    return {PAGE: replace_block(text, "growth", growth())}


def campaign() -> str:
    """Return the totals of all stored sessions of the campaign."""
    if not (RESULTS / "faults.json").exists():
        return "No long campaign has been stored yet. `make test-faults MINUTES=60` runs one."
    sessions = result("faults")["sessions"]
    done, faults = Counter[str](), Counter[str]()
    for session in sessions:
        for name, tally in session["parts"].items():
            done[name] += tally["count"]
            faults[name] += tally["faults"]
    rows = [[what, f"{done[name]:,}", str(faults[name])] for name, what in PARTS.items() if name in done]
    return f"{about(sessions)}\n\n{table(['what', 'number', 'faults'], rows)}"


def about(sessions: list[dict[str, Any]]) -> str:
    """Return how many sessions there were, their command, their commits and their machine."""
    minutes = sum(session["minutes"] for session in sessions)
    commits = ", ".join(dict.fromkeys(f"`{str(session['commit'])[:8]}`" for session in sessions))
    described = (
        f"{machine['cores']} cores of an {machine['processor']}" for machine in (s["machine"] for s in sessions)
    )
    machines = " and ".join(dict.fromkeys(described))
    several = "session" if len(sessions) == 1 else "sessions"
    return (
        f"The table has the totals of {len(sessions)} {several}, together {minutes:.0f} minutes of one core, at the "
        f"commits {commits} on {machines}. The option `--parts` selects parts:\n\n```text\n{COMMAND}\n```"
    )


def growth() -> str:
    """Return the CPU time and the memory of every command by the number of runs, with the fitted exponents."""
    bench = result("bench_growth")
    sizes = [int(size) for size in next(iter(bench["commands"].values()))["runs"]]
    header = ["command", *(f"{size:,} runs" for size in sizes[1:]), "exponent of time", "exponent of memory"]
    rows = []
    for name, row in bench["commands"].items():
        cells = [row["runs"][str(size)] for size in sizes[1:]]
        shown = [f"{cell['cpu_seconds']:.1f} s, {cell['megabytes']:,.0f} MB" for cell in cells]
        rows.append([f"`{name}`", *shown, *(exponent(row["exponents"][key]) for key in ("cpu_seconds", "megabytes"))])
    machine = bench["machine"]
    return (
        f"Seconds of computing and peak memory on one core of an {machine['processor']} "
        f"(`python benchmarks/bench_growth.py{' --full' * (sizes[-1] > 1000)}`). "
        "The runs are tiny, so that the cost of each run counts and not "
        "that of its network. *Again* is the same command on finished work. The time t of n runs grows as t ~ n^a "
        "between the two largest numbers of runs, after subtracting the time of 10 runs; a is the exponent, and *flat* "
        "means that the time hardly grows.\n\n" + table(header, rows)
    )


def exponent(value: float | None) -> str:
    """Return an exponent with two decimals."""
    return "flat" if value is None else f"{value:.2f}"
