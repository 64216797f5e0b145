"""Keeping results tables up to date: commands that store scores of runs write the tables of these runs again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from unbraid.errors import UserError, warn_user
from unbraid.runs.results import RESULTS_FILE, RESULTS_LOCK, write_results
from unbraid.runs.scores import FILE

if TYPE_CHECKING:
    from unbraid.runs.run import Run


@contextmanager
def updated_results(runs: Iterable[Run]) -> Iterator[None]:
    """Write the results tables of runs again at the end of this context, if they may lack scores of these runs.

    A table may lack scores that were stored inside the context. It may also lack scores that an earlier command stored
    before it was killed. A table is written only if it exists, or if another process is writing it at that moment. That
    process may have read the scores before they were stored. Tables are also written if the context ends with an error,
    because some scores may have been stored before the error. If a table cannot be written, there is only a warning,
    because the scores themselves are stored.

    Args:
        runs: The runs that are scored. Runs without a folder are ignored.
    """
    paths = [run.path for run in runs if run.path is not None]
    before = [_file_state(path / FILE) for path in paths]
    try:
        yield
    finally:
        changed = [path for path, state in zip(paths, before, strict=True) if _file_state(path / FILE) != state]
        lacking = _table_folders(changed)
        for folder in _table_folders(paths):
            if folder in lacking or _is_older(folder, paths):
                _update_table(folder)


def _table_folders(paths: Sequence[Path]) -> dict[Path, None]:
    """Return the folders whose tables contain these runs: the parent folder of each run, and the run's own folder."""
    return dict.fromkeys(folder for path in paths for folder in (path.parent, path))


def _file_state(file: Path) -> tuple[int, int, int] | None:
    """Return values that change whenever a file is replaced, or None if there is no such file."""
    try:
        facts = file.stat()
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_ino, facts.st_size


def _is_older(folder: Path, paths: Sequence[Path]) -> bool:
    """Return whether the table of a folder is writable and older than the scores of one of these runs.

    A table without a lock file was published or copied. The times of its files have no meaning, so the result is False.
    """
    table = _file_state(folder / RESULTS_FILE)
    if table is None or not (folder / RESULTS_LOCK).exists() or not os.access(folder, os.W_OK):
        return False
    states = (_file_state(path / FILE) for path in paths if folder in (path, path.parent))
    return any(state is not None and state[0] > table[0] for state in states)


def _update_table(folder: Path) -> None:
    """Write the results table of a folder again, if there is one or another process is writing it."""
    if not ((folder / RESULTS_LOCK).exists() or (folder / RESULTS_FILE).is_file()):
        return
    try:
        write_results(folder, replace_only=True)
    except UserError as error:
        warn_user(f"{folder / RESULTS_FILE} may lack the latest scores, which are stored with the runs: {error}")
