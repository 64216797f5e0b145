"""The results table: one row per run, stored as one SQLite file that can be rebuilt from the run folders at any time.

Several processes may write the table of a folder at the same time. Each of them holds a lock while it reads the run
folders and writes the table, so that an older table never replaces a newer one.

`results.sqlite` has one table, `runs`, with these columns:

- `run` (id), `status`, `method`, and the fields of the spec (`data`, `seed`, `steps`, ...)
- `strength`: the value of the swept hyperparameter
- `index`: the index of the run in its study
- `level`: the rank of the strength among the strengths of the method, starting at 0
- `variant`: the name of the variant of the method in its study, if the study has variants
- `setting.<field>`: the fields of the method
- `train.<term>`: the last logged value of each training term. `train.elbo` is -(rec + kl)
- `<metric>.<key>`: the latest scores of the method's default kind of codes. Scores of other kinds have the suffix
  `.<codes>`. If a metric was computed on the data of the run, its scores on other data are left out. In the folder of a
  study, only scores with the draws and the seed of the study's protocol are used
"""

from __future__ import annotations

import importlib.util
import io
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

from unbraid.errors import UserError, warn_user
from unbraid.metrics.protocol import Protocol
from unbraid.runs.folder import RunFolder, contains_runs, find_runs
from unbraid.runs.formats import STUDY_REMEDY, StudyFile
from unbraid.runs.scores import Record, prefer_data, read_protocol, read_scores
from unbraid.runtime.files import make_folder, refuse_special_file, write_atomic
from unbraid.runtime.locks import lock
from unbraid.runtime.read_errors import READ_ERRORS
from unbraid.runtime.schema import read_json

RESULTS_FILE = "results.sqlite"
RESULTS_LOCK = ".results.lock"
TABLE = "runs"
TEXT_COLUMNS = ("run", "data", "method")
NUMBER_COLUMNS = ("seed", "steps", "batch", "latents", "learning_rate", "strength", "index", "level")
Row = dict[str, Any]


def results_row(run: RunFolder, sweep_position: Mapping[str, Any], study_protocol: Protocol | None = None) -> Row:
    """Return the row of one run.

    Args:
        run: The folder of the run.
        sweep_position: The `index`, `strength`, `level` and `variant` of the run in its study.
        study_protocol: The protocol of the study. Scores with other draws or another seed are left out, because scores
            of different runs in one table must be comparable. If it is None, all scores are used.
    """
    fields = run.spec.to_dict()
    settings = fields.pop("method")
    row: Row = {"run": run.path.name, "status": run.status, "method": settings.pop("name"), **fields}
    row["strength"] = sweep_position.get("strength", run.spec.method.strength)
    row |= {key: sweep_position.get(key) for key in ("index", "level")}
    if sweep_position.get("variant"):
        row["variant"] = sweep_position["variant"]
    row |= {f"setting.{key}": value for key, value in settings.items()}
    log = run.read_log()
    terms = {key: value for key, value in log[-1].items() if key != "step"} if log else {}
    row |= {f"train.{key}": value for key, value in terms.items()}
    if {"rec", "kl"} <= set(terms):
        row["train.elbo"] = -terms["rec"] - terms["kl"]
    return {**row, **latest_scores(run, partial(_has_draws, study_protocol))}


def latest_scores(run: RunFolder, wanted: Callable[[Record], bool] = lambda record: True) -> Row:
    """Return the scores in the folder of a run by column name. A later record of a metric replaces an earlier one.

    If a metric was computed on the data of the run, scores on other data are left out.

    Args:
        run: The folder of the run.
        wanted: A function that returns False for records to leave out. By default all are used.
    """
    default = run.spec.method.code_kinds[0]
    scores: Row = {}
    found = prefer_data(filter(wanted, read_scores(run.path)), run.spec.data)
    for record in {(record["metric"], record["codes"]): record for record in found}.values():
        suffix = "" if record["codes"] == default else f".{record['codes']}"
        scores |= {f"{record['metric']}.{key}{suffix}": value for key, value in record["values"].items()}
    return scores


def _has_draws(protocol: Protocol | None, record: Record) -> bool:
    """Return whether the samples of a score were drawn as the protocol says.

    If the protocol is None, or if the score was computed without samples, return True.
    """
    if protocol is None or "rows" not in record:
        return True
    return bool(record["draws"] == protocol.draws and record.get("seed", protocol.seed) == protocol.seed)


