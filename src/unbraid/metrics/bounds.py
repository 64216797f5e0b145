"""What a perfect code and pure noise score on the same rows of the same factors: a score's ceiling and floor."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np

from unbraid.errors import UserError
from unbraid.metrics.known_codes import noise, perfect
from unbraid.metrics.protocol import Array, Rows, Values, identity, silent
from unbraid.runtime.files import cache_folder, make_folder, write_atomic

Kept = dict[str, Values]


def bounds(
    rows: Rows,
    names: Iterable[str],
    seed: int = 0,
    tell: Callable[[str], None] = silent,
    draws: str = "disjoint",
) -> dict[str, dict[str, Values]]:
    """Scores of a perfect code (one code a factor: its values) and of noise (as many normal codes as `rows` has).

    A metric that refuses such a code has no values: the perfect code of a single factor has no second best for MIG.
    Kept in the cache folder by factors, rows, estimator and versions, and read from there the next time.

    >>> v = np.indices((3, 4)).reshape(2, -1).T
    >>> both = bounds(Rows(v, v, np.arange(12), np.arange(12)), ["mig"])
    >>> round(both["perfect"]["mig"]["discrete_mig"], 6)
    1.0
    """
    asked, d = list(names), rows.codes.shape[1]
    planted: dict[str, Callable[[], Array]] = {
        "perfect": lambda: perfect(rows.factors),
        "noise": lambda: noise(rows.factors, seed, d=d),
    }
    found = {}
    for kind, codes in planted.items():
        file = cache_folder() / "bounds" / f"{kind}-{_digest(rows, d if kind == 'noise' else 0)}.json"
        kept = _read(file)
        keys = {name: json.dumps(identity(name, seed, rows.sizes(), draws), sort_keys=True) for name in asked}
        if missing := [name for name in asked if keys[name] not in kept]:
            made = rows.of(codes()).score(missing, seed, partial(_told, tell, kind))
            kept |= {keys[name]: made.values.get(name, {}) for name in missing}
            _write(file, kept)
        found[kind] = {name: kept[key] for name, key in keys.items()}
    return found


def _told(tell: Callable[[str], None], kind: str, name: str) -> None:
    tell(f"{name} of {kind}")


def _digest(rows: Rows, d: int) -> str:
    """A name for the factors, which rows of them are seen, and the number of noise codes."""
    content = hashlib.sha256(str((rows.factors.shape, d)).encode())
    for array in (rows.factors.astype(np.int64), rows.train, rows.test):
        content.update(np.ascontiguousarray(array).data)
    return content.hexdigest()[:16]


def _read(file: Path) -> Kept:
    """What was kept; nothing where the file is absent or damaged, which costs the computation and no more."""
    try:
        content = json.loads(file.read_text())
        return content if isinstance(content, dict) else {}
    except (OSError, ValueError):
        return {}


def _write(file: Path, content: Kept) -> None:
    """Keep for the next time; a folder that cannot be written is no reason to stop."""
    try:
        make_folder(file.parent)
        write_atomic(file, json.dumps(content).encode())
    except UserError as error:
        warnings.warn(f"Ceilings and floors could not be kept: {error}", RuntimeWarning, stacklevel=3)
