"""Write a reproduction to files."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any, get_args

from unbraid.reproduction.agreement import Reproduction, Verdict
from unbraid.reproduction.figure import draw_reproduction
from unbraid.runtime.files import make_folder, write_atomic
from unbraid.runtime.provenance import git_commit, library_versions


def save_reproduction(reproduction: Reproduction, folder: str | Path) -> list[Path]:
    """Write a reproduction to NAME.csv, NAME.json and NAME.png, where NAME is the name of the study.

    Args:
        reproduction: The result of `reproduce`.
        folder: The folder of the files. It is created if it does not exist.

    Returns:
        The paths of the files. Each file is written atomically.
    """
    make_folder(Path(folder))
    picture = io.BytesIO()
    draw_reproduction(reproduction).savefig(picture, format="png", dpi=110)
    contents = {
        ".csv": reproduction.table().to_csv(index=False).encode(),
        ".json": (json.dumps(json_content(reproduction), indent=1, allow_nan=False) + "\n").encode(),
        ".png": picture.getvalue(),
    }
    paths = [Path(folder) / f"{reproduction.name}{ending}" for ending in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        write_atomic(path, content)
    return paths


def json_content(reproduction: Reproduction) -> dict[str, Any]:
    """Return the reproduction as values for JSON, with the versions of the libraries."""
    kinds = get_args(Verdict)
    lines = [{key: json_value(value) for key, value in cell.flat_row().items()} for cell in reproduction.cells]
    return {
        "study": reproduction.name,
        "reference": reproduction.reference,
        "rule": reproduction.rule,
        "cut": list(reproduction.deviations),
        "counts": {kind: len(reproduction.cells_with(kind)) for kind in kinds},
        "cells": lines,
        "versions": library_versions(),
        "commit": git_commit(),
    }


def json_value(value: Any) -> Any:
    """Return the value, or None if it is a number that is not finite, because JSON cannot represent it."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
