"""What the supplement of "Explicit disentanglement of appearance and perspective" says in words, and our signs of it.

It prints no scores: its tables are architectures and timings.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pandas import DataFrame

from unbraid.reproduction.agreement import PublishedSign, OurResults, OurResult, Place, Target, difference_of_means
from unbraid.reproduction.rows import runs_on_published_data, longest_runs, published_name

REFERENCE = "Detlefsen & Hauberg (2019), arXiv:1906.11881"
VAES = ("vae", "beta_vae", "beta_tcvae", "dip_vae_ii")
WEIGHTED = VAES[1:]
COLUMNS = {"reconstruction": "train.rec", "separation": "separation.score"}


def row_label(first: str, second: str) -> str:
    """The row of a sign: the score of the first less that of the second is positive.

    >>> above("c_vitae", "vae")
    'c_vitae above vae'
    """
    return f"{first} above {second}"


def digit_signs() -> tuple[PublishedSign, ...]:
    """Worse reconstructions with more weight on the KL, and the order of the models on MNIST."""
    worse = [
        PublishedSign(row_label(method, "vae"), "reconstruction", 1, source="supplement, figure 2: worse, so a larger error")
        for method in WEIGHTED
    ]
    source = "main paper, table of MNIST: its order only"
    order = [("c_vitae", "u_vitae"), *(("u_vitae", vae) for vae in VAES)]
    return (*worse, *(PublishedSign(row_label(*pair), "separation", 1, source=source) for pair in order))


def body_signs() -> tuple[PublishedSign, ...]:
    """C-VITAE alone separates shape and pose of bodies."""
    source = "supplement, figure 7: the only model that disentangles"
    return tuple(PublishedSign(row_label("c_vitae", other), "separation", 1, source=source) for other in (*VAES, "u_vitae"))


def ours(runs: DataFrame, claims: Iterable[PublishedSign]) -> OurResults:
    """Differences of mean scores over the runs that were trained to their end."""
    runs = runs if "status" not in runs else runs[runs["status"] == "done"]
    found: dict[Place, OurResult | str] = {}
    for claim in claims:
        pair, column = claim.row.split(" above "), COLUMNS[claim.column]
        scores = [runs[runs["method"] == method].get(column) for method in pair]
        first, second = (None if values is None else OurResult.of(values) for values in scores)
        found[claim.row, claim.column] = (
            difference_of_means([first], [second]) if first and second else missing_reason(runs, pair, column)
        )
    return found


def missing_reason(runs: DataFrame, pair: list[str], column: str) -> str:
    """Why two methods cannot be compared."""
    absent = [method for method in pair if not (runs["method"] == method).any()]
    if absent:
        return f"no runs of {' and '.join(absent)}"
    return f"no score {column}" + ("" if column.startswith("train.") else ": unbraid appearance makes it")


def add_appearance_scores(folder: Path, device: str, quiet: bool) -> None:
    """Add the scores of `unbraid appearance` to the runs of a folder."""
    from unbraid.studies.appearance import appearance_table

    appearance_table(folder, device=device, quiet=quiet)


def target(data: str, claims: tuple[PublishedSign, ...]) -> Target:
    """The signs of one dataset; metrics of whole codes are not needed."""

    def home(name: str) -> str | None:
        return data if published_name(name) == data else None

    return Target(
        REFERENCE,
        claims,
        lambda table: longest_runs(runs_on_published_data(table, home), []),
        lambda runs: ours(runs, claims),
        home,
        metrics=("none",),
        finish=add_appearance_scores,
    )


DIGITS, BODIES = target("mnist", digit_signs()), target("body_images", body_signs())
