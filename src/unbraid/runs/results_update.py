"""Keeping results tables up to date: commands that store scores of runs write the tables of these runs again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from unbraid.errors import UserError, warn_user
from unbraid.runs.results import RESULTS_FILE, RESULTS_LOCK, write_results
from unbraid.runs.scores import FILE

if TYPE_CHECKING:
    from unbraid.runs.run import Run

FileState = tuple[int, int, int] | None


@contextmanager
def updated_results(runs: Iterable[Run]) -> Iterator[None]:
    """Write the results tables of runs again at the end of this context, if scores were stored inside it.

    Only existing tables are written, and those that another process is writing at that moment: it may have read the
    scores before they were stored. The tables are also written if the context ends with an error, because scores may
    have been stored before. A table that cannot be written is a warning, because the scores themselves are stored.

    Args:
        runs: The runs that are scored. Runs without a folder are ignored.
    """
    paths = [run.path for run in runs if run.path is not None]
    before = [_file_state(path / FILE) for path in paths]
    try:
        yield
    finally:
        changed = [path for path, state in zip(paths, before, strict=True) if _file_state(path / FILE) != state]
        for folder in dict.fromkeys(folder for path in changed for folder in (path.parent, path)):
            _update_table(folder)


def _file_state(file: Path) -> FileState:
    """Return values that change whenever a file is replaced, or None if there is no such file."""
    try:
        facts = file.stat()
    except OSError:
        return None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def _update_table(folder: Path) -> None:
    """Write the results table of a folder again, if there is one or another process is writing it."""
    if not ((folder / RESULTS_LOCK).exists() or (folder / RESULTS_FILE).is_file()):
        return
    try:
        write_results(folder, replace_only=True)
    except UserError as error:
        warn_user(f"The new scores are stored, but they are missing from {folder / RESULTS_FILE}: {error}")
