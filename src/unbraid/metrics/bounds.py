"""Ceilings and floors of the scores on a table of factors: the scores of perfect codes and of pure noise."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np

from unbraid.errors import UserError, warn_user
from unbraid.metrics.known_codes import make_noise_codes, make_perfect_codes
from unbraid.metrics.protocol import Array, Rows, Values
from unbraid.runtime.files import cache_folder, make_folder, write_atomic
from unbraid.runtime.progress import ignore_message
from unbraid.runtime.schema import check

CachedScores = dict[str, Values]


def bounds(
    rows: Rows,
    names: Iterable[str],
    seed: int = 0,
    on_metric: Callable[[str], None] = ignore_message,
) -> dict[str, dict[str, Values]]:
    """Return the scores of perfect codes and of noise.

    The perfect codes have one latent per factor. Each latent holds the centred values of its factor. The noise has as
    many standard normal latents as the codes of `rows`. The scores are stored in the cache folder under a key that
    consists of the factors, the rows, the estimator of the metric and the versions of the libraries. Later calls with
    the same key read the scores from this folder.

    Args:
        rows: A table and its samples. Of the codes in the table, only the number of latents is used.
        names: Keys of `METRICS`.
        seed: Random seed for the noise and the metrics.
        on_metric: Function that is called with a message before each metric is computed.

    Returns:
        A dictionary with the keys "perfect" and "noise". Each value holds the scores by metric. The scores of a metric
        are an empty dictionary if the metric raises an error for these codes. For example, MIG raises an error for the
        perfect codes of a single factor, because there is no second-best latent.

    Example:
        >>> v = np.indices((3, 4)).reshape(2, -1).T
        >>> both = bounds(Rows(v, v, np.arange(12), np.arange(12)), ["mig"])
        >>> round(both["perfect"]["mig"]["discrete_mig"], 6)
        1.0
    """
    names, d = list(names), rows.codes.shape[1]
    make_codes: dict[str, Callable[[], Array]] = {
        "perfect": lambda: make_perfect_codes(rows.factors),
        "noise": lambda: make_noise_codes(rows.factors, seed, d=d),
    }
    scores = {}
    for kind, codes in make_codes.items():
        file = cache_folder() / "bounds" / f"{kind}-{_digest(rows, d if kind == 'noise' else 0)}.json"
        cached = _read_cache(file)
        keys = {name: json.dumps(rows.identity(name, seed), sort_keys=True) for name in names}
        if missing := [name for name in names if keys[name] not in cached]:
            outcome = rows.with_codes(codes()).score(missing, seed, partial(_report_metric, on_metric, kind))
            cached |= {keys[name]: outcome.values.get(name, {}) for name in missing}
            _write_cache(file, cached)
        scores[kind] = {name: cached[key] for name, key in keys.items()}
    return scores


def _report_metric(on_metric: Callable[[str], None], kind: str, name: str) -> None:
    """Call `on_metric` with the name of the metric and the kind of codes."""
    on_metric(f"{name} of {kind}")


def _digest(rows: Rows, d: int) -> str:
    """Return a digest of the factors, the row numbers of the samples, and the number of noise latents."""
    content = hashlib.sha256(str((rows.factors.shape, d)).encode())
    exact = np.float64 if rows.factors.dtype.kind == "f" else np.int64
    for array in (rows.factors.astype(exact), rows.train, rows.test):
        content.update(np.ascontiguousarray(array).data)
    return content.hexdigest()[:16]


def _read_cache(file: Path) -> CachedScores:
    """Return the stored scores, or an empty dictionary if the file is missing or damaged."""
    try:
        content: CachedScores = check(CachedScores, json.loads(file.read_text()))
        return content
    except (OSError, ValueError, RecursionError):
        return {}


def _write_cache(file: Path, content: CachedScores) -> None:
    """Write the scores to the cache folder, or warn if the folder is not writable."""
    try:
        make_folder(file.parent)
        write_atomic(file, json.dumps(content).encode())
    except UserError as error:
        warn_user(f"Ceilings and floors could not be stored in the cache: {error}")
