"""Published numbers, our numbers, and the rule that decides whether they agree."""

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
ALLOWED_DEVIATIONS = 2.0  # maximum distance of our mean from the published mean, in published standard deviations
RULE = (
    "A number agrees if our mean is within 2 published standard deviations of the published mean, plus half a unit of "
    "its last printed digit. A number that is printed without a standard deviation has a fixed tolerance instead: 5 % "
    "of losses and total correlations, and 5 percentage points of explained variances and win rates. A sign agrees if "
    "our difference has the published sign. A sign is open, and is not compared, if the published difference is at "
    "most 2 of its standard errors plus the rounding error. p is the p-value of Welch's test for equal means. It is "
    "not part of the rule."
)


@dataclass(frozen=True)
class OurResult:
    """The result of our runs for a cell, that is, for one published number or sign.

    Attributes:
        mean: The mean over runs. For a sign, the difference of means.
        spread: The standard deviation over runs, or None if there is only one run. For a sign, the standard error of
            the difference.
        count: The number of runs.
        note: A remark that is shown beside the numbers.
    """

    mean: float
    spread: float | None = None
    count: int = 1
    note: str = ""

    @classmethod
    def of(cls, values: Any, note: str = "") -> OurResult | None:
        """Summarise the finite values by their mean and sample standard deviation.

        Return None if there are no finite values.

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
    """Return the sum of the means in `plus` minus the sum of those in `minus`.

    The `spread` of the result is the standard error of this difference. Its `count` is the smallest `count` of the
    given results.
    """
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
        tolerance: The maximum distance at which a result agrees if there is no `spread`. Half a unit of the last
            printed digit is added to it.
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
        """The maximum distance from the published mean at which our mean agrees."""
        return (self.tolerance if self.spread is None else ALLOWED_DEVIATIONS * self.spread) + self.unit / 2

    @property
    def open(self) -> bool:
        """Always False, because only signs can be open."""
        return False

    def agrees(self, ours: OurResult) -> bool:
        """Return whether our mean is within `reach` of the published mean."""
        return abs(ours.mean - self.value) <= self.reach + 1e-12

    def p_value(self, ours: OurResult) -> float | None:
        """Return the p-value of Welch's test for equal means.

        Return None if a standard deviation or the published number of seeds is missing.
        """
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
    """The published sign of a difference, which is 1 if the difference is positive and -1 if it is negative.

    Attributes:
        row: Row of the cell in the comparison.
        column: Column of the cell.
        sign: 1 or -1.
        value: The published difference, or None if the paper does not print the numbers.
        spread: The standard error of the published difference, or None.
        rounding: The maximum error of `value` that is due to the rounding of printed numbers.
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
        """Return whether our difference has the published sign."""
        return ours.mean * self.sign > 0

    def p_value(self, ours: OurResult) -> float | None:
        """Return None, because signs are not tested."""
        return None


@dataclass(frozen=True)
class Cell:
    """A published number or sign with our result, or with the reason `why` there is no result."""

    published: Published | PublishedSign
    ours: OurResult | None = None
    why: str = ""

    @property
    def verdict(self) -> Verdict:
        """The verdict on the cell.

        It is "agree" or "differ", "missing" if we have no result, or "open" if the published numbers do not determine
        the sign.
        """
        if self.published.open:
            return "open"
        if self.ours is None:
            return "missing"
        return "agree" if self.published.agrees(self.ours) else "differ"

    def flat_row(self) -> dict[str, Any]:
        """Return the cell as one flat row of a table."""
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
"""Our result for each cell (row and column), or the reason why there is no result."""


@dataclass(frozen=True)
class Target:
    """A study with published numbers, and the functions that compute our numbers from a results table.

    Attributes:
        reference: The paper.
        published: The published numbers and signs.
        select: A function that selects the rows of a results table that correspond to the runs of the paper.
        ours: A function that computes our results from these rows.
        published_data: A function that maps the name of one of our datasets to its name in the paper, or to None if the
            paper does not use the dataset.
        metrics: The metrics that the comparison needs.
        only: The part of the study that the comparison needs, as settings and their values.
        finish: A function that adds further scores to trained runs. It is called with their folder, the device and
            whether to hide progress.
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
        deviations: Phrases that say how our runs deviate from the study.
        rule: The rule that decides whether a cell agrees, in words.
    """

    name: str
    reference: str
    cells: tuple[Cell, ...]
    deviations: tuple[str, ...] = ()
    rule: str = field(default=RULE, repr=False)

    def cells_with(self, *verdicts: Verdict) -> list[Cell]:
        """Return the cells with one of the given verdicts."""
        return [cell for cell in self.cells if cell.verdict in verdicts]

    @property
    def status(self) -> int:
        """0 if all cells that were compared agree, and 1 otherwise."""
        return int(bool(self.cells_with("differ")))

    def table(self) -> DataFrame:
        """Return a table with one row per cell."""
        return DataFrame([cell.flat_row() for cell in self.cells])

    def summary_text(self) -> str:
        """Return sentences that say how many cells agree, differ, are missing or are open."""
        parts = []
        for name, signs in (("numbers", False), ("signs", True)):
            verdicts = [cell.verdict for cell in self.cells if isinstance(cell.published, PublishedSign) == signs]
            agree, differ = verdicts.count("agree"), verdicts.count("differ")
            if agree + differ:
                verbs = "agrees" if agree == 1 else "agree", "differs" if differ == 1 else "differ"
                parts.append(f"{agree} of {agree + differ} {name} {verbs[0]} and {differ} {verbs[1]}.")
        missing = len(self.cells_with("missing"))
        parts.append("1 cell is missing." if missing == 1 else f"{missing or 'No'} cells are missing.")
        p_values = [p for cell in self.cells if cell.ours and (p := cell.published.p_value(cell.ours)) is not None]
        if p_values:
            alike = sum(p >= 0.05 for p in p_values)
            test = f"By Welch's test, {alike} of {len(p_values)} means do not differ significantly"
            parts.append(f"{test} from the published means (p >= 0.05).")
        if n_open := len(self.cells_with("open")):
            subject = "1 sign is open" if n_open == 1 else f"{n_open} signs are open"
            pronoun = "it" if n_open == 1 else "them"
            parts.append(f"{subject}, because the published numbers do not determine {pronoun}.")
        return " ".join(parts)


def compare_with_published(name: str, target: Target, table: DataFrame) -> Reproduction:
    """Compare our results from a results table with the published results.

    Raise a UserError if no cell can be compared.
    """
    results = target.ours(target.select(table))
    cells = [make_cell(cell, results.get((cell.row, cell.column), "no such runs")) for cell in target.published]
    reproduction = Reproduction(name, target.reference, tuple(cells))
    if not reproduction.cells_with("agree", "differ"):
        reasons = list(dict.fromkeys(cell.why for cell in reproduction.cells_with("missing")))
        raise UserError(
            f"At least one cell of {name} must have runs to compare. Got none instead ({'; '.join(reasons[:3])}). "
            f"Score the existing runs, or train more runs of the study. List them with: unbraid study {name} --plan"
        )
    return reproduction


def make_cell(published: Published | PublishedSign, result: OurResult | str) -> Cell:
    """Return a cell with our result, or with the reason why there is no result."""
    return Cell(published, result) if isinstance(result, OurResult) else Cell(published, why=result)