def number_levels(rows: Sequence[Row]) -> None:
    """Set the missing levels of rows. A level is the rank, from 0, of a strength among all strengths of the method."""
    for method in {row["method"] for row in rows}:
        members = [row for row in rows if row["method"] == method]
        order = sorted({row["strength"] for row in members})
        for row in members:
            if row["level"] is None:
                row["level"] = order.index(row["strength"])


def write_results(
    folder: Path, sweep_positions: Mapping[str, Row] | None = None, *, replace_only: bool = False
) -> Path:
    """Write the results table of all runs in a folder.

    A lock is held while the runs are read and the table is written. The table therefore has all scores that were stored
    before the call, whatever other processes write at the same time.

    Args:
        folder: The folder of the runs. The table is written into it as `results.sqlite`.
        sweep_positions: The `index`, `strength`, `level` and `variant` of each run in its study, by run id. By default
            they are read from `study.json` in the folder.
        replace_only: Whether to write nothing if the folder has no table.

    Returns:
        The path of the table.

    Raises:
        UserError: If the folder contains no runs.
    """
    path = folder / RESULTS_FILE
    if not contains_runs(folder):
        raise _no_runs_error(folder)
    with lock(folder / RESULTS_LOCK):
        if path.exists() or not replace_only:
            write_table(path, results_rows(folder, sweep_positions or read_sweep_positions(folder)))
    return path


def results_rows(folder: Path, sweep_positions: Mapping[str, Row]) -> list[Row]:
    """Return the rows of all runs in a folder, given the positions of the runs in their study by run id."""
    runs = find_runs(folder)
    if not runs:
        raise _no_runs_error(folder)
    protocol = read_protocol(folder) if (folder / "study.json").exists() else None
    rows = [results_row(run, sweep_positions.get(run.spec.id, {}), protocol) for run in runs]
    number_levels(rows)
    return rows


def _no_runs_error(folder: Path) -> UserError:
    return UserError(f"No runs in {folder}. Train some with: unbraid study locatello2019 --out {quote(str(folder))}")


def write_parquet(folder: Path, out: Path) -> Path:
    """Write the results table of all runs in a folder, `results.sqlite`, and a copy of it as a Parquet file.

    Args:
        folder: The folder of the runs.
        out: The Parquet file, whose name ends in .parquet. `load_results` reads it.

    Returns:
        The path `out`.

    Raises:
        UserError: If the name has another ending, if the package pyarrow is not installed, or if there are no runs.
    """
    if out.suffix != ".parquet":
        raise UserError(f"The file must have a name that ends in .parquet. Got {out} instead.")
    _require_pyarrow(out)
    table = load_results(write_results(folder))
    for name in table.columns:
        if len({isinstance(value, str) for value in table[name].dropna()}) == 2:  # Parquet needs one type
            table[name] = [value if value is None or value != value else str(value) for value in table[name]]
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    make_folder(out.parent)
    write_atomic(out, buffer.getvalue())
    return out


def _require_pyarrow(file: Path) -> None:
    if importlib.util.find_spec("pyarrow") is None:
        raise UserError(
            f"The Parquet file {file} needs the package pyarrow, which is not installed. Install it with: "
            'pip install "unbraid[parquet]"'
        )


def read_sweep_positions(folder: Path) -> dict[str, Row]:
    """Read the `index`, `strength`, `level` and `variant` of each run, by run id, from `study.json`.

    Values that the file does not have are left out. If the folder has no such file, an empty dictionary is returned.
    """
    file = folder / "study.json"
    if not file.exists():
        return {}
    places = read_json(file, StudyFile, STUDY_REMEDY).places
    return {
        name: {key: value for key, value in asdict(position).items() if value is not None}
        for name, position in places.items()
    }


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """Write rows to a SQLite file with one column for each key. An existing file is replaced."""
    refuse_special_file(path)
    try:
        write_atomic(path, _encode_table(rows))
    except (sqlite3.Error, OverflowError) as error:
        raise UserError(
            f"{path} cannot be written: {error}. The scores and the log of every run must contain numbers and text "
            "only. Delete the damaged file of scores and score the runs again."
        ) from error


