"""Store learning curves in a folder, so that an interrupted command resumes with the runs that have no curve yet.

Only this module reads and writes `curves.jsonl`. Each line has the key of a curve, the name of its run and the
accuracies.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbraid.reasoning.learning import ReasoningSettings
from unbraid.runtime.files import make_folder, write_jsonl
from unbraid.runtime.locks import lock
from unbraid.runtime.schema import read_jsonl

FILE, LOCK = "curves.jsonl", ".curves.lock"
REVISION = 1  # must change if a new version computes other puzzles or accuracies from the same settings
Curve = list[float]


@dataclass(frozen=True)
class CurveLine:
    """One line of the file.

    Attributes:
        key: The digest of everything that determines the curve (see `curve_key`).
        name: The id of the run, or "true factors" for the reference.
        accuracy: The accuracy at each measurement.
    """

    key: str
    name: str
    accuracy: list[float]


def curve_key(name: str, data: str, fingerprint: str | None, settings: ReasoningSettings) -> str:
    """Return a digest of everything that determines a learning curve.

    Args:
        name: The id of the run, or "true factors" for the reference.
        data: The name of the dataset.
        fingerprint: The fingerprint of data that are not loaded by name, or None.
        settings: The settings of the task and the network.
    """
    facts: dict[str, Any] = {"name": name, "data": data, "fingerprint": fingerprint, "revision": REVISION}
    text = json.dumps({**facts, **dataclasses.asdict(settings)}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_curves(folder: Path | None, points: int) -> dict[str, Curve]:
    """Return the stored curves with the given number of points, by key. If `folder` is None, there are none."""
    if folder is None:
        return {}
    lines = read_jsonl(folder / FILE, CurveLine, remedy="Delete the file. The curves are then computed again.")
    return {line["key"]: line["accuracy"] for line in lines if len(line["accuracy"]) == points}


def add_curves(folder: Path | None, names: Mapping[str, str], curves: Iterable[Sequence[float]]) -> None:
    """Add curves to the file in a folder. Replace stored curves with the same keys. If `folder` is None, do nothing.

    `names` maps the key of each curve to its name, in the order of `curves`. Several processes may add curves at the
    same time.
    """
    if folder is None:
        return
    make_folder(folder)
    new = [
        {"key": key, "name": name, "accuracy": list(curve)}
        for (key, name), curve in zip(names.items(), curves, strict=True)
    ]
    with lock(folder / LOCK):
        old = read_jsonl(folder / FILE, CurveLine, remedy="Delete the file. The curves are then computed again.")
        write_jsonl(folder / FILE, [*(line for line in old if line["key"] not in names), *new])
