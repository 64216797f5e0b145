"""Published tables beside ours: what agrees, what differs, what is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pandas import DataFrame

from unbraid.errors import UserError, unknown_name
from unbraid.reproduction import demystifying, locatello, vitae
from unbraid.reproduction.agreement import RULE, Cell, PublishedSign, OurResult, Published, Reproduction, Target, compare_with_published
from unbraid.reproduction.deviations import list_deviations
from unbraid.reproduction.example_table import example_results
from unbraid.reproduction.figure import draw_reproduction
from unbraid.reproduction.saving import save_reproduction

TARGETS: dict[str, Target] = {
    "demystifying2021": demystifying.TARGET,
    "locatello2019": locatello.TARGET,
    "vitae_mnist": vitae.DIGITS,
    "vitae_bodies": vitae.BODIES,
}
STUDIES_WITHOUT_NUMBERS: dict[str, str] = {  # studies, and why there is nothing to compare them with
    "locatello2020_weak": "its paper's scores are not among the numbers kept here",
    "pmp2021": "its scores are in tables 1 to 4 of the main paper, which are not among the numbers kept here",
    "diffusion2019": "the scores of its submission to the challenge were not published",
    "vitae_celeba": "its paper prints no scores of faces",
    "small": "it is a rehearsal of ours, and no paper's",
}

__all__ = [
    "RULE",
    "TARGETS",
    "STUDIES_WITHOUT_NUMBERS",
    "Cell",
    "PublishedSign",
    "OurResult",
    "Published",
    "Reproduction",
    "Target",
    "compare_with_published",
    "list_deviations",
    "draw_reproduction",
    "example_results",
    "reproduce",
    "save_reproduction",
    "find_target",
]


def find_target(name: str) -> Target:
    """The published numbers of a study; one that has none is refused with the reason."""
    if name in STUDIES_WITHOUT_NUMBERS:
        raise UserError(
            f"There are no published numbers to compare {name} with: {STUDIES_WITHOUT_NUMBERS[name]}. Studies with some: "
            f"{', '.join(TARGETS)}."
        )
    if name not in TARGETS:
        raise UserError(unknown_name("study with published numbers", name, TARGETS))
    return TARGETS[name]


def reproduce(name: str, runs: str | Path | DataFrame) -> Reproduction:
    """A study's published numbers beside those of our runs: a folder of them, its results file, or its table.

    Nothing is trained. `draw_reproduction` draws what is found, `save_reproduction` writes it.

    >>> found = reproduce("demystifying2021", planted("demystifying2021"))
    >>> len(found.of("agree")) > 100, len(found.of("differ")), found.status
    (True, 0, 0)
    """
    from unbraid.runs.results import load_results

    target = find_target(name)
    table = runs if isinstance(runs, DataFrame) else load_results(runs)
    path = None if isinstance(runs, DataFrame) or Path(runs).suffix == ".csv" else Path(runs)  # beside one no runs lie
    folder = path.parent if path is not None and path.is_file() else path
    found = compare_with_published(name, target, table)
    return replace(found, cuts=list_deviations(name, target, table, folder))
