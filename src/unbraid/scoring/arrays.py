"""Score codes that are given as arrays or files, without a model. Importing this module does not import torch."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unbraid.errors import UserError
from unbraid.metrics.arrays import as_codes, as_factors
from unbraid.metrics.protocol import (
    Array,
    Protocol,
    Rows,
    identity,
    identity_digest,
    resolve_metric_names,
    sample_description,
)
from unbraid.runtime.progress import no_progress, progress

READ_ERRORS = (OSError, ValueError, EOFError, zipfile.BadZipFile)


def score_arrays(
    codes: Array,
    factors: Array,
    metrics: Sequence[str] | None = None,
    *,
    protocol: Protocol = Protocol(),
    label: str = "codes",
    quiet: bool = False,
) -> tuple[dict[str, Any], Rows]:
    """Compute metrics of codes.

    Args:
        codes: Codes, (n, d).
        factors: The factors of the same examples as integers, (n, k).
        metrics: Names of metrics. By default all metrics that can be computed are used, and a warning names the others.
        protocol: Defines which rows the metrics use.
        label: The label of the returned dictionary.
        quiet: Whether to hide the progress bar.

    Returns:
        A dictionary and the rows that the metrics used. The dictionary has the scores, called ``metric.key``, and
        `label`, `rows`, `protocol`, `train_rows`, `test_rows` and `draws`.

    Raises:
        UserError: If the arrays are invalid, or if a metric in `metrics` cannot be computed.
    """
    if len(codes) != len(factors):
        raise UserError(
            f"Codes and factors must have the same number of rows. Got {len(codes)} and {len(factors)} instead. Row i "
            "of both arrays must belong to the same example."
        )
    as_codes(codes)
    as_factors(factors)
    rows, names = protocol.rows(codes, factors), resolve_metric_names(metrics)
    with (no_progress if quiet else progress)("scoring", len(names)) as report:
        outcome = rows.score(names, protocol.seed, lambda name: report(names.index(name), name))
    values = outcome.values if outcome.values and metrics is None else outcome.values_or_raise()
    for name, reason in outcome.errors.items():
        warnings.warn(f"left out: {name}: {reason}", RuntimeWarning, stacklevel=2)
    scores = {f"{name}.{key}": value for name, own in values.items() for key, value in own.items()}
    digest = identity_digest(identity(name, protocol.seed, rows.sizes(), protocol.draws) for name in names)
    sample = sample_description(rows.sizes(), protocol)
    return {"label": label, "rows": len(codes), "protocol": digest, **sample, **scores}, rows


def read_array(path: Path, name: str) -> Array:
    """Read a two-dimensional array of numbers from a file.

    Args:
        path: A .npy file, an .npz file that contains a single array or an array called `name`, or a .csv file with or
            without a header.
        name: What the array contains, "codes" or "factors".

    Returns:
        The array, (n, d). A one-dimensional array becomes one column.

    Raises:
        UserError: If the file has a different suffix or cannot be read as numbers.
    """
    readers = {".npy": _read_npy, ".npz": _read_npz, ".csv": _read_csv}
    suffix = path.suffix.lower()
    if suffix not in readers:
        raise UserError(f"The file with the {name} must be a .npy, .npz or .csv file. Got {path} instead.")
    try:
        array = readers[suffix](path, name)
    except READ_ERRORS as error:
        raise UserError(f"{path} cannot be read as numbers: {error}.") from error
    return array[:, None] if array.ndim == 1 else array


def _read_npz(path: Path, name: str) -> Array:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
        keys = list(content)
        if name not in keys and len(keys) != 1:
            raise UserError(
                f"it must contain one array or one called {name!r}, but it contains {', '.join(keys) or 'none'}"
            )
        array: Array = content[name if name in keys else keys[0]]
        return array


def _read_npy(path: Path, name: str) -> Array:
    array: Array = np.load(path, allow_pickle=False)
    return array


def _read_csv(path: Path, name: str) -> Array:
    lines = path.read_text().splitlines()
    if not lines:
        raise UserError("it is empty")
    try:
        [float(value) for value in lines[0].split(",")]
        header = 0
    except ValueError:
        header = 1
    return np.loadtxt(lines[header:], delimiter=",", ndmin=2)
