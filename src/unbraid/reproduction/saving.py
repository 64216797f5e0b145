"""A reproduction in files."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any, get_args

from unbraid.reproduction.agreement import Reproduction, Verdict
from unbraid.reproduction.figure import draw_reproduction
from unbraid.runtime.files import make_folder, write_atomic
from unbraid.runtime.provenance import commit, versions


def save_reproduction(found: Reproduction, folder: str | Path) -> list[Path]:
    """Write NAME.csv, NAME.json and NAME.png into a folder, each whole or not at all."""
    make_folder(Path(folder))
    drawn = io.BytesIO()
    draw_reproduction(found).savefig(drawn, format="png", dpi=110)
    contents = {
        ".csv": found.table().to_csv(index=False).encode(),
        ".json": (json.dumps(summary(found), indent=1, allow_nan=False) + "\n").encode(),
        ".png": drawn.getvalue(),
    }
    paths = [Path(folder) / f"{found.name}{ending}" for ending in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        write_atomic(path, content)
    return paths


def summary(found: Reproduction) -> dict[str, Any]:
    """Everything as plain data, with the versions that made it."""
    kinds = get_args(Verdict)
    lines = [{key: json_value(value) for key, value in cell.line().items()} for cell in found.cells]
    return {
        "study": found.name,
        "reference": found.reference,
        "rule": found.rule,
        "cut": list(found.cuts),
        "counts": {kind: len(found.of(kind)) for kind in kinds},
        "cells": lines,
        "versions": versions(),
        "commit": commit(),
    }


def json_value(value: Any) -> Any:
    """A value as JSON has it: what is not a number is nothing."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
