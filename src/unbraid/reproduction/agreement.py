"""Published numbers, our numbers, and the rule by which they agree."""

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
CellKey = tuple[str, str]
ALLOWED_DEVIATIONS = 2.0  # distance of our mean from the published one, in published standard deviations
RULE = (
    "A cell agrees if our mean is within 2 published standard deviations of the published mean, plus half a unit of "
    "its last printed digit. A cell that is printed without a standard deviation has a tolerance instead. A sign "
    "agrees if ours is the same as the published one. It is open, and not compared, if the published difference is "
    "within 2 of its own standard errors plus the rounding error. p is the p-value of Welch's test that both means are "
    "equal; it is not part of the rule."
)


@dataclass(frozen=True)
class OurResult:
    """The result of our runs for a cell: their mean, the standard deviation over runs and the number of runs.

    For a sign, the mean is a difference and the spread is its standard error.
    """

    mean: float
    spread: float | None = None
    count: int = 1
    note: str = ""

    @classmethod
    def of(cls, values: Any, note: str = "") -> OurResult | None:
        """The summary of the finite values, with the sample standard deviation. None if there are no finite values.

        >>> OurResult.of([0.1, 0.3, float("nan")])
        OurResult(mean=0.2, spread=0.1414213562373095, count=2, note='')
        """
        numbers = np.asarray(values, float)
        finite = numbers[np.isfinite(numbers)]
        if not len(finite):
            return None
        return cls(float(finite.mean()), float(finite.std(ddof=1)) if len(finite) > 1 else None, len(finite), note)

    @property
    def error(self) -> float:
        """The standard error of the mean, or NaN if there is only one run."""
        return math.nan if self.spread is None else self.spread / math.sqrt(self.count)


def difference_of_means(plus: list[OurResult], minus: list[OurResult]) -> OurResult:
    """The sum of some means minus the sum of others, with its standard error and the smallest number of runs."""
    results = [*plus, *minus]
    error = math.sqrt(sum(one.error**2 for one in results))
    mean = sum(one.mean for one in plus) - sum(one.mean for one in minus)
    return OurResult(mean, None if math.isnan(error) else error, min(one.count for one in results))


@dataclass(frozen=True)
class Published:
    """A published number.

    Attributes:
        row: Row of the cell in the comparison.
        column: Column of the cell.
        value: The published mean.
        spread: The published standard deviation over seeds, or None.
        seeds: The published number of seeds, or None.
        tolerance: Allowed distance if there is no `spread`.
        unit: Unit of the last printed digit.
        source: Table or section of the paper.
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
        """The allowed distance of our mean from the published one."""
        return (self.tolerance if self.spread is None else ALLOWED_DEVIATIONS * self.spread) + self.unit / 2

    @property
    def open(self) -> bool:
        """Always False: only signs can be open."""
        return False

    def agrees(self, ours: OurResult) -> bool:
        """Whether our mean is within `reach` of the published one."""
        return abs(ours.mean - self.value) <= self.reach + 1e-12

    def p_value(self, ours: OurResult) -> float | None:
        """The p-value of Welch's test for equal means, or None if a standard deviation or a number is missing."""
        if self.spread is None or self.seeds is None or ours.spread is None:
            return None
        if self.spread == ours.spread == 0:
            return float(self.value == ours.mean)
        test = ttest_ind_from_stats(
            ours.mean, ours.spread, ours.count, self.value, self.spread, self.seeds, equal_var=False
        )
        return float(test.pvalue)


