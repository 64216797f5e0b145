"""Published tables beside ours: what agrees, what differs, what is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pandas import DataFrame

from unbraid.errors import UserError, unknown
from unbraid.reproduction import demystifying, locatello, vitae
from unbraid.reproduction.agreement import RULE, Cell, Claim, Ours, Published, Reproduction, Target, compared
from unbraid.reproduction.cuts import cuts
from unbraid.reproduction.example_table import planted
from unbraid.reproduction.figure import picture
from unbraid.reproduction.saving import save

TARGETS: dict[str, Target] = {
    "demystifying2021": demystifying.TARGET,
    "locatello2019": locatello.TARGET,
    "vitae_mnist": vitae.DIGITS,
    "vitae_bodies": vitae.BODIES,
}
WITHOUT: dict[str, str] = {  # studies, and why there is nothing to compare them with
    "locatello2020_weak": "its paper's scores are not among the numbers kept here",
    "pmp2021": "its scores are in tables 1 to 4 of the main paper, which are not among the numbers kept here",
    "diffusion2019": "the scores of its submission to the challenge were not published",
    "vitae_celeba": "its paper prints no scores of faces",
    "small": "it is a rehearsal of ours, and no paper's",
}

__all__ = [
    "RULE",
    "TARGETS",
    "WITHOUT",
    "Cell",
    "Claim",
    "Ours",
    "Published",
    "Reproduction",
    "Target",
    "compared",
    "cuts",
    "picture",
    "planted",
    "reproduce",
    "save",
    "target_of",
]


def target_of(name: str) -> Target:
    """The published numbers of a study; one that has none is refused with the reason."""
    if name in WITHOUT:
        raise UserError(
            f"There are no published numbers to compare {name} with: {WITHOUT[name]}. Studies with some: "
            f"{', '.join(TARGETS)}."
        )
    if name not in TARGETS:
        raise UserError(unknown("study with published numbers", name, TARGETS))
    return TARGETS[name]


def reproduce(name: str, runs: str | Path | DataFrame) -> Reproduction:
    """A study's published numbers beside those of our runs: a folder of them, its results file, or its table.

    Nothing is trained. `picture` draws what is found, `save` writes it.

    >>> found = reproduce("demystifying2021", planted("demystifying2021"))
    >>> len(found.of("agree")) > 100, len(found.of("differ")), found.status
    (True, 0, 0)
    """
    from unbraid.runs.results import load

    target = target_of(name)
    table = runs if isinstance(runs, DataFrame) else load(runs)
    path = None if isinstance(runs, DataFrame) or Path(runs).suffix == ".csv" else Path(runs)  # beside one no runs lie
    folder = path.parent if path is not None and path.is_file() else path
    found = compared(name, target, table)
    return replace(found, cuts=cuts(name, target, table, folder))
