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
COMMAND = "make test-faults MINUTES={minutes:.0f} FAULTS='--out ../benchmarks/results/faults.json'"


def promise_pages() -> dict[Path, str]:
    """Return the page with its current tables."""
    text = replace_block(PAGE.read_text(), "faults", campaign())
    return {PAGE: replace_block(text, "growth", growth())}


def campaign() -> str:
    """Return the totals of all stored sessions of the campaign."""
    if not (RESULTS / "faults.json").exists():
        return "No long campaign has been stored yet. `make test-faults MINUTES=60` runs one."
    sessions = result("faults")["sessions"]
    last, every = totals(sessions[-1:]), totals(sessions)
    rows = [
        [what, *(f"{count:,}" for name_totals in (last, every) for count in name_totals[name])]
        for name, what in PARTS.items()
        if name in last
    ]
    header = ["what", "last session", "faults", "all sessions", "faults"]
    return f"{about(sessions)}\n\n{table(header, rows)}"


def totals(sessions: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """Return the numbers of cases and of faults of each part in all sessions together."""
    done, faults = Counter[str](), Counter[str]()
    for session in sessions:
        for name, tally in session["parts"].items():
            done[name] += tally["count"]
            faults[name] += tally["faults"]
    return {name: (done[name], faults[name]) for name in done}


def about(sessions: list[dict[str, Any]]) -> str:
    """Return the length, the commit, the seed and the machine of the last session, and how many there were before."""
    last, minutes = sessions[-1], sum(session["minutes"] for session in sessions)
    machine = last["machine"]
    return (
        f"The last session took {last['minutes']:.0f} minutes, half of them on each of two cores, at commit "
        f"`{str(last['commit'])[:8]}` with seed {last['seed']}, on {machine['cores']} cores of an "
        f"{machine['processor']}. All {len(sessions)} sessions together took {minutes:,.0f} minutes. To run "
        f"such a session:\n\n```text\n{COMMAND.format(minutes=last['minutes'])}\n```"
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
