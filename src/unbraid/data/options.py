"""What may follow a dataset's name: ``dsprites?correlate=x:y:0.2``, ``scream_dsprites?picture=me.jpg``."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.sampling import joint
from unbraid.errors import UserError, unknown
from unbraid.noise import Noise

COMMON = {
    "correlate": "FACTOR:FACTOR:SPREAD draws two factors together (joint spread in [0, 1] units; .2 is strong)",
    "subset": "draws from this many fixed examples only",
    "seed": "of the subset [0]",
    "modified": "FILE of `unbraid data modify` whose changes are added to the images, or default",
    "noise": "strength of fixed uniform noise in every pixel, the control of a manipulation (.1, or .1:clip)",
}
CHANGES = ("modified", "noise")  # which own data take too


def split_name(name: str) -> tuple[str, dict[str, str]]:
    """The name and its options.

    >>> split_name("toy?correlate=a:b:0.2&subset=50")
    ('toy', {'correlate': 'a:b:0.2', 'subset': '50'})
    """
    bare, _, text = name.partition("?")
    parts = [part.partition("=") for part in text.split("&") if part]
    return bare, {key: value for key, _, value in parts}


def peeled(name: str) -> tuple[str, dict[str, str]]:
    """The name of own data without the options that change its images, and those; files are told by whole paths.

    >>> peeled("photos?size=32&noise=0.1")
    ('photos?size=32', {'noise': '0.1'})
    """
    path, _, text = name.rpartition("?")
    parts = [part.partition("=") for part in text.split("&")] if path else []
    mine = {key: value for key, _, value in parts if key in CHANGES}
    if not mine:
        return name, {}
    if (file := Path(mine.get("modified", "")).expanduser()).is_file():
        mine["modified"] = str(file.resolve())
    left = "&".join(key + mark + value for key, mark, value in parts if key not in CHANGES)
    return path + "?" * bool(left) + left, mine


def own_options(make: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Options a dataset's function takes besides the device, the progress and the folder of files."""
    parameters = inspect.signature(make).parameters
    return {name: p for name, p in parameters.items() if name not in ("device", "progress", "root", "cache")}


def check_options(name: str, make: Callable[..., Any], options: Mapping[str, str]) -> dict[str, Any]:
    """Those options that the dataset's function takes; unknown ones are refused."""
    own = own_options(make)
    for key in options:
        if key not in own and key not in COMMON:
            raise UserError(unknown(f"option of {name}", key, [*own, *COMMON]))
    return {key: _typed(value, key, own[key].default) for key, value in options.items() if key in own}


def _typed(text: str, key: str, default: Any) -> Any:
    """An option as its default is: a whole number, several parted by x (64x64), or text."""
    if isinstance(default, tuple):
        return tuple(whole(part, key, 1, 2**31) for part in text.split("x"))
    return whole(text, key, 0, 2**31) if isinstance(default, int) else text


def applied(data: FactorData, name: str, options: Mapping[str, str], root: str | Path | None = None) -> FactorData:
    """The data under its whole name, changed and drawn as the options say; the grid stays as it is."""
    if not options:
        return data
    from unbraid.data.manipulated import changed as with_changes

    changed = copy.copy(with_changes(data, options, root))
    changed.name = name
    if "correlate" in options:
        changed.law = Correlated.of(data, options["correlate"])
    if "subset" in options:
        size = whole(options["subset"], "subset", 1, len(data))
        seed = whole(options.get("seed", "0"), "seed", 0, 2**63 - 1)
        changed.law = Subset(data, size, seed)
    return changed


class Correlated:
    """Two factors drawn from their joint distribution, the others uniform."""

    def __init__(self, data: FactorData, first: int, second: int, spread: float) -> None:
        self.first, self.second, self.width = first, second, data.sizes[second]
        table = joint((data.sizes[first], self.width), spread, torch.device("cpu"))
        self.chances = table.flatten().cumsum(0).float().to(data.device)

    @classmethod
    def of(cls, data: FactorData, text: str) -> Correlated:
        """From ``factor:factor:spread``."""
        parts = text.split(":")
        if len(parts) != 3:
            raise UserError(f"Write correlate=FACTOR:FACTOR:SPREAD, such as correlate=x:y:0.2. Got {text!r} instead.")
        if not data.gridded:
            raise UserError(f"Factors can be correlated on a full grid only. {data.name} has examples of its own.")
        for name in parts[:2]:
            if name not in data.names:
                raise UserError(unknown(f"factor of {data.name}", name, list(data.names)))
        if parts[0] == parts[1]:
            raise UserError(f"Correlate two different factors. Got {parts[0]} twice.")
        try:
            spread = float(parts[2])
        except ValueError:
            spread = math.nan
        if not 0 < spread < math.inf:
            raise UserError(f"The spread of a correlation must be finite and > 0. Got {parts[2]!r} instead.")
        return cls(data, data.names.index(parts[0]), data.names.index(parts[1]), spread)

    def draw(self, data: FactorData, noise: Noise, n: int) -> Int[Tensor, " n"]:
        """Indices into the grid."""
        factors = list(noise.integers(data.grid[0], n, len(data.sizes)).unbind(1))
        cell = torch.searchsorted(self.chances[:-1], noise.uniform(n))
        factors[self.first], factors[self.second] = cell // self.width, cell % self.width
        return data.place(torch.stack(factors, 1))

    def to(self, device: str | torch.device) -> Correlated:
        """The same law on another device."""
        moved = copy.copy(self)
        moved.chances = self.chances.to(device)
        return moved


class Subset:
    """A fixed choice of examples, each as likely."""

    def __init__(self, data: FactorData, size: int, seed: int) -> None:
        chosen = np.random.default_rng(seed).choice(len(data), size, replace=False)
        self.rows = torch.from_numpy(np.sort(chosen)).to(data.device)

    def draw(self, data: FactorData, noise: Noise, n: int) -> Int[Tensor, " n"]:
        """Indices among those chosen."""
        return self.rows[noise.integers(len(self.rows), n)]

    def to(self, device: str | torch.device) -> Subset:
        """The same choice on another device."""
        moved = copy.copy(self)
        moved.rows = self.rows.to(device)
        return moved


def whole(text: str, what: str, low: int, high: int) -> int:
    """A whole number in a range."""
    try:
        value = int(text)
    except ValueError:
        raise UserError(f"The option '{what}' must be a whole number. Got {text!r} instead.") from None
    if not low <= value <= high:
        raise UserError(f"The option '{what}' must be between {low} and {high}. Got {value} instead.")
    return value
