"""Scores kept in run folders: the only code that reads and writes `scores.jsonl`.

One line is one record: what was computed (metric, estimator, options, sample sizes, seed, versions, codes, dataset)
and its values. Any number of processes may add records to the same run at the same time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from unbraid.runtime.files import read_lines, write_lines
from unbraid.runtime.locks import lock
from unbraid.metrics.protocol import Protocol

FILE = "scores.jsonl"
Record = dict[str, Any]


def read_scores(folder: Path) -> list[Record]:
    """All records in the folder of a run, oldest first; none if the run has not been scored."""
    records = read_lines(folder / FILE)
    for record in records:
        if "rows" in record:
            record.setdefault("draws", "reference")  # records from before samples were disjoint
    return records


def read_protocol(folder: Path) -> Protocol:
    """The protocol of the study in a folder, as its `study.json` says; the default for any other folder.

    A study from before protocols were written drew rows as the reference library does.
    """
    file = folder / "study.json"
    if not file.exists():
        return Protocol()
    return Protocol(**json.loads(file.read_text()).get("protocol", {"draws": "reference"}))


def find_score(records: Iterable[Record], key: Mapping[str, Any]) -> Record | None:
    """The first record that agrees with `key` in every field of `key`, or None.

    >>> find_score([{"metric": "mig", "seed": 1}, {"metric": "mig", "seed": 0, "values": {}}], {"seed": 0})
    {'metric': 'mig', 'seed': 0, 'values': {}}
    """
    return next((record for record in records if {k: record.get(k) for k in key} == key), None)


def add_scores(
    folder: Path, new: Iterable[Record], replaced: Callable[[Record], bool] = lambda record: False
) -> list[Record]:
    """Add records to a run and return all that it has now.

    The file is read again, extended and replaced as a whole while a lock is held, so that two processes that score the
    same run keep each other's records. A record whose key is present already is not added a second time.

    Args:
        folder: The folder of the run that was scored.
        new: Records with the fields of their key and `values`.
        replaced: Which of the present records to drop, for scores that become invalid, such as a ranking among runs
            that other runs have joined.

    Returns:
        The records in the file after the call.
    """
    with lock(folder / ".scores.lock"):
        present = read_scores(folder)
        records = [record for record in present if not replaced(record)]
        for record in new:
            if find_score(records, {name: value for name, value in record.items() if name != "values"}) is None:
                records.append(record)
        if records != present:
            write_lines(folder / FILE, records)
    return records