@dataclass(frozen=True)
class PublishedSign:
    """A published sign: a difference that is positive (1) or negative (-1).

    Attributes:
        row: Row of the cell in the comparison.
        column: Column of the cell.
        sign: 1 or -1.
        value: The published difference, or None if no numbers are printed.
        spread: The standard error of the published difference, or None.
        rounding: The largest error of `value` due to rounding of printed numbers.
        source: Table, figure or section of the paper.
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
        """Whether the published difference is too small to determine the sign, given its error and rounding."""
        if self.value is None or self.spread is None:
            return False
        return abs(self.value) <= ALLOWED_DEVIATIONS * self.spread + self.rounding

    def agrees(self, ours: OurResult) -> bool:
        """Whether our difference has the published sign."""
        return ours.mean * self.sign > 0

    def p_value(self, ours: OurResult) -> float | None:
        """Always None: signs are not tested."""
        return None


@dataclass(frozen=True)
class Cell:
    """A published number or sign with our result, or with the reason `why` there is none."""

    published: Published | PublishedSign
    ours: OurResult | None = None
    why: str = ""

    @property
    def verdict(self) -> Verdict:
        """Whether the cell agrees or differs, is missing (no result of ours) or open (the paper determines no sign)."""
        if self.published.open:
            return "open"
        if self.ours is None:
            return "missing"
        return "agree" if self.published.agrees(self.ours) else "differ"

    def flat_row(self) -> dict[str, Any]:
        """The cell as one flat row of a table."""
        printed, ours = self.published, self.ours
        is_sign = isinstance(printed, PublishedSign)
        return {
            "kind": "sign" if is_sign else "value",
            "row": printed.row,
            "column": printed.column,
            "ours": ours and ours.mean,
            "ours_spread": ours and ours.spread,
            "runs": ours.count if ours else 0,
            "paper": printed.value if printed.value is not None or not is_sign else float(printed.sign),
            "paper_spread": printed.spread,
            "paper_seeds": None if isinstance(printed, PublishedSign) else printed.seeds,
            "reach": None if isinstance(printed, PublishedSign) else printed.reach,
            "p": printed.p_value(ours) if ours else None,
            "verdict": self.verdict,
            "note": self.why or (ours.note if ours else ""),
            "source": printed.source,
        }


OurResults = Mapping[CellKey, OurResult | str]
"""Our result for each row and column, or the reason why there is none."""


@dataclass(frozen=True)
class Target:
    """A study with published numbers, and the functions that compute ours from a results table.

    Attributes:
        reference: The paper.
        published: The published numbers and signs.
        select: Selects the rows of a results table that correspond to the runs of the paper.
        ours: Computes our results from these rows.
        published_data: The name in the paper of one of our datasets, or None if the paper does not use it.
        metrics: The metrics that the comparison needs.
        only: The part of the study that the comparison needs, as settings and their values.
        finish: Adds further scores to trained runs. Called with their folder, the device and whether to be quiet.
    """

    reference: str
    published: tuple[Published | PublishedSign, ...]
    select: Callable[[DataFrame], DataFrame]
    ours: Callable[[DataFrame], OurResults]
    published_data: Callable[[str], str | None]
    metrics: tuple[str, ...]
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    finish: Callable[[Path, str, bool], None] | None = None


@dataclass(frozen=True)
class Reproduction:
    """The comparison of a study with our runs.

    Attributes:
        name: Name of the study.
        reference: The paper.
        cells: The published numbers and signs with our results.
        deviations: Sentences on how our runs deviate from the study.
        rule: The rule by which a cell agrees, in words.
    """

    name: str
    reference: str
    cells: tuple[Cell, ...]
    deviations: tuple[str, ...] = ()
    rule: str = field(default=RULE, repr=False)

    def cells_with(self, *verdicts: Verdict) -> list[Cell]:
        """The cells with one of the given verdicts."""
        return [cell for cell in self.cells if cell.verdict in verdicts]

    @property
    def status(self) -> int:
        """0 if all cells that were compared agree, else 1."""
        return int(bool(self.cells_with("differ")))

    def table(self) -> DataFrame:
        """One row per cell."""
        return DataFrame([cell.flat_row() for cell in self.cells])

    def summary_text(self) -> str:
        """The number of cells with each verdict, in a few sentences."""
        parts = []
        for name, signs in (("numbers", False), ("signs", True)):
            verdicts = [cell.verdict for cell in self.cells if isinstance(cell.published, PublishedSign) == signs]
            agree, differ = verdicts.count("agree"), verdicts.count("differ")
            if agree + differ:
                parts.append(f"{agree} of {agree + differ} {name} agree, {differ} differ.")
        parts.append(
            f"{len(self.cells_with('missing'))} cells are missing."
            if self.cells_with("missing")
            else "No cells are missing."
        )
        p_values = [p for cell in self.cells if cell.ours and (p := cell.published.p_value(cell.ours)) is not None]
        if p_values:
            alike = sum(p >= 0.05 for p in p_values)
            parts.append(f"By Welch's test, {alike} of {len(p_values)} means do not differ significantly (p >= .05).")
        if self.cells_with("open"):
            parts.append(f"{len(self.cells_with('open'))} signs are open: the published numbers do not determine them.")
        return " ".join(parts)


def compare_with_published(name: str, target: Target, table: DataFrame) -> Reproduction:
    """Compare our results from a results table with the published ones.

    Raises a UserError if no cell can be compared.
    """
    results = target.ours(target.select(table))
    cells = [make_cell(cell, results.get((cell.row, cell.column), "no such runs")) for cell in target.published]
    reproduction = Reproduction(name, target.reference, tuple(cells))
    if not reproduction.cells_with("agree", "differ"):
        reasons = list(dict.fromkeys(cell.why for cell in reproduction.cells_with("missing")))
        raise UserError(
            f"At least one cell of {name} must have runs to compare. None has: {'; '.join(reasons[:3])}. Run more of "
            f"the study (unbraid study {name} --plan lists its runs), or score its runs."
        )
    return reproduction


def make_cell(published: Published | PublishedSign, result: OurResult | str) -> Cell:
    """A cell with our result, or with the reason why there is none."""
    return Cell(published, result) if isinstance(result, OurResult) else Cell(published, why=result)
