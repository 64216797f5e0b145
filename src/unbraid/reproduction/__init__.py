"""Compare the published results of studies with the results of runs that were trained with unbraid."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pandas import DataFrame

from unbraid.errors import UserError, unknown_name_message
from unbraid.reproduction import baselines, demystifying, locatello, quantised, vitae
from unbraid.reproduction.agreement import (
    RULE,
    Cell,
    OurResult,
    Published,
    PublishedSign,
    Reproduction,
    Target,
    compare_with_published,
)
from unbraid.reproduction.deviations import list_deviations
from unbraid.reproduction.example_table import example_results
from unbraid.reproduction.figure import draw_reproduction
from unbraid.reproduction.saving import save_reproduction
from unbraid.runtime.arguments import explain_unknown_arguments

TARGETS: dict[str, Target] = {
    "demystifying2021": demystifying.TARGET,
    "locatello2019": locatello.TARGET,
    "lin2020": baselines.SCORES_TARGET,
    "dubois2019": baselines.LOSSES_TARGET,
    "hsu2024": quantised.TARGET,
    "vitae_mnist": vitae.DIGITS,
    "vitae_bodies": vitae.BODIES,
}
STUDIES_WITHOUT_NUMBERS: dict[str, str] = {  # the reason why there are no published numbers to compare with
    "locatello2020_weak": "the scores in its paper are not included in unbraid",
    "pmp2021": "its scores are in tables 1 to 4 of the main paper, which are not included in unbraid",
    "locatello2020_labels": "the scores in its paper are not included in unbraid",
    "roth2023": "the scores in its paper are not included in unbraid",
    "klindt2021": "the scores in its paper are not included in unbraid",
    "pmp_meshes": "its paper gives no scores for meshes",
    "diffusion2019": "the scores of its submission to the challenge were not published",
    "vitae_celeba": "its paper gives no scores for faces",
    "vitae_stability": "figure 1 of its supplement has no numbers (the analysis stability draws it)",
    "beyond2026": "it is a study of unbraid and does not come from a paper",
    "small": "it is a test study of unbraid and does not come from a paper",
}

__all__ = [
    "RULE",
    "STUDIES_WITHOUT_NUMBERS",
    "TARGETS",
    "Cell",
    "OurResult",
    "Published",
    "PublishedSign",
    "Reproduction",
    "Target",
    "compare_with_published",
    "draw_reproduction",
    "example_results",
    "find_target",
    "list_deviations",
    "reproduce",
    "save_reproduction",
]


def find_target(name: str) -> Target:
    """Return the published numbers of a study. Raise a UserError that gives the reason if there are none."""
    if name in STUDIES_WITHOUT_NUMBERS:
        raise UserError(
            f"There are no published numbers to compare {name} with, because {STUDIES_WITHOUT_NUMBERS[name]}. Choose "
            f"one of the studies with published numbers: {', '.join(TARGETS)}."
        )
    if name not in TARGETS:
        raise UserError(unknown_name_message("study with published numbers", name, TARGETS))
    return TARGETS[name]


@explain_unknown_arguments()
def reproduce(name: str, runs: str | Path | DataFrame) -> Reproduction:
    """Compare the published numbers of a study with those of runs that were trained with unbraid. Nothing is trained.

    Args:
        name: Name of a study in `TARGETS`.
        runs: A results table, a file that contains one (`results.sqlite`, or a .csv or .parquet file), or a folder of
            runs that contains `results.sqlite`.

    Returns:
        The comparison. `draw_reproduction` draws it, and `save_reproduction` writes it to files.

    Raises:
        UserError: If the study is unknown or has no published numbers, or if no run corresponds to any of these
            numbers.

    >>> result = reproduce("demystifying2021", example_results("demystifying2021"))
    >>> len(result.cells_with("agree")) > 100, len(result.cells_with("differ")), result.status
    (True, 0, 0)
    """
    from unbraid.runs.results import load_results

    target = find_target(name)
    table = runs if isinstance(runs, DataFrame) else load_results(runs)
    has_run_folders = not isinstance(runs, DataFrame) and Path(runs).suffix != ".csv"
    path = Path(str(runs)) if has_run_folders else None
    folder = path.parent if path is not None and path.is_file() else path
    reproduction = compare_with_published(name, target, table)
    return replace(reproduction, deviations=list_deviations(name, target, table, folder))
