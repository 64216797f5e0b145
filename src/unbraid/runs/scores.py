"""Scores in run folders. Only this module reads and writes `scores.jsonl`.

Each line of the file is one record, a JSON object. The field `values` of a record maps the name of each score to its
value. All other fields form the key of the record, which identifies what was computed: `metric`, `estimator`,
`options`, the samples (`rows`, `draws`), `seed`, `versions`, `codes` and the dataset (`data`, `source`, and `side` for
scores of one side of a split). Several processes may add records to the same run at the same time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from unbraid.metrics.protocol import Protocol
from unbraid.runs.formats import STUDY_REMEDY, ScoreLine, StudyFile
from unbraid.runtime.files import write_jsonl
from unbraid.runtime.locks import lock
from unbraid.runtime.schema import read_json, read_jsonl

FILE = "scores.jsonl"
Record = dict[str, Any]


def read_scores(folder: Path, sides: bool = False) -> list[Record]:
    """Return the records in the folder of a run, oldest first. The list is empty if the run has not been scored.

    Args:
        folder: The folder of the run.
        sides: Whether to include scores of one side of a split only (`score` with `sides=True`), which have the field
            `side`. By default they are left out, because they must not be mixed with scores of all examples.
    """
    records = [with_draws(record) for record in _read_lines(folder)]
    return [record for record in records if sides or "side" not in record]


def _read_lines(folder: Path) -> list[Record]:
    """Return the records in the folder of a run as they are in the file."""
    return read_jsonl(folder / FILE, ScoreLine, remedy="Delete the file and score the run again.")


def with_draws(record: Record) -> Record:
    """Return a record with the field `draws`, which older records lack. They used reference draws.

    >>> with_draws({"metric": "mig", "rows": {}})
    {'metric': 'mig', 'rows': {}, 'draws': 'reference'}
    """
    return {**record, "draws": record.get("draws", "reference")} if "rows" in record else record


def prefer_data(records: Iterable[Record], data: str) -> list[Record]:
    """Return the records on `data`, and those on other data that have no counterpart on `data`.

    A record on other data is left out if there is a record of the same metric and kind of codes on `data`. Records that
    do not say what data they were computed on count as records on `data`.

    >>> own, other = {"metric": "mig", "codes": "mean", "data": "toy"}, {"metric": "mig", "codes": "mean", "data": "b"}
    >>> prefer_data([own, other], "toy") == [own], prefer_data([other], "toy") == [other]
    (True, True)
    """
    listed = list(records)
    present = {_what(record) for record in listed if record.get("data", data) == data}
    return [record for record in listed if record.get("data", data) == data or _what(record) not in present]


def _what(record: Record) -> tuple[Any, Any]:
    return record["metric"], record["codes"]


def read_protocol(folder: Path) -> Protocol:
    """Read the protocol of the study in a folder, or of the study to which the run in a folder belongs.

    If there is no `study.json`, the default protocol is returned.

    Old studies did not record their protocol. They sampled rows in the same way as the reference library
    (disentanglement_lib), so the protocol for them has `draws="reference"`.
    """
    study = folder.parent if (folder / "run.json").exists() else folder
    file = study / "study.json"
    return read_json(file, StudyFile, STUDY_REMEDY).protocol if file.exists() else Protocol()


def find_score(records: Iterable[Record], key: Mapping[str, Any]) -> Record | None:
    """Return the first record that agrees with `key` in every field of `key`, or None if there is no such record.

    >>> find_score([{"metric": "mig", "seed": 1}, {"metric": "mig", "seed": 0, "values": {}}], {"seed": 0})
    {'metric': 'mig', 'seed': 0, 'values': {}}
    """
    return next((record for record in records if {k: record.get(k) for k in key} == key), None)


def add_scores(
    folder: Path, new: Iterable[Record], replaced: Callable[[Record], bool] = lambda record: False
) -> list[Record]:
    """Add records to a run and return all its records.

    A lock is held while the file is read, extended and replaced. Two processes that score the same run therefore do not
    overwrite each other's records. A record whose key is already present is not added again. The lines of
    present records do not change.

    Args:
        folder: The folder of the run that was scored.
        new: Records with the fields of their key and `values`.
        replaced: A function that returns True for existing records that must be removed because they have become
            invalid, such as a ranking within a group of runs that has grown since.

    Returns:
        The records in the file after the call.
    """
    with lock(folder / ".scores.lock"):
        present = _read_lines(folder)
        lines = [line for line in present if not replaced(with_draws(line))]
        records = [with_draws(line) for line in lines]
        for record in new:
            if find_score(records, {name: value for name, value in record.items() if name != "values"}) is None:
                lines.append(record)
                records.append(record)
        if lines != present:
            write_jsonl(folder / FILE, lines)
    return records


def mark_latest(folder: Path, keys: Iterable[Mapping[str, Any]]) -> None:
    """Move those records with these keys to the end of the file that `outdated_scores` returns.

    Tables show the latest record of a metric and kind of codes. A record that is used again therefore becomes the
    latest one. Nothing is done if the folder is not writable.
    """
    wanted = list(keys)
    if not wanted or not os.access(folder, os.W_OK):
        return
    with lock(folder / ".scores.lock"):
        lines = _read_lines(folder)
        moved = outdated_scores(map(with_draws, lines), wanted)
        last = [line for line in lines if with_draws(line) in moved]
        write_jsonl(folder / FILE, [*(line for line in lines if line not in last), *last])


def outdated_scores(records: Iterable[Record], keys: Iterable[Mapping[str, Any]]) -> list[Record]:
    """Return the records with these keys after which there is another record of the same metric, codes and data.

    Scores of one side of a split are left out, because tables do not show them.
    """
    listed = [record for record in records if "side" not in record]
    latest = {(*_what(record), record.get("data")): record for record in listed}
    found = [record for key in keys if (record := find_score(listed, key)) is not None]
    return [record for record in found if latest[*_what(record), record.get("data")] != record]