def _encode_table(rows: Sequence[Row]) -> bytes:
    """Return the content of a SQLite file with one row per run and one column for each key."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    marks = ", ".join("?" * len(columns))
    names = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
    with closing(sqlite3.connect(":memory:")) as base, base:
        base.execute(f"CREATE TABLE {TABLE} ({names})")
        base.executemany(
            f"INSERT INTO {TABLE} ({names}) VALUES ({marks})", ([row.get(key) for key in columns] for row in rows)
        )
        base.commit()
        return base.serialize()


def load_results(folder: str | Path) -> Any:
    """Load a results table as a pandas DataFrame with one row per run.

    Args:
        folder: A folder that contains `results.sqlite`, the path of such a file, or a .csv or .parquet file with the
            same table.

    Returns:
        The table. The module `unbraid.runs.results` describes its columns. If the runs of the folder are not those of
        the table, because some were added or deleted, there is a warning.

    Raises:
        UserError: If there is no table, or if it cannot be read.
    """
    import pandas as pd

    path = Path(folder)
    file = path if path.is_file() else path / RESULTS_FILE
    if not file.exists():
        raise UserError(f"No results table at {file}. Create it with: unbraid index {folder}")
    refuse_special_file(file)
    if file.suffix == ".csv":
        return _read_csv(file)
    if file.suffix == ".parquet":
        return _read_parquet(file)
    remedy = f"Create it again with: unbraid index {file.parent}"
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as base:
            table = pd.read_sql_query(f"SELECT * FROM {TABLE}", base)
    except (pd.errors.DatabaseError, sqlite3.Error, ValueError, OverflowError) as error:
        raise UserError(f"{file} is not a results table: {error}. {remedy}") from error
    checked = _checked_table(file, table, remedy)
    _warn_of_other_runs(file, checked)
    return checked


def _warn_of_other_runs(file: Path, table: Any) -> None:
    """Warn if a table does not have the runs that are in its folder. A folder without any runs is accepted."""
    present, stored = {run.parent.name for run in file.parent.glob("*/run.json")}, set(table["run"])
    if file.name == RESULTS_FILE and present and present != stored:
        warn_user(
            f"{file} is out of date. It lacks {len(present - stored)} run(s) of the folder, and has "
            f"{len(stored - present)} run(s) that are no longer there. Write it again with: unbraid index {file.parent}"
        )


def _checked_table(file: Path, table: Any, remedy: str) -> Any:
    """Check a results table, convert columns to text or numbers, and return it.

    Raise a UserError that names the column if a required column is missing or a value has the wrong type.
    """
    missing = [name for name in (*TEXT_COLUMNS, "seed") if name not in table]
    if missing:
        present = ", ".join(map(str, table.columns[:6])) or "no columns"
        raise UserError(
            f"{file} must have one row per run and the columns {', '.join(missing)}. Got {present} instead. {remedy}"
        )
    for name in TEXT_COLUMNS:
        if (wrong := table[name][table[name].isna()]).size:
            raise UserError(f"{file} must have a {name} in every row. Row {wrong.index[0] + 1} has none. {remedy}")
        table[name] = table[name].map(str)
    for name in table.columns:
        numeric = name in NUMBER_COLUMNS or ("." in str(name) and not str(name).startswith("setting."))
        if numeric and table[name].dtype.kind not in "fiu":
            table[name] = _numbers(file, table[name], remedy)
    return table


def _numbers(file: Path, column: Any, remedy: str) -> Any:
    """Return a column of numbers. Missing values are NaN."""
    import pandas as pd

    try:
        numbers = pd.to_numeric(column, errors="coerce")
        wrong = column[numbers.isna() & column.notna()]
    except OverflowError as error:
        raise UserError(f"The column {column.name!r} of {file} has a number that is too large. {remedy}") from error
    if wrong.size:
        shown = repr(wrong.iloc[0])[:60]
        raise UserError(f"The column {column.name!r} of {file} must contain numbers. Got {shown} instead. {remedy}")
    return numbers


def _read_csv(file: Path) -> Any:
    import pandas as pd

    must = "must be a results table in CSV format: one line of names, and lines with equally many values."
    try:
        table = pd.read_csv(file)
    except (ValueError, OverflowError) as error:
        raise UserError(f"{file} {must} It cannot be read. Correct the file, or write it again.") from error
    if not isinstance(table.index, pd.RangeIndex):  # pandas takes surplus values for the names of rows
        raise UserError(f"{file} {must} Got more values than names instead. Correct the file, or write it again.")
    return _checked_table(file, table, "Correct the file.")


def _read_parquet(file: Path) -> Any:
    import pandas as pd

    _require_pyarrow(file)
    try:
        table = pd.read_parquet(file)
    except READ_ERRORS as error:
        raise UserError(
            f"{file} must be a results table in Parquet format. It cannot be read. Write the file again."
        ) from error
    return _checked_table(file, table, "Correct the file.")
