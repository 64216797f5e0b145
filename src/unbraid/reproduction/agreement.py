"""Published numbers, ours beside them, and the rule by which they agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pandas import DataFrame
from scipy.stats import ttest_ind_from_stats

from unbraid.errors import UserError

Verdict = Literal["agree", "differ", "missing", "open"]
Place = tuple[str, str]
ALLOWED_DEVIATIONS = 2.0  # published standard deviations that our mean may lie away
RULE = (
    "A cell agrees where our mean lies within 2 published standard deviations of the published mean, widened by half a "
    "unit of its last printed digit. A cell printed without a spread has a tolerance instead. A sign agrees where ours "
    "is the published one; it is open, and not judged, where the published difference is within 2 of its own standard "
    "errors and what rounding may add. p is that of Welch's test that both means are equal; it decides nothing."
)


@dataclass(frozen=True)
class OurResult:
    """What our runs give for a cell: their mean, the standard deviation over them, how many they are.

    For a sign the mean is a difference and the spread its standard error.
    """

    mean: float
    spread: float | None = None
    count: int = 1
    note: str = ""

    @classmethod
    def of(cls, values: Any, note: str = "") -> OurResult | None:
        """The summary of the values that are finite, with the sample's standard deviation; None where there are none.

        >>> Ours.of([0.1, 0.3, float("nan")])
        Ours(mean=0.2, spread=0.1414213562373095, count=2, note='')
        """
        every = np.asarray(values, float)
        held = every[np.isfinite(every)]
        if not len(held):
            return None
        return cls(float(held.mean()), float(held.std(ddof=1)) if len(held) > 1 else None, len(held), note)

    @property
    def error(self) -> float:
        """The standard error of the mean; nan where it cannot be told."""
        return math.nan if self.spread is None else self.spread / math.sqrt(self.count)


def difference_of_means(plus: list[OurResult], minus: list[OurResult]) -> OurResult:
    """Some means less others; the spread is the standard error, the count that of the smallest."""
    every = [*plus, *minus]
    error = math.sqrt(sum(one.error**2 for one in every))
    mean = sum(one.mean for one in plus) - sum(one.mean for one in minus)
    return OurResult(mean, None if math.isnan(error) else error, min(one.count for one in every))


@dataclass(frozen=True)
class Published:
    """A printed number: mean and, where it is printed, standard deviation over seeds; `unit` is that of its last digit.

    `tolerance` stands in for two standard deviations where no spread is printed.
    """

    row: str
    column: str
    value: float
    spread: float | None = None
    seeds: int | None = None
    tolerance: float = 0.0
    unit: float = 0.01
    source: str = ""

    @property
    def reach(self) -> float:
        """How far our mean may lie from the printed one."""
        return (self.tolerance if self.spread is None else ALLOWED_DEVIATIONS * self.spread) + self.unit / 2

    @property
    def open(self) -> bool:
        """Never: a number is a number."""
        return False

    def agrees(self, ours: OurResult) -> bool:
        """Whether our mean is within reach."""
        return abs(ours.mean - self.value) <= self.reach + 1e-12

    def chance(self, ours: OurResult) -> float | None:
        """Welch's p for equal means; None where a spread or a number of seeds is not known."""
        if self.spread is None or self.seeds is None or ours.spread is None:
            return None
        if self.spread == ours.spread == 0:
            return float(self.value == ours.mean)
        found = ttest_ind_from_stats(
            ours.mean, ours.spread, ours.count, self.value, self.spread, self.seeds, equal_var=False
        )
        return float(found.pvalue)


@dataclass(frozen=True)
class PublishedSign:
    """A published sign: a difference that is positive (1) or negative (-1).

    `value` and `spread` are the published difference and its standard error, where numbers are printed; `rounding` is
    how far their last digits may move it.
    """

    row: str
    column: str
    sign: int
    value: float | None = None
    spread: float | None = None
    rounding: float = 0.0
    source: str = ""

    @property
    def open(self) -> bool:
        """Whether the published numbers leave the sign to chance or to rounding."""
        if self.value is None or self.spread is None:
            return False
        return abs(self.value) <= ALLOWED_DEVIATIONS * self.spread + self.rounding

    def agrees(self, ours: OurResult) -> bool:
        """Whether our difference has that sign."""
        return ours.mean * self.sign > 0

    def chance(self, ours: OurResult) -> float | None:
        """None: signs are not tested."""
        return None


