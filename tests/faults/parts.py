"""What a part of the campaign must provide, and how a failing case is made smaller."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

Case = Any  # each part has a dataclass of its own, whose text is printed for a failure


class Part(ABC):
    """A part of the campaign.

    Attributes:
        name: Its name on the command line.
        weight: Its share of the time.
        unit: What `Outcome.count` counts.
    """

    name: str
    weight: float
    unit: str

    def reason_to_skip(self) -> str:
        """Return why the part cannot run on this machine, or an empty text."""
        return ""

    @abstractmethod
    def prepare(self, folder: Path) -> None:
        """Write the files that the cases need into an empty folder."""

    @abstractmethod
    def make_case(self, random: Random) -> Case:
        """Generate a case."""

    @abstractmethod
    def run(self, case: Case) -> Outcome:
        """Run a case."""

    def simpler(self, case: Case) -> Iterator[Case]:
        """Generate the cases that are a little simpler than a case."""
        return iter(())

    def close(self) -> None:  # noqa: B027
        """End what was started."""


@dataclass(frozen=True)
class Outcome:
    """How a case ended.

    Attributes:
        fault: What is wrong, or an empty text.
        output: What the commands wrote to standard error, or what a server answered.
        count: The number of signals that reached a command, of requests, or of what else the part counts.
    """

    fault: str
    output: str = ""
    count: int = 1


@dataclass(frozen=True)
class Result:
    """A case with its number and its outcome."""

    part: str
    number: int
    case: Case
    outcome: Outcome


def run_number(part: Part, seed: int, number: int, *, minimise: bool = True) -> Result:
    """Generate the case with a number and run it. If it fails, make it as simple as possible."""
    case = part.make_case(Random(f"{seed} {part.name} {number}"))
    outcome = part.run(case)
    if outcome.fault and minimise:
        case, outcome = simplest(part, case, outcome)
    return Result(part.name, number, case, outcome)


def simplest(part: Part, case: Case, outcome: Outcome, attempts: int = 40) -> tuple[Case, Outcome]:
    """Return the simplest case that still fails, after at most this many attempts."""
    found = True
    while found:
        found = False
        for candidate in part.simpler(case):
            if attempts == 0:
                return case, outcome
            attempts -= 1
            tried = part.run(candidate)
            if tried.fault:
                case, outcome, found = candidate, tried, True
                break
    return case, outcome
