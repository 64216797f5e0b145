"""Reading and writing files. A file is written as a whole, so it is either complete or absent."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unbraid.errors import UserError


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file by way of a temporary file in the same folder, which is synced to disk and then renamed.

    Readers see either the old content or all of the new content, even if the process is killed.

    Raises:
        UserError: If the file cannot be written.
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
            f"Could not write {path}: {error.strerror}. Existing files are unchanged. Free some space or choose "
            "another folder, then repeat the command to resume from the last checkpoint."
        ) from error


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Return the records of a .jsonl file, or an empty list if the file does not exist.

    Raises:
        UserError: If a line is not valid JSON.
    """
    try:
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}. Delete it and repeat the command.") from error


def write_jsonl(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Write records to a .jsonl file, one per line. An existing file is replaced."""
    write_atomic(path, "".join(json.dumps(record) + "\n" for record in records).encode())


def cache_folder() -> Path:
    """Return the cache folder.

    It is the first of $UNBRAID_CACHE and $XDG_CACHE_HOME/unbraid whose variable is set, or ~/.cache/unbraid.
    """
    if chosen := os.environ.get("UNBRAID_CACHE"):
        return Path(chosen)
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "unbraid"
    return Path.home() / ".cache" / "unbraid"


def make_folder(path: Path) -> None:
    """Create a folder and its parents, if they do not exist.

    Raises:
        UserError: If the folder cannot be created.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"Could not create the folder {path}: {error.strerror}. Choose another one.") from error


def remove_temporary_files(folder: Path) -> None:
    """Remove temporary files of `write_atomic` that a killed process left in a folder."""
    for leftover in folder.glob(".*.tmp"):
        leftover.unlink(missing_ok=True)
