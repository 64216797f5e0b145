"""A module with a method and a network of the user's own, and folders of runs that use it."""

from __future__ import annotations

import importlib
import itertools
import sys
from pathlib import Path
from types import ModuleType

import pytest

from unbraid.runtime import importing

NUMBERS = itertools.count()
SOURCE = """
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from unbraid.methods import BetaVAE

Path(__file__).with_suffix(".imported").touch()
WIDTH = 8


def layer(wide):
    return nn.Linear(wide, WIDTH)


def pair(shape, latents):
    wide = shape[0]
    encoder = nn.Sequential(layer(wide), nn.Tanh(), nn.Linear(WIDTH, 2 * latents))
    return encoder, nn.Sequential(nn.Linear(latents, WIDTH), nn.Tanh(), nn.Linear(WIDTH, wide))


@dataclass(frozen=True)
class Mine(BetaVAE):
    def objective(self, net, batch, noise, step):
        loss, logs = super().objective(net, batch, noise, step)
        return 2 * loss, logs
"""


class OwnModule:
    """A module in a temporary folder that is on the path. Its name is new, so no other test has imported it."""

    def __init__(self, folder: Path) -> None:
        self.name = f"own_code_{next(NUMBERS)}"
        self.path = folder / f"{self.name}.py"
        self.path.write_text(SOURCE)

    @property
    def method(self) -> str:
        """The name of the method in specs."""
        return f"{self.name}:Mine"

    @property
    def net(self) -> str:
        """The name of the network in specs."""
        return f"{self.name}:pair"

    def load(self) -> ModuleType:
        """Import the module as the user does."""
        return importlib.import_module(self.name)

    def edit(self, old: str, new: str) -> ModuleType:
        """Change the source and import the module again, as a new process does."""
        text = self.path.read_text()
        assert old in text
        self.path.write_text(text.replace(old, new))
        self.forget()
        return self.load()

    def forget(self) -> None:
        """Forget the module and the user's consent, as at the start of a new process."""
        sys.modules.pop(self.name, None)
        importlib.invalidate_caches()
        importing._TRUSTED.clear()
        self.path.with_suffix(".imported").unlink(missing_ok=True)

    @property
    def imported(self) -> bool:
        """Whether the module has been imported since it was last forgotten."""
        return self.path.with_suffix(".imported").exists()


def make_own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnModule:
    """Return a new module in a folder `code` inside `tmp_path`."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # an edit within a second must not be hidden by the cache
    (tmp_path / "code").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    return OwnModule(tmp_path / "code")
