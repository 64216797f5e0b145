"""A package with entry points, installed in a temporary folder."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest

from unbraid.runtime import plugins

NUMBERS = itertools.count()
SOURCE = """
from dataclasses import dataclass
import numpy as np
from torch import nn
from unbraid.data import from_arrays
from unbraid.methods import BetaVAE
from unbraid.metrics import Trait

@dataclass(frozen=True)
class Mine(BetaVAE):
    pass

def pair(shape, latents):
    return nn.Linear(shape[0], 2 * latents), nn.Linear(latents, shape[0])

def spread(codes, factors):
    return {"spread": float(np.std(codes))}

spread.trait = Trait("spread", "standard deviation of all codes")

def lines(rows: int = 40):
    return from_arrays(np.random.default_rng(0).normal(size=(rows, 6)), np.arange(rows) % 4)

def wrong():
    return 3
"""


class Package:
    """An installed package that offers a method, a network, a metric and datasets."""

    def __init__(self, folder: Path, entries: dict[str, list[str]] | None = None) -> None:
        self.name = f"offered_{next(NUMBERS)}"
        (folder / f"{self.name}.py").write_text(SOURCE)
        offered = {
            "methods": ["mine = {}:Mine", "beta_vae = {}:Mine", "gone = {}:Missing"],
            "nets": ["pair = {}:pair"],
            "metrics": ["spread = {}:spread", "plain = {}:pair"],
            "data": ["lines = {}:lines", "wrong = {}:wrong"],
        } if entries is None else entries  # fmt: skip
        about = folder / f"{self.name}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {self.name}\nVersion: 1.0\n")
        lines = [line for group, names in offered.items() for line in (f"[unbraid.{group}]", *names)]
        (about / "entry_points.txt").write_text("\n".join(lines).format(*[self.name] * 20))
        plugins.plugins.cache_clear()

    @property
    def imported(self) -> bool:
        """Whether the module of the package has been imported."""
        return self.name in sys.modules


def install_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """Install the package in a folder that is on the import path."""
    monkeypatch.syspath_prepend(str(folder))
    return Package(folder)
