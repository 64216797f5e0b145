"""Tables as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unbraid.runtime.files import make_folder, write_atomic


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format rows as CSV. Every key that occurs in any row is a column."""
    fields = list(dict.fromkeys(key for row in rows for key in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows to a CSV file. Its folder is created if it does not exist."""
    make_folder(path.parent)
    write_atomic(path, to_csv(rows).encode())
