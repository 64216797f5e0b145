"""Which rows of a results table stand for a paper's runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pandas import DataFrame

from unbraid.errors import UserError

STAND_INS = {"dsprites_file": "dsprites", "shapes3d_rendered": "shapes3d"}
HOME = "home"


def published_name(data: str) -> str:
    """The published dataset that a name stands for, without options.

    >>> plain("shapes3d_rendered"), plain("mnist?turn=20&part=train")
    ('shapes3d', 'mnist')
    """
    bare = data.partition("?")[0]
    return STAND_INS.get(bare, bare)


def runs_on_published_data(table: DataFrame, home: Callable[[str], str | None]) -> DataFrame:
    """The runs on data that the paper has, with `home`, its name there; two datasets of ours for one are refused."""
    check_columns(table, ["data", "method", "seed"])
    names = {data: place for data in table["data"].unique() if (place := home(data))}
    for place in names.values():
        alike = [data for data in names if names[data] == place]
        if len(alike) > 1:
            raise UserError(
                f"One dataset must stand for the paper's {place}. Got {' and '.join(alike)} instead. Put the runs of "
                "one of them into a folder of their own."
            )
    chosen = table[table["data"].isin(list(names))]
    return chosen.assign(**{HOME: chosen["data"].map(names)})


def longest_runs(table: DataFrame, setting: Sequence[str]) -> DataFrame:
    """Of runs alike in dataset, method, setting and seed the one with most steps; two of one length are refused."""
    key = [HOME, "method", *setting, "seed"]
    check_columns(table, key)
    if "steps" in table and len(table):
        table = table[table["steps"] == table.groupby(key, dropna=False)["steps"].transform("max")]
    twice = table[table.duplicated(key)]
    if len(twice):
        row = twice.iloc[0]
        raise UserError(
            f"There must be one run a dataset, setting and seed. Got two of {row['method']}, seed {row['seed']} on "
            f"{row['data']}, which differ in precision, network or latents. Keep one of them in the folder."
        )
    return table


def check_columns(table: DataFrame, names: Sequence[str]) -> None:
    """Refuse a table without these columns."""
    missing = [name for name in names if name not in table]
    if missing:
        raise UserError(
            f"A results table must have the columns {', '.join(names)}. Got none called {', '.join(missing)}. Make it: "
            "unbraid index FOLDER"
        )