@dataclass(frozen=True)
class Cell:
    """A published number or sign with ours, or with the reason why there is none."""

    published: Published | PublishedSign
    ours: OurResult | None = None
    why: str = ""

    @property
    def verdict(self) -> Verdict:
        """agree, differ, missing (nothing of ours), or open (the paper does not settle it)."""
        if self.published.open:
            return "open"
        if self.ours is None:
            return "missing"
        return "agree" if self.published.agrees(self.ours) else "differ"

    def line(self) -> dict[str, Any]:
        """All of it as one flat row."""
        printed, ours = self.published, self.ours
        claim = isinstance(printed, PublishedSign)
        return {
            "kind": "sign" if claim else "value",
            "row": printed.row,
            "column": printed.column,
            "ours": ours and ours.mean,
            "ours_spread": ours and ours.spread,
            "runs": ours.count if ours else 0,
            "paper": printed.value if printed.value is not None or not claim else float(printed.sign),
            "paper_spread": printed.spread,
            "paper_seeds": None if isinstance(printed, PublishedSign) else printed.seeds,
            "reach": None if isinstance(printed, PublishedSign) else printed.reach,
            "p": printed.chance(ours) if ours else None,
            "verdict": self.verdict,
            "note": self.why or (ours.note if ours else ""),
            "source": printed.source,
        }


OurResults = Mapping[Place, OurResult | str]
"""Our numbers by row and column, or why there is none."""


@dataclass(frozen=True)
class Target:
    """A study with published numbers: what is printed, and pure functions from a results table to ours.

    `select` leaves the runs that stand for the paper's, and `ours` makes our numbers of them. `home` is the dataset in
    the paper that a dataset's name stands for, or None; `metrics` and `only` are the scores and the part of the study
    that cells need; `finish` adds scores to trained runs (their folder, the device, quiet or not).
    """

    reference: str
    published: tuple[Published | PublishedSign, ...]
    select: Callable[[DataFrame], DataFrame]
    ours: Callable[[DataFrame], OurResults]
    home: Callable[[str], str | None]
    metrics: tuple[str, ...]
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    finish: Callable[[Path, str, bool], None] | None = None


@dataclass(frozen=True)
class Reproduction:
    """A study's published cells beside ours, and what was cut of the study."""

    name: str
    reference: str
    cells: tuple[Cell, ...]
    cuts: tuple[str, ...] = ()
    rule: str = field(default=RULE, repr=False)

    def of(self, *verdicts: Verdict) -> list[Cell]:
        """The cells with one of these verdicts."""
        return [cell for cell in self.cells if cell.verdict in verdicts]

    @property
    def status(self) -> int:
        """0 where all cells that were compared agree, 1 where some differ."""
        return int(bool(self.of("differ")))

    def table(self) -> DataFrame:
        """A row a cell."""
        return DataFrame([cell.line() for cell in self.cells])

    def said(self) -> str:
        """The verdicts in a few sentences."""
        parts = []
        for name, claims in (("numbers", False), ("signs", True)):
            kinds = [cell.verdict for cell in self.cells if isinstance(cell.published, PublishedSign) == claims]
            agree, differ = kinds.count("agree"), kinds.count("differ")
            if agree + differ:
                parts.append(f"{agree} of {agree + differ} {name} agree, {differ} differ.")
        parts.append(f"{len(self.of('missing'))} cells are missing." if self.of("missing") else "None is missing.")
        chances = [one for cell in self.cells if cell.ours and (one := cell.published.chance(cell.ours)) is not None]
        if chances:
            alike = sum(one >= 0.05 for one in chances)
            parts.append(f"By Welch's test {alike} of {len(chances)} means do not differ (p >= .05).")
        if self.of("open"):
            parts.append(f"{len(self.of('open'))} signs are open: the published numbers do not settle them.")
        return " ".join(parts)


def compare_with_published(name: str, target: Target, table: DataFrame) -> Reproduction:
    """Our numbers from a results table beside the published ones; refused where nothing can be compared."""
    found = target.ours(target.select(table))
    cells = [make_cell(printed, found.get((printed.row, printed.column), "no such runs")) for printed in target.published]
    made = Reproduction(name, target.reference, tuple(cells))
    if not made.of("agree", "differ"):
        reasons = list(dict.fromkeys(cell.why for cell in made.of("missing")))
        raise UserError(
            f"Some cell of {name} must have runs to compare. None has: {'; '.join(reasons[:3])}. Run more of the study "
            f"(unbraid study {name} --plan shows what there is), or score its runs."
        )
    return made


def make_cell(printed: Published | PublishedSign, found: OurResult | str) -> Cell:
    """One cell."""
    return Cell(printed, found) if isinstance(found, OurResult) else Cell(printed, why=found)
