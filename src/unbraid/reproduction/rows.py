"""Select the rows of a results table that correspond to the runs of a paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pandas import DataFrame

from unbraid.errors import UserError

STAND_INS = {"dsprites_file": "dsprites", "shapes3d_rendered": "shapes3d"}  # names that differ from those in papers
PUBLISHED_DATA = "published_data"  # column with the name of a dataset in the paper


def published_name(data: str) -> str:
    """Return the name that papers use for one of our datasets. The options of the dataset are left out.

    >>> published_name("shapes3d_rendered"), published_name("mnist?turn=20&part=train")
    ('shapes3d', 'mnist')
    """
    bare = data.partition("?")[0]
    return STAND_INS.get(bare, bare)


def runs_on_published_data(table: DataFrame, published_data: Callable[[str], str | None]) -> DataFrame:
    """Return the runs on datasets that the paper uses, with the name of each dataset in the paper as a new column.

    Raise a UserError if two of our datasets correspond to the same dataset in the paper.
    """
    check_columns(table, ["data", "method", "seed"])
    names = {data: name for data in table["data"].unique() if (name := published_data(data))}
    for name in names.values():
        alike = [data for data in names if names[data] == name]
        if len(alike) > 1:
            raise UserError(
                f"Only one dataset may correspond to {name} in the paper. Got {' and '.join(alike)} instead. Move the "
                "runs of one of them to another folder."
            )
    chosen = table[table["data"].isin(list(names))]
    return chosen.assign(**{PUBLISHED_DATA: chosen["data"].map(names)})


def longest_runs(table: DataFrame, setting: Sequence[str]) -> DataFrame:
    """Return the longest run for each combination of dataset, method, setting and seed.

    A run that is still in training is used only if there is no finished or diverged run of the same combination. Raise
    a UserError if a combination has two longest runs with the same number of steps.
    """
    key = [PUBLISHED_DATA, "method", *setting, "seed"]
    check_columns(table, key)
    if "status" in table and len(table):
        ended = table["status"].isin(["done", "diverged"])
        table = table[ended | ~ended.groupby([table[name] for name in key], dropna=False).transform("any")]
    if "steps" in table and len(table):
        table = table[table["steps"] == table.groupby(key, dropna=False)["steps"].transform("max")]
    twice = table[table.duplicated(key)]
    if len(twice):
        row = twice.iloc[0]
        raise UserError(
            f"There must be one run per dataset, setting and seed. Got two of {row['method']}, seed {row['seed']} on "
            f"{row['data']}, which differ in another setting, such as a hyperparameter, the network or the precision. "
            "Keep only one of them in the folder."
        )
    return table


def check_columns(table: DataFrame, names: Sequence[str]) -> None:
    """Raise a UserError if a table does not have these columns."""
    missing = [name for name in names if name not in table]
    if missing:
        raise UserError(
            f"A results table must have the columns {', '.join(names)}. It has no {', '.join(missing)}. Create it "
            "with: unbraid index FOLDER"
        )
