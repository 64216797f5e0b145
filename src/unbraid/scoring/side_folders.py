"""The sides of a comparison: their folders of runs and their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from unbraid.errors import UserError
from unbraid.runs.only import Only
from unbraid.runs.run import Run
from unbraid.runtime.files import resolve_path
from unbraid.scoring.splitting import settings_that_differ


def check_places(places: Sequence[Sequence[Path]], between: object, only: Only) -> None:
    """Raise a UserError if there are too few folders, or if one of them was given twice."""
    if not places or (len(places) == 1 and between is None):
        differ = settings_that_differ(places[0], only) if places else []
        advice = (
            f" To compare the runs of one folder with each other, pass --between SETTING (between=). Here they differ "
            f"in {', '.join(differ)}."
            if differ
            else ""
        )
        raise UserError(f"A comparison needs at least two folders of runs. Got {len(places)} instead.{advice}")
    if len({tuple(resolve_path(path) for path in paths) for paths in places}) < len(places):
        raise UserError("A comparison needs different folders. One of them was given twice. Remove one of the two.")


def side_folders(side: Any) -> list[Path]:
    """Return the folders of one side of a comparison."""
    listed = [side] if isinstance(side, str | Path | Run) or not isinstance(side, Iterable) else list(side)
    paths = [one.path if isinstance(one, Run) else one for one in listed]
    for path in paths:
        if not isinstance(path, str | Path):
            got = "a run without a folder" if path is None else type(path).__name__
            raise UserError(
                f"A comparison reads the scores in folders of runs. Got {got} instead. Pass folders, or runs that were "
                "trained with out=."
            )
    return [Path(str(path)) for path in paths]


def side_names(places: Sequence[Sequence[Path]]) -> list[str]:
    """Return a unique name for each side: the name of its folder, or of the parent of its folders if there are several.

    If the folders of a side have different parents, the name of the side lists the names of all its folders. If two
    sides would have the same name, every side is named by the paths of its folders.
    """
    short = [paths[0].name if len(paths) == 1 else _common_name(paths) for paths in places]
    return short if len(set(short)) == len(short) else [", ".join(map(str, paths)) for paths in places]


def _common_name(paths: Sequence[Path]) -> str:
    parents = {path.parent for path in paths}
    return parents.pop().name if len(parents) == 1 else ", ".join(path.name for path in paths)
