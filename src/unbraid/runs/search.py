"""Finding runs in one or several folders, at any depth."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from shlex import quote
from typing import Any, TypeAlias

from unbraid.errors import UserError, warn_user
from unbraid.runs.folder import RunFolder, find_runs
from unbraid.runs.only import Only, choose
from unbraid.runs.results import read_sweep_positions
from unbraid.runs.scores import FILE
from unbraid.runtime.files import resolve_path

Folders: TypeAlias = str | Path | Iterable[str | Path]


def as_folders(folders: Folders) -> list[Path]:
    """Return one or several folders as a list of paths.

    >>> as_folders("runs") == as_folders([Path("runs")])
    True
    """
    listed = [folders] if isinstance(folders, str | Path) or not isinstance(folders, Iterable) else list(folders)
    for folder in listed:
        if not isinstance(folder, str | Path):
            raise UserError(
                f"A folder of runs must be given by its path, such as 'runs/beta'. Got {type(folder).__name__} instead."
            )
    return [Path(folder) for folder in listed]


def search_runs(folders: Folders, only: Only = None) -> list[RunFolder]:
    """Return the runs in folders and in all folders below them.

    A run that was copied to several places is returned once. Of its copies, a finished one is preferred, then one
    with exact weights, then one with scores, then the first one that was found. Folders whose names begin with a dot
    are not searched.

    Args:
        folders: One or several folders of runs, or folders of single runs. Paths of files among them are ignored.
        only: Which runs to choose (see `unbraid.runs.only.parse_only`). By default all.

    Returns:
        The runs, sorted by their specs.

    Raises:
        UserError: If there are no runs, a folder does not exist, a `run.json` is damaged, or two runs with the same id
            were trained on different data or with different source code.
    """
    paths = as_folders(folders)
    found = {path: list(_walk(path, set())) for path in paths}
    if missing := [path for path in paths if not path.exists()]:
        raise UserError(_no_runs(missing))
    if not any(found.values()):
        raise UserError(_no_runs(paths))
    if empty := [str(path) for path, runs in found.items() if not runs and path.is_dir()]:
        warn_user(f"left out: no runs in {', '.join(empty)}")
    unique = _unique(run for runs in found.values() for run in runs)
    return choose(sorted(unique, key=lambda run: run.spec.sort_key()), properties_of_runs(), only)


def _no_runs(folders: list[Path]) -> str:
    """Return the message of the error that folders contain no runs. It says which of them are files or do not exist."""
    where = ", ".join(map(_describe, folders)) or "an empty list of folders"
    if files := [path for path in folders if path.is_file()]:
        return f"No runs in {where}. Pass a folder of runs, or a run folder, such as {files[0].parent}."
    out = quote(str(folders[0])) if folders else "runs"
    return f"No runs in {where}. Train some with: unbraid train beta_vae --out {out}"


def _describe(path: Path) -> str:
    if path.exists():
        return f"{path}, which is a file" if path.is_file() else str(path)
    return f"{path}, which does not exist"


def _walk(folder: Path, visited: set[Path]) -> Iterator[RunFolder]:
    """Yield the runs in a folder and below it. `visited` has the folders above it, to stop at circular links."""
    place = resolve_path(folder)
    if place in visited or not folder.is_dir():
        return
    yield from find_runs(folder)
    if not (folder / "run.json").exists():
        for child in sorted(folder.iterdir()):
            if not child.name.startswith(".") and child.is_dir() and not (child / "run.json").exists():
                yield from _walk(child, visited | {place})


def _unique(runs: Iterable[RunFolder]) -> list[RunFolder]:
    """Return each run once. Of several runs with the same id, return the one that `_preference` prefers."""
    kept: dict[str, RunFolder] = {}
    for run in runs:
        other = kept.setdefault(run.spec.id, run)
        if (other.data, other.own.sources) != (run.data, run.own.sources):
            raise UserError(
                f"Runs with the same id must be copies of each other. {other.path} and {run.path} were trained on "
                "different data or with different source code. Pass only one of them."
            )
        if run is not other and _preference(run) > _preference(other):
            kept[run.spec.id] = run
    return list(kept.values())


def _preference(run: RunFolder) -> tuple[bool, bool, bool]:
    """Return a key that is larger for the better copy of a run.

    A finished copy is preferred, then one whose weights are not rounded, then one with scores.
    """
    finished = run.status in ("done", "diverged")
    return finished, finished and _has_exact_weights(run), (run.path / FILE).exists()


def _has_exact_weights(run: RunFolder) -> bool:
    """Return whether the weights of a finished run can be read and are not rounded."""
    try:
        return run.check_weights().rounded is None
    except UserError:
        return False


def properties_of_runs() -> Callable[[RunFolder], dict[str, Any]]:
    """Return a function that maps a run to its settings and, if it belongs to a study, its position in the study."""
    read = functools.cache(read_sweep_positions)

    def properties(run: RunFolder) -> dict[str, Any]:
        return {**read(run.path.parent).get(run.spec.id, {}), **run.spec.flat(complete=True)}

    return properties
