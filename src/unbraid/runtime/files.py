"""Files that are either whole or absent."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unbraid.errors import UserError


def write_atomic(path: Path, content: bytes) -> None:
    """Write through a temporary file in the same folder, synced before it takes the name.

    A reader, or a process killed at any moment, sees the old content or the new, never a part.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise UserError(
            f"Could not write {path}: {error.strerror}. Nothing already there was touched: free some space or choose "
            "another folder, then give the same command again to go on from the last checkpoint."
        ) from error


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The records of a .jsonl file, none if there is no such file."""
    try:
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}. Delete it and give the command again.") from error


def write_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Replace a .jsonl file."""
    write_atomic(path, "".join(json.dumps(record) + "\n" for record in records).encode())


def cache_folder() -> Path:
    """UNBRAID_CACHE, else unbraid in XDG_CACHE_HOME, else ~/.cache/unbraid."""
    if chosen := os.environ.get("UNBRAID_CACHE"):
        return Path(chosen)
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "unbraid"
    return Path.home() / ".cache" / "unbraid"


def make_folder(path: Path) -> None:
    """Create a folder and its parents, or say why that is not possible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"Could not create the folder {path}: {error.strerror}. Choose another one.") from error


def sweep_temporaries(folder: Path) -> None:
    """Remove what a killed writer left behind."""
    for leftover in folder.glob(".*.tmp"):
        leftover.unlink(missing_ok=True)
