"""Ceilings and floors of scores: the scores of a perfect code and of noise on the same rows of the same factors."""

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
from unbraid.metrics.protocol import Array, Rows, Values, identity
from unbraid.runtime.files import cache_folder, make_folder, write_atomic
from unbraid.runtime.progress import ignore_note

CachedScores = dict[str, Values]


def bounds(
    rows: Rows,
    names: Iterable[str],
    seed: int = 0,
    on_metric: Callable[[str], None] = ignore_note,
    draws: str = "disjoint",
) -> dict[str, dict[str, Values]]:
    """Return the scores of a perfect code and of noise.

    The perfect code has one dimension per factor, which holds the values of the factor. The noise has as many standard
    normal codes as `rows`. The scores are stored in the cache folder by factors, rows, estimator and versions, and are
    read from there when they are needed again.

    Args:
        rows: The factors and the samples. Only the number of its codes is used.
        names: Keys of `METRICS`.
        seed: Seed of the noise and of the metrics.
        on_metric: Called with a note before each metric is computed.
        draws: How the samples were drawn; part of the identity of the scores.

    Returns:
        A dictionary with the keys "perfect" and "noise", and for each of them the scores by metric. The scores of a
        metric are empty if it raises an error for such codes. For example, the perfect code of a single factor has no
        second-best code for MIG.

    Example:
        >>> v = np.indices((3, 4)).reshape(2, -1).T
        >>> both = bounds(Rows(v, v, np.arange(12), np.arange(12)), ["mig"])
        >>> round(both["perfect"]["mig"]["discrete_mig"], 6)
        1.0
    """
    names, d = list(names), rows.codes.shape[1]
    make_codes: dict[str, Callable[[], Array]] = {
        "perfect": lambda: perfect(rows.factors),
        "noise": lambda: noise(rows.factors, seed, d=d),
    }
    scores = {}
    for kind, codes in make_codes.items():
        file = cache_folder() / "bounds" / f"{kind}-{_digest(rows, d if kind == 'noise' else 0)}.json"
        cached = _read_cache(file)
        keys = {name: json.dumps(identity(name, seed, rows.sizes(), draws), sort_keys=True) for name in names}
        if missing := [name for name in names if keys[name] not in cached]:
            outcome = rows.with_codes(codes()).score(missing, seed, partial(_report, on_metric, kind))
            cached |= {keys[name]: outcome.values.get(name, {}) for name in missing}
            _write_cache(file, cached)
        scores[kind] = {name: cached[key] for name, key in keys.items()}
    return scores


def _report(on_metric: Callable[[str], None], kind: str, name: str) -> None:
    on_metric(f"{name} of {kind}")


def _digest(rows: Rows, d: int) -> str:
    """Return a digest of the factors, the row numbers of the samples, and the number of noise codes."""
    content = hashlib.sha256(str((rows.factors.shape, d)).encode())
    for array in (rows.factors.astype(np.int64), rows.train, rows.test):
        content.update(np.ascontiguousarray(array).data)
    return content.hexdigest()[:16]


def _read_cache(file: Path) -> CachedScores:
    """Return the stored scores, or none if the file is missing or damaged: they are then computed again."""
    try:
        content = json.loads(file.read_text())
        return content if isinstance(content, dict) else {}
    except (OSError, ValueError):
        return {}


def _write_cache(file: Path, content: CachedScores) -> None:
    """Store scores in the cache folder. If the folder is not writable, warn and continue."""
    try:
        make_folder(file.parent)
        write_atomic(file, json.dumps(content).encode())
    except UserError as error:
        warnings.warn(f"Ceilings and floors could not be stored in the cache: {error}", RuntimeWarning, stacklevel=3)
