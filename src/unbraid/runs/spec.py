"""A run as a value: everything that decides its numbers, as canonical JSON, with the hash of that as its id."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

from unbraid.errors import UserError, unknown
from unbraid.runtime.importing import import_name
from unbraid.methods import METHODS, Hyper, Method, setting
from unbraid.methods.method import check_settings


def method_name(cls: type[Method]) -> str:
    """The registry's name of a method, or `module:Class` for one of the user's own."""
    names = {known: name for name, known in METHODS.items()}
    return names.get(cls, f"{cls.__module__}:{cls.__qualname__}")


def method_class(name: str) -> type[Method]:
    """The inverse of `method_name`."""
    if name in METHODS:
        return METHODS[name]
    if ":" not in name:
        raise UserError(unknown("method", name, METHODS))
    cls = import_name("method", name)
    if not (isinstance(cls, type) and issubclass(cls, Method)):
        raise UserError(f"The method {name!r} must be a subclass of unbraid.methods.Method. Got {cls!r} instead.")
    return cls


@dataclass(frozen=True)
class RunSpec:
    """One model to train. Defaults are those of the large study (Locatello et al. 2019, arXiv:1811.12359)."""

    method: Method
    data: str
    seed: int = setting(0, "random seed of initialisation, data order and noise", low=0, high=2**63 - 1)
    steps: int = setting(300_000, "optimiser steps; 0 keeps the random initialisation", low=0)
    batch: int = setting(64, "examples a step", low=2)
    learning_rate: Hyper = setting(1e-4, "Adam step size", low=0)
    latents: int = setting(10, "dimensions of the code", low=1)
    net: str = "locatello"
    likelihood: Literal["bernoulli", "gaussian", "normal"] = setting(
        "bernoulli", "bernoulli (pixels in [0, 1]), gaussian (variance 1) or normal (variance .1)"
    )
    precision: Literal["fp32", "tf32", "bf16"] = setting("fp32", "of products; sums and parameters are always float32")

    def __post_init__(self) -> None:
        if not isinstance(self.method, Method):
            raise UserError(
                f"The method of a run must be a Method such as BetaVAE(beta=4.0). Got {self.method!r} instead."
            )
        check_settings("RunSpec", self)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, the method as its name and fields."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        fields = {f.name: getattr(self.method, f.name) for f in dataclasses.fields(self.method)}
        return {**values, "method": {"name": method_name(type(self.method)), **fields}}

    def flat(self) -> dict[str, Any]:
        """The name of the method, its fields and all other fields, side by side.

        >>> from unbraid.methods import BetaVAE
        >>> list(RunSpec(BetaVAE(beta=2.0), "sprites").flat())[:4]
        ['method', 'beta', 'data', 'seed']
        """
        values = self.to_dict()
        method = values.pop("method")
        return {"method": method.pop("name"), **method, **values}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RunSpec:
        """The inverse of `to_dict`; unknown fields are refused by name."""
        method = dict(values.get("method", {}))
        kind = method_class(str(method.pop("name", "")))
        _refuse_unknown(kind, method)
        _refuse_unknown(cls, values)
        return cls(**{**values, "method": kind(**method)})

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces, shortest exact numbers. Equal specs give equal bytes."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @functools.cached_property
    def id(self) -> str:
        """The first 12 hex digits of the SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:12]

    def sort_key(self) -> tuple[Any, ...]:
        """Runs in reading order: by data and method, then by hyperparameters as numbers, then by seed."""
        values = self.to_dict()
        method, seed = values.pop("method"), values.pop("seed")
        return values.pop("data"), method.pop("name"), *method.values(), *values.values(), seed

    def stack_key(self) -> str:
        """What runs must share to ride in one stack: all but the seed and the `Hyper` fields."""
        values = self.to_dict()
        for name in self.method.hypers():
            del values["method"][name]
        return json.dumps({k: v for k, v in values.items() if k not in ("seed", "learning_rate")}, sort_keys=True)


def _refuse_unknown(cls: type[Any], values: dict[str, Any]) -> None:
    known = [f.name for f in dataclasses.fields(cls)]
    for name in values:
        if name not in known:
            raise UserError(unknown(f"field of {cls.__name__}", name, known))
