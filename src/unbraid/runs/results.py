"""The results table: one row per run, stored as one SQLite file that can be rebuilt from the run folders at any time.

`results.sqlite` has one table, `runs`, with these columns:

- `run` (id), `status`, `method`, and the fields of the spec (`data`, `seed`, `steps`, ...)
- `strength`: the value of the swept hyperparameter
- `index`: the number of the run in its study
- `level`: the rank of the strength among the strengths of the method, starting at 0
- `setting.<field>`: the fields of the method
- `train.<term>`: the last logged value of each training term. `train.elbo` is -(rec + kl)
- `<metric>.<key>`: the latest scores of the default codes. Scores of other codes have the suffix `.<codes>`
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from unbraid.errors import UserError
from unbraid.runs.folder import RunFolder, find_runs
from unbraid.runs.scores import read_scores
from unbraid.runtime.files import make_folder

RESULTS_FILE = "results.sqlite"
TABLE = "runs"
Row = dict[str, Any]


def results_row(run: RunFolder, sweep_position: Mapping[str, Any]) -> Row:
    """Return the row of one run. `sweep_position` has its `index`, `strength` and `level` in the study."""
    fields = run.spec.to_dict()
    settings = fields.pop("method")
    row: Row = {"run": run.path.name, "status": run.status, "method": settings.pop("name"), **fields}
    row["strength"] = sweep_position.get("strength", run.spec.method.strength)
    row |= {key: sweep_position.get(key) for key in ("index", "level")}
    row |= {f"setting.{key}": value for key, value in settings.items()}
    log = run.read_log()
    terms = {key: value for key, value in log[-1].items() if key != "step"} if log else {}
    row |= {f"train.{key}": value for key, value in terms.items()}
    if {"rec", "kl"} <= set(terms):
        row["train.elbo"] = -terms["rec"] - terms["kl"]
    return {**row, **latest_scores(run)}


def latest_scores(run: RunFolder) -> Row:
    """Return the scores in the folder of a run by column name. Later records replace earlier ones of the same name."""
    default = run.spec.method.code_kinds[0]
    scores: Row = {}
    for record in read_scores(run.path):
        suffix = "" if record["codes"] == default else f".{record['codes']}"
        scores |= {f"{record['metric']}.{key}{suffix}": value for key, value in record["values"].items()}
    return scores


def number_levels(rows: Sequence[Row]) -> None:
    """Set the missing levels of rows. A level is the rank of a row's strength among all strengths of its method."""
    for method in {row["method"] for row in rows}:
        members = [row for row in rows if row["method"] == method]
        order = sorted({row["strength"] for row in members})
        for row in members:
            if row["level"] is None:
                row["level"] = order.index(row["strength"])


def write_results(folder: Path, sweep_positions: Mapping[str, Row] | None = None) -> Path:
    """Write the results table of all runs in a folder.

    Args:
        folder: The folder of the runs. The table is written into it as `results.sqlite`.
        sweep_positions: The `index`, `strength` and `level` of each run in its study, by run id. By default they are
            read from `study.json` in the folder.

    Returns:
        The path of the table.

    Raises:
        UserError: If the folder contains no runs.
    """
    sweep_positions = sweep_positions or read_sweep_positions(folder)
    runs = find_runs(folder)
    if not runs:
        raise UserError(f"No runs in {folder}. Train some with: unbraid study locatello2019 --out {folder}")
    rows = [results_row(run, sweep_positions.get(run.spec.id, {})) for run in runs]
    number_levels(rows)
    make_folder(folder)
    path = folder / RESULTS_FILE
    temporary = path.with_name(f".{RESULTS_FILE}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    write_table(temporary, rows)
    temporary.replace(path)
    return path


def read_sweep_positions(folder: Path) -> dict[str, Row]:
    """Read the `index`, `strength` and `level` of each run, by run id, from `study.json`.

    Return an empty dictionary if the folder has no such file.
    """
    file = folder / "study.json"
    return json.loads(file.read_text())["places"] if file.exists() else {}


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """Write rows to a SQLite file with one column for each key."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    marks = ", ".join("?" * len(columns))
    names = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
    with closing(sqlite3.connect(path)) as base, base:
        base.execute(f"CREATE TABLE {TABLE} ({names})")
        base.executemany(
            f"INSERT INTO {TABLE} ({names}) VALUES ({marks})", ([row.get(key) for key in columns] for row in rows)
        )


def load_results(folder: str | Path) -> Any:
    """Load a results table as a pandas DataFrame with one row per run.

    Args:
        folder: A folder that contains `results.sqlite`, the path of such a file, or a .csv file with the same table.

    Returns:
        The table. The columns are described at the top of this module.

    Raises:
        UserError: If there is no table, or if it cannot be read.
    """
    import pandas as pd

    path = Path(folder)
    file = path if path.is_file() else path / RESULTS_FILE
    if not file.exists():
        raise UserError(f"No results table at {file}. Create it with: unbraid index {folder}")
    if file.suffix == ".csv":
        return _read_csv(file)
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as base:
        try:
            return pd.read_sql_query(f"SELECT * FROM {TABLE}", base)
        except (pd.errors.DatabaseError, sqlite3.DatabaseError) as error:
            raise UserError(
                f"{file} is not a results table: {error}. Create it again with: unbraid index {folder}"
            ) from error


def _read_csv(file: Path) -> Any:
    import pandas as pd

    try:
        table = pd.read_csv(file)
    except ValueError as error:  # raised by pandas for malformed CSV, and by Python for bytes that are not text
        raise UserError(f"{file} must be a results table in CSV format, but it cannot be read: {error}") from error
    missing = [name for name in ("run", "data", "method", "seed") if name not in table]
    if missing:
        present = ", ".join(map(str, table.columns[:6]))
        raise UserError(
            f"{file} must have one row per run and the columns {', '.join(missing)}. Got {present} instead."
        )
    return table
