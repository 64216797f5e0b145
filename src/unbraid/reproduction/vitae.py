"""The statements of "Explicit disentanglement of appearance and perspective", and our signs for them.

The supplement has no scores; its tables are architectures and timings. So its statements are compared as signs.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pandas import DataFrame

from unbraid.reproduction.agreement import CellKey, OurResult, OurResults, PublishedSign, Target, difference_of_means
from unbraid.reproduction.rows import longest_runs, published_name, runs_on_published_data

REFERENCE = "Detlefsen & Hauberg (2019), arXiv:1906.11881"
VAES = ("vae", "beta_vae", "beta_tcvae", "dip_vae_ii")
WEIGHTED = VAES[1:]
COLUMNS = {"reconstruction": "train.rec", "separation": "separation.score"}


def row_label(first: str, second: str) -> str:
    """The name of the row of a sign: the score of the first method is higher than that of the second.

    >>> row_label("c_vitae", "vae")
    'c_vitae above vae'
    """
    return f"{first} above {second}"


def digit_signs() -> tuple[PublishedSign, ...]:
    """Methods with more weight on the KL have worse reconstructions on MNIST, and the order of separation scores."""
    worse = [
        PublishedSign(
            row_label(method, "vae"), "reconstruction", 1, source="supplement, figure 2: worse, so a larger error"
        )
        for method in WEIGHTED
    ]
    source = "main paper, table of MNIST: its order only"
    order = [("c_vitae", "u_vitae"), *(("u_vitae", vae) for vae in VAES)]
    return (*worse, *(PublishedSign(row_label(*pair), "separation", 1, source=source) for pair in order))


def body_signs() -> tuple[PublishedSign, ...]:
    """Only C-VITAE separates the shape and the pose of bodies."""
    source = "supplement, figure 7: the only model that disentangles"
    return tuple(
        PublishedSign(row_label("c_vitae", other), "separation", 1, source=source) for other in (*VAES, "u_vitae")
    )


def ours(runs: DataFrame, signs: Iterable[PublishedSign]) -> OurResults:
    """The differences of mean scores over the finished runs."""
    runs = runs if "status" not in runs else runs[runs["status"] == "done"]
    results: dict[CellKey, OurResult | str] = {}
    for sign in signs:
        pair, column = sign.row.split(" above "), COLUMNS[sign.column]
        scores = [runs[runs["method"] == method].get(column) for method in pair]
        first, second = (None if values is None else OurResult.of(values) for values in scores)
        results[sign.row, sign.column] = (
            difference_of_means([first], [second]) if first and second else missing_reason(runs, pair, column)
        )
    return results


def missing_reason(runs: DataFrame, pair: list[str], column: str) -> str:
    """Why two methods cannot be compared."""
    absent = [method for method in pair if not (runs["method"] == method).any()]
    if absent:
        return f"no runs of {' and '.join(absent)}"
    return f"no score {column}" + ("" if column.startswith("train.") else ": run unbraid appearance")


def add_appearance_scores(folder: Path, device: str, quiet: bool) -> None:
    """Add the scores that `unbraid appearance` computes to the runs of a folder."""
    from unbraid.studies.appearance import appearance_table

    appearance_table(folder, device=device, quiet=quiet)


def target(data: str, signs: tuple[PublishedSign, ...]) -> Target:
    """The target with the signs of one dataset. It needs no metrics of codes."""

    def published_data(name: str) -> str | None:
        return data if published_name(name) == data else None

    return Target(
        REFERENCE,
        signs,
        lambda table: longest_runs(runs_on_published_data(table, published_data), []),
        lambda runs: ours(runs, signs),
        published_data,
        metrics=("none",),
        finish=add_appearance_scores,
    )


DIGITS, BODIES = target("mnist", digit_signs()), target("body_images", body_signs())
