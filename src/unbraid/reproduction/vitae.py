"""Statements in "Explicit Disentanglement of Appearance and Perspective in Generative Models", compared with our runs.

The tables of the supplement contain architectures and timings, but no scores. Of the table in the main paper, only the
order of the methods is used. Each statement says which of two methods has the higher score. It is compared as the sign
of the difference between the two scores.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pandas import DataFrame

from unbraid.reproduction.agreement import CellKey, OurResult, OurResults, PublishedSign, Target, difference_of_means
from unbraid.reproduction.rows import longest_runs, published_name, runs_on_published_data

REFERENCE = "Detlefsen & Hauberg (2019), arXiv:1906.11881"
VAES = ("vae", "beta_vae", "beta_tcvae", "dip_vae_ii")
HEAVIER_KL = VAES[1:]
COLUMNS = {"reconstruction": "train.rec", "separation": "separation.score"}


def row_label(first: str, second: str) -> str:
    """Return the name of a row for the statement that the score of one method is higher than that of another.

    >>> row_label("c_vitae", "vae")
    'c_vitae above vae'
    """
    return f"{first} above {second}"


def digit_signs() -> tuple[PublishedSign, ...]:
    """Return the published signs of differences between methods on MNIST.

    Methods with more weight on the KL have worse reconstructions than a VAE. The separation score of C-VITAE is higher
    than that of U-VITAE, which is higher than those of all VAEs.
    """
    worse = [
        PublishedSign(
            row_label(method, "vae"), "reconstruction", 1, source="supplement, figure 2: worse, so a larger error"
        )
        for method in HEAVIER_KL
    ]
    source = "main paper, table of MNIST: its order only"
    order = [("c_vitae", "u_vitae"), *(("u_vitae", vae) for vae in VAES)]
    return (*worse, *(PublishedSign(row_label(*pair), "separation", 1, source=source) for pair in order))


def body_signs() -> tuple[PublishedSign, ...]:
    """Return the published signs of differences on images of bodies. Only C-VITAE separates shape and pose."""
    source = "supplement, figure 7: the only model that disentangles"
    return tuple(
        PublishedSign(row_label("c_vitae", other), "separation", 1, source=source) for other in (*VAES, "u_vitae")
    )


def our_results(runs: DataFrame, signs: Iterable[PublishedSign]) -> OurResults:
    """Compute the differences between the mean scores of finished runs, for each sign."""
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
    """Return the reason why two methods cannot be compared."""
    absent = [method for method in pair if not (runs["method"] == method).any()]
    if absent:
        return f"no runs of {' and '.join(absent)}"
    return f"no score {column}" + ("" if column.startswith("train.") else ", run unbraid appearance")


def add_appearance_scores(folder: Path, device: str, quiet: bool) -> None:
    """Add the scores that `unbraid appearance` computes to the runs of a folder."""
    from unbraid.studies.appearance import appearance_table

    appearance_table(folder, device=device, quiet=quiet)


def make_target(data: str, title: str, signs: tuple[PublishedSign, ...]) -> Target:
    """Return the target for the signs on one dataset, which tables name by its title. It needs no metrics of codes."""

    def published_data(name: str) -> str | None:
        return data if published_name(name) == data else None

    return Target(
        f"{REFERENCE}, {title}",
        signs,
        lambda table: longest_runs(runs_on_published_data(table, published_data), []),
        lambda runs: our_results(runs, signs),
        published_data,
        metrics=(),
        finish=add_appearance_scores,
    )


DIGITS, BODIES = make_target("mnist", "MNIST", digit_signs()), make_target("body_images", "bodies", body_signs())
