"""The specification of a run: all settings that affect its results. The hash of its canonical JSON is the run's id."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

from unbraid.errors import UserError, unknown_name_message
from unbraid.methods import METHODS, Hyper, Method, setting
from unbraid.methods.method import check_settings
from unbraid.runtime.importing import import_name


def registry_name(cls: type[Method]) -> str:
    """Return the name of a method class in `METHODS`, or `module:Class` if the class is not in the registry."""
    names = {known: name for name, known in METHODS.items()}
    return names.get(cls, f"{cls.__module__}:{cls.__qualname__}")


def method_class(name: str) -> type[Method]:
    """Return the method class for a name in the registry or of the form `module:Class`. Inverse of `registry_name`."""
    if name in METHODS:
        return METHODS[name]
    if ":" not in name:
        raise UserError(unknown_name_message("method", name, METHODS))
    cls = import_name("method", name)
    if not (isinstance(cls, type) and issubclass(cls, Method)):
        raise UserError(f"The method {name!r} must be a subclass of unbraid.methods.Method. Got {cls!r} instead.")
    return cls


@dataclass(frozen=True)
class RunSpec:
    """The specification of one model to train.

    The defaults are the settings of Locatello et al. (2019), arXiv:1811.12359.

    Args:
        method: The method with its hyperparameters.
        data: The name of the dataset and its options, for example "dsprites" or "mnist?part=train".
        seed: Random seed for the initialisation, the order of the data and the noise.
        steps: Number of optimiser steps. With 0 steps the run keeps its random initialisation.
        batch: Number of examples per step.
        learning_rate: Learning rate of Adam.
        latents: Number of latent dimensions.
        net: The name of a network preset, or `module:function`.
        likelihood: "bernoulli" (pixels in [0, 1]), "gaussian" (variance 1) or "normal" (variance 0.1).
        precision: Precision of matrix products and convolutions. Sums and parameters are always float32.

    Raises:
        UserError: If `method` is not a `Method`, or if a setting is out of range.
    """

    method: Method
    data: str
    seed: int = setting(0, "random seed for initialisation, data order and noise", low=0, high=2**63 - 1)
    steps: int = setting(300_000, "optimiser steps; 0 keeps the random initialisation", low=0)
    batch: int = setting(64, "examples per step", low=2)
    learning_rate: Hyper = setting(1e-4, "learning rate of Adam", low=0)
    latents: int = setting(10, "number of latent dimensions", low=1)
    net: str = "locatello"
    likelihood: Literal["bernoulli", "gaussian", "normal"] = setting(
        "bernoulli", "bernoulli (pixels in [0, 1]), gaussian (variance 1) or normal (variance 0.1)"
    )
    precision: Literal["fp32", "tf32", "bf16"] = setting(
        "fp32", "precision of matrix products; sums are always float32"
    )

    def __post_init__(self) -> None:
        if not isinstance(self.method, Method):
            raise UserError(
                f"The method of a run must be a Method such as BetaVAE(beta=4.0). Got {self.method!r} instead."
            )
        check_settings("RunSpec", self)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values. `method` is a dictionary with the `name` and the fields of the method."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        fields = {f.name: getattr(self.method, f.name) for f in dataclasses.fields(self.method)}
        return {**values, "method": {"name": registry_name(type(self.method)), **fields}}

    def flat(self) -> dict[str, Any]:
        """Return the name of the method, its fields and all other fields in one flat dictionary.

        >>> from unbraid.methods import BetaVAE
        >>> list(RunSpec(BetaVAE(beta=2.0), "sprites").flat())[:4]
        ['method', 'beta', 'data', 'seed']
        """
        values = self.to_dict()
        method = values.pop("method")
        return {"method": method.pop("name"), **method, **values}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RunSpec:
        """Create a spec from the output of `to_dict`. Raise a UserError that names any unknown field."""
        method = dict(values.get("method", {}))
        kind = method_class(str(method.pop("name", "")))
        _check_fields(kind, method)
        _check_fields(cls, values)
        return cls(**{**values, "method": kind(**method)})

    def to_json(self) -> str:
        """Return canonical JSON, which is equal for equal specs.

        Keys are sorted, there are no spaces, and each number has the shortest exact form.
        """
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @functools.cached_property
    def id(self) -> str:
        """The first 12 hex digits of the SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:12]

    def sort_key(self) -> tuple[Any, ...]:
        """Return a key that sorts runs by dataset, method, hyperparameters (as numbers) and seed."""
        values = self.to_dict()
        method, seed = values.pop("method"), values.pop("seed")
        return values.pop("data"), method.pop("name"), *method.values(), *values.values(), seed

    def settings_key(self) -> str:
        """Return a string that is equal for runs that differ only in the seed."""
        return json.dumps({key: value for key, value in self.to_dict().items() if key != "seed"}, sort_keys=True)

    def stack_key(self) -> str:
        """Return a string that is equal for runs that can be trained together in one stack.

        It contains every field except the seed, the learning rate and the `Hyper` fields of the method.
        """
        values = self.to_dict()
        for name in self.method.hypers():
            del values["method"][name]
        return json.dumps({k: v for k, v in values.items() if k not in ("seed", "learning_rate")}, sort_keys=True)


def _check_fields(cls: type[Any], values: dict[str, Any]) -> None:
    """Raise a UserError if a name in `values` is not a field of the dataclass."""
    known = [f.name for f in dataclasses.fields(cls)]
    for name in values:
        if name not in known:
            raise UserError(unknown_name_message(f"field of {cls.__name__}", name, known))
