"""The page about speed can be generated from results with one and with several numbers of threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def step(**settings: Any) -> dict[str, Any]:
    """Return one measured case."""
    return {"net": "locatello", "precision": "bf16", "runs": 1, "ms": {"pythae": 70.0, "unbraid": 28.0}, **settings}


def rows(results: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the first cells of the rows about training."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "docs"))
    from generate import speed

    monkeypatch.setattr(speed, "result", lambda name: results)
    return [speed.training_row(case)[0] for case in speed.training_cases()]


def test_results_with_one_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = rows({"threads": 2, "steps": [step()]}, monkeypatch)
    assert row == "beta-VAE step, batch 64, 64x64 pixels, `locatello`, bf16, one run"


def test_results_with_several_numbers_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [step(side=side, threads=threads) for threads in (1, 2) for side in (64, 32)]
    found = rows({"threads": [1, 2], "steps": steps}, monkeypatch)
    assert found[0] == "beta-VAE step, batch 64, 64x64 pixels, `locatello`, bf16, one run, 1 core"
    assert found[3] == "beta-VAE step, batch 64, 32x32 pixels, `locatello`, bf16, one run, 2 cores"
