"""The numbers of cases and faults, and the file in which they are kept."""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Tally:
    """The number of cases of a part, of what they did (signals, requests), and of faults, and the time."""

    unit: str
    cases: int = 0
    count: int = 0
    faults: int = 0
    seconds: float = 0.0

    def __add__(self, other: Tally) -> Tally:
        """Return the sum of two tallies of the same part."""
        names = ("cases", "count", "faults", "seconds")
        return Tally(self.unit, **{name: getattr(self, name) + getattr(other, name) for name in names})


def tally_line(name: str, tally: Tally) -> str:
    """Return a tally as a line of text.

    >>> tally_line("kills", Tally("signals", 3, 7, 0, 12.0))
    'kills     3 cases, 7 signals, 0 faults, 12 s'
    """
    return f"{name:<9} {tally.cases} cases, {tally.count} {tally.unit}, {tally.faults} faults, {tally.seconds:.0f} s"


def add_session(file: Path, seed: int, minutes: float, tallies: dict[str, Tally]) -> None:
    """Add a session of the campaign to a JSON file, with the commit and the machine on which it ran."""
    sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
    from machine import describe

    sessions: list[Any] = json.loads(file.read_text())["sessions"] if file.exists() else []
    parts = {name: dataclasses.asdict(tally) for name, tally in tallies.items()}
    sessions.append({**describe(), "seed": seed, "minutes": minutes, "parts": parts})
    file.write_text(json.dumps({"sessions": sessions}, indent=1) + "\n")
