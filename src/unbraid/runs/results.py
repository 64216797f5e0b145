"""The results table: one row a run, rebuilt from run folders at any time, kept as one SQLite file."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from unbraid.errors import UserError
from unbraid.runtime.files import make_folder
from unbraid.runs.scores import read_scores
from unbraid.runs.folder import RunDir, find_runs

NAME = "results.sqlite"
TABLE = "runs"
Row = dict[str, Any]


def row_of(run: RunDir, place: Mapping[str, Any]) -> Row:
    """A run's settings, place in the sweep, status, last training terms and latest scores as one flat row."""
    values = run.spec.to_dict()
    method = values.pop("method")
    name = method.pop("name")
    row: Row = {"run": run.path.name, "status": run.status, "method": name, **values}
    row["strength"] = place.get("strength", run.spec.method.strength)
    row |= {key: place.get(key) for key in ("index", "level")}
    row |= {f"setting.{key}": value for key, value in method.items()}
    log = run.read_log()
    terms = {key: value for key, value in log[-1].items() if key != "step"} if log else {}
    row |= {f"train.{key}": value for key, value in terms.items()}
    if {"rec", "kl"} <= set(terms):
        row["train.elbo"] = -terms["rec"] - terms["kl"]
    return {**row, **scores_of(run)}


def scores_of(run: RunDir) -> Row:
    """The scores kept in a run's folder, the latest of each name."""
    default = run.spec.method.code_kinds[0]
    found: Row = {}
    for record in read_scores(run.path):
        suffix = "" if record["codes"] == default else f".{record['codes']}"
        found |= {f"{record['metric']}.{key}{suffix}": value for key, value in record["values"].items()}
    return found


def levels(rows: Sequence[Row]) -> None:
    """Number the strengths of each method where the study has not."""
    for method in {row["method"] for row in rows}:
        members = [row for row in rows if row["method"] == method]
        order = sorted({row["strength"] for row in members})
        for row in members:
            if row["level"] is None:
                row["level"] = order.index(row["strength"])


def index(folder: Path, places: Mapping[str, Row] | None = None) -> Path:
    """Write the table of all runs in a folder and return its path.

    `places` has the index, strength and level of each run in its study by run id; by default they are read from the
    `study.json` of the folder.
    """
    places = places or read_places(folder)
    runs = find_runs(folder)
    if not runs:
        raise UserError(f"No runs in {folder}. Train some: unbraid study locatello2019 --out {folder}")
    rows = [row_of(run, places.get(run.spec.id, {})) for run in runs]
    levels(rows)
    make_folder(folder)
    path = folder / NAME
    temporary = path.with_name(f".{NAME}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    write(temporary, rows)
    temporary.replace(path)
    return path


def read_places(folder: Path) -> dict[str, Row]:
    """The places in the sweep that a study left beside its runs."""
    file = folder / "study.json"
    return json.loads(file.read_text())["places"] if file.exists() else {}


def write(path: Path, rows: Sequence[Row]) -> None:
    """Rows as one SQLite table, a column a name."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    marks = ", ".join("?" * len(columns))
    names = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
    with closing(sqlite3.connect(path)) as base, base:
        base.execute(f"CREATE TABLE {TABLE} ({names})")
        base.executemany(
            f"INSERT INTO {TABLE} ({names}) VALUES ({marks})", ([row.get(key) for key in columns] for row in rows)
        )


def load(folder: str | Path) -> Any:
    """The table of a folder, or of a results file (or a copy of one as .csv), as a pandas DataFrame, one row a run."""
    import pandas as pd

    path = Path(folder)
    file = path if path.is_file() else path / NAME
    if not file.exists():
        raise UserError(f"No results table at {file}. Make it: unbraid index {folder}")
    if file.suffix == ".csv":
        return _from_csv(file)
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as base:
        try:
            return pd.read_sql_query(f"SELECT * FROM {TABLE}", base)
        except (pd.errors.DatabaseError, sqlite3.DatabaseError) as error:
            raise UserError(f"{file} is not a results table: {error}. Make it anew: unbraid index {folder}") from error


def _from_csv(file: Path) -> Any:
    import pandas as pd

    try:
        table = pd.read_csv(file)
    except ValueError as error:  # pandas' own and bytes that are no text
        raise UserError(f"{file} must be a results table as CSV. It cannot be read: {error}") from error
    missing = [name for name in ("run", "data", "method", "seed") if name not in table]
    if missing:
        found = ", ".join(map(str, table.columns[:6]))
        raise UserError(f"{file} must have a row a run, with the columns {', '.join(missing)} too. Got {found}.")
    return table
