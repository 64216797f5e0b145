"""The published order of quantised autoencoders and their baselines by InfoM, InfoE and InfoC.

The numbers are second-hand: they were read in a third party's notes and not in the papers. They belong to the published
Shapes3D and other networks. Therefore only their order is compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from pandas import DataFrame

from unbraid.reproduction.agreement import OurResult, OurResults, PublishedSign, Target, difference_of_means
from unbraid.reproduction.baselines import summarise
from unbraid.reproduction.rows import longest_runs, published_name, runs_on_published_data

REFERENCE = "Hsu et al. (2023), arXiv:2305.18378, and Hsu et al. (2024), arXiv:2404.10282"
SOURCE = "second-hand (V2): read in a third party's notes, not in the papers"
COLUMNS = {"InfoM": "infomec.InfoM", "InfoE": "infomec.InfoE", "InfoC": "infomec.InfoC"}
PUBLISHED = {  # InfoM, InfoE and InfoC on Shapes3D
    "ae": (0.34, 0.99, 0.16),
    "beta_vae": (0.59, 0.99, 0.49),
    "beta_tcvae": (0.61, 0.82, 0.62),
    "ae_ica": (0.79, 0.99, 0.52),
    "qlae": (0.84, 0.97, 0.49),
    "tripod": (0.91, 0.96, 0.58),
}
ROUNDING = 0.01  # maximum error of a difference of two numbers with two decimals


def published_order() -> Iterator[PublishedSign]:
    """Yield the sign of the difference of each two methods, except for equal printed numbers.

    A difference of 0.01 may be due to rounding. Its sign is open.
    """
    for number, column in enumerate(COLUMNS):
        for first, second in itertools.combinations(PUBLISHED, 2):
            difference = round(PUBLISHED[second][number] - PUBLISHED[first][number], 2)
            if difference:
                yield PublishedSign(
                    row_name(first, second), column, 1 if difference > 0 else -1, difference, 0.0, ROUNDING, SOURCE
                )


def row_name(first: str, second: str) -> str:
    """Return the name of the row of a difference.

    >>> row_name("ae", "qlae")
    'qlae minus ae, shapes3d'
    """
    return f"{second} minus {first}, shapes3d"


def published_data(data: str) -> str | None:
    """Return "shapes3d" for Shapes3D without options, published or rendered, and None for other datasets."""
    return "shapes3d" if "?" not in data and published_name(data) == "shapes3d" else None


def select(table: DataFrame) -> DataFrame:
    """Return the longest run of each method and seed on Shapes3D."""
    runs = runs_on_published_data(table, published_data)
    return longest_runs(runs[runs["method"].isin(list(PUBLISHED))], [])


def our_means(runs: DataFrame) -> dict[tuple[str, str], OurResult | str]:
    """Return the mean of each score by method and column, or the reason why there is none."""
    parts = dict(list(runs.groupby("method")))
    return {
        (method, name): summarise(parts.get(method, runs[:0]), column)
        for method in PUBLISHED
        for name, column in COLUMNS.items()
    }


def our_order(runs: DataFrame) -> OurResults:
    """Compute the difference of the mean scores of each two methods."""
    means = our_means(runs)
    return {
        (row_name(first, second), column): subtract(means[second, column], means[first, column])
        for column in COLUMNS
        for first, second in itertools.combinations(PUBLISHED, 2)
    }


def subtract(one: OurResult | str, other: OurResult | str) -> OurResult | str:
    """Return the difference of two means, or the reason why one of them is missing."""
    if isinstance(one, str):
        return one
    return other if isinstance(other, str) else difference_of_means([one], [other])


TARGET = Target(REFERENCE, tuple(published_order()), select, our_order, published_data, metrics=("infomec",))
