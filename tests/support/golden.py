"""Scores and intermediate values of google-research/disentanglement_lib at 86a644d with scikit-learn 1.9.1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from support.known_codes import Array

GOLDEN_CASES = ("perfect", "permuted_scaled", "householder", "noisy")


class Golden(NamedTuple):
    """One case of the reference implementation: the expected values and the arrays from which they were computed."""

    want: dict[str, Any]
    arrays: dict[str, Array]

    @property
    def points(self) -> tuple[Array, Array, Array, Array]:
        """Codes, factors, test codes and test factors."""
        a = self.arrays
        return a["codes_train"], a["factors_train"].astype(int), a["codes_test"], a["factors_test"].astype(int)


def golden_values(shared: Path) -> dict[str, Any]:
    """Return all values of the reference implementation."""
    values: dict[str, Any] = json.loads((shared / "golden" / "golden.json").read_text())
    return values


def golden_case(shared: Path, name: str) -> Golden:
    """Return one of `GOLDEN_CASES`."""
    want = golden_values(shared)["cases"][name]
    with np.load(shared / "golden" / want["file"]) as arrays:
        return Golden(want, dict(arrays))


def golden_extra(shared: Path) -> Golden:
    """Return the values and arrays that belong to no case."""
    with np.load(shared / "golden" / "extra.npz") as arrays:
        return Golden(golden_values(shared)["extra"], dict(arrays))
