"""The specification of a run: all settings that affect its results. The hash of its canonical JSON is the run's id."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from unbraid.errors import UserError, unknown_name_message
from unbraid.methods import METHODS, Hyper, Method, setting
from unbraid.methods.decoder_penalties import DecoderPenalties
from unbraid.methods.method import check_settings
from unbraid.runs.stored_method import StoredMethod
from unbraid.runtime.importing import import_name, is_trusted, trust_name


def registry_name(cls: type[Method]) -> str:
    """Return the name of a method class in `METHODS`, or `module:Class` if the class is not in the registry."""
    names = {known: name for name, known in METHODS.items()}
    return names.get(cls, f"{cls.__module__}:{cls.__qualname__}")


def method_name(method: Method) -> str:
    """Return the name that specs record for a method: its `recorded_name`, if it has one, or the name of its class."""
    return getattr(method, "recorded_name", None) or registry_name(type(method))


def method_class(name: str) -> type[Method]:
    """Return the method class for a name in the registry, `module:Class` or `file.py:Class`.

    A name outside the registry is imported, so it must be one that the user has passed or consented to.
    """
    if METHODS.is_built_in(name):
        return METHODS[name]
    if name.endswith(".py"):
        raise UserError(f"A method in a file is given as {name}:Class. Got only the file. Add the name of its class.")
    if ":" not in name and name not in METHODS:
        raise UserError(unknown_name_message("method", name, [*METHODS, *METHODS.added()]))
    cls = METHODS[name] if name in METHODS else import_name("method", name)
    if not (isinstance(cls, type) and issubclass(cls, Method)):
        raise UserError(f"The method {name!r} must be a subclass of unbraid.methods.Method. Got {cls!r} instead.")
    return cls


def as_methods(given: Any) -> list[Method]:
    """Return one or several methods as a list. A name or a class stands for the method with its default settings.

    >>> [type(method).__name__ for method in as_methods("beta_vae")]
    ['BetaVAE']
    """
    if isinstance(given, Mapping):
        raise UserError(
            "Methods with settings are given as objects, such as ub.methods.BetaVAE(beta=8.0), or several in a list. "
            f"Got a dictionary with the keys {', '.join(map(str, given))} instead."
        )
    several = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    if not several:
        raise UserError("Pass at least one method, such as 'beta_vae'. Got an empty list instead.")
    return [_as_method(one) for one in several]


def _as_method(given: Any) -> Method:
    cls = method_class(given) if isinstance(given, str) else given
    if isinstance(cls, type) and issubclass(cls, Method):
        try:
            return cls()
        except TypeError as error:
            raise UserError(
                f"{cls.__name__} has settings without a default ({error}). Pass them, as in {cls.__name__}(...)."
            ) from error
    if not isinstance(given, Method):
        raise UserError(
            f"The method must be a Method such as ub.methods.BetaVAE(beta=4.0), or a name such as 'beta_vae'. Got "
            f"{given!r} instead."
        )
    return given


@dataclass(frozen=True)
class RunSpec:
    """The specification of one model to train.

    The defaults are the settings of Locatello et al. (2019), arXiv:1811.12359.

    Args:
        method: The method with its hyperparameters.
        data: The name of the dataset and its options, for example "dsprites" or "mnist?part=train".
        seed: Random seed for the initialisation, the order of the data and the noise.
        steps: Number of optimiser steps. With 0 steps the run keeps its random initialisation. None means the default
            of the method, which is 300,000 for most methods.
        batch: Number of examples per step.
        learning_rate: Learning rate of Adam. None means the default of the method, which is 1e-4 for most methods.
        latents: Number of latent dimensions.
        net: The name of a network preset, or `module:function`.
        likelihood: "bernoulli" (pixels in [0, 1]), "gaussian" (variance 1) or "normal" (variance 0.1).
        precision: Precision of matrix products and convolutions: "fp32", "tf32" or "bf16". Sums and parameters are
            always float32.
        validation: Fraction of the examples that is held out from training. The JSON of a spec contains this setting
            and those below only if they are not 0.
        factorised_support: Weight of the distance of the latents from a factorised support (see `HFS`). The weighted
            distance is added to the loss of any VAE.
        weight_decay: Weight decay of AdamW. With 0, the optimiser is Adam.
        clip_norm: Maximum Euclidean norm of the gradient of a run. With 0, gradients are not changed.
        orthogonal_jacobian: Weight of the penalty on inner products of the decoder's derivatives with respect to two
            latents.
        sparse_jacobian: Weight of the L1 penalty on the decoder's derivatives with respect to the latents.
        hessian_penalty: Weight of the penalty on the decoder's mixed second derivatives with respect to two latents.
            The documentation of `DecoderPenalties` has the equations of these three penalties.

    Raises:
        UserError: If `method` is not a `Method`, or if a setting is out of range.
    """

    method: Method
    data: str
    seed: int = setting(0, "random seed for initialisation, data order and noise", low=0, high=2**63 - 1)
    steps: int = setting(None, "optimiser steps; 0 keeps the random initialisation", low=0)
    batch: int = setting(64, "examples per step", low=2)
    learning_rate: Hyper = setting(None, "learning rate of Adam", low=0)
    latents: int = setting(10, "number of latent dimensions", low=1)
    net: str = "locatello"
    likelihood: Literal["bernoulli", "gaussian", "normal"] = setting(
        "bernoulli", "bernoulli (pixels in [0, 1]), gaussian (variance 1) or normal (variance 0.1)"
    )
    precision: Literal["fp32", "tf32", "bf16"] = setting(
        "fp32", "precision of matrix products; sums are always float32"
    )
    validation: float = setting(0.0, "fraction of the examples held out from training", low=0, high=0.9, optional=True)
    factorised_support: float = setting(
        0.0, "weight of the distance from a factorised support (see HFS), added to any VAE", low=0, optional=True
    )
    weight_decay: float = setting(
        0.0, "weight decay of AdamW: each step multiplies parameters by 1 - learning rate * decay", low=0, optional=True
    )
    clip_norm: float = setting(
        0.0,
        "maximum norm of the gradient of a run; larger gradients are scaled down; 0: no limit",
        low=0,
        optional=True,
    )
    orthogonal_jacobian: float = setting(
        0.0,
        "weight of the penalty on inner products of the decoder's derivatives with respect to two latents",
        low=0,
        optional=True,
    )
    sparse_jacobian: float = setting(
        0.0, "weight of the L1 penalty on the decoder's derivatives with respect to the latents", low=0, optional=True
    )
    hessian_penalty: float = setting(
        0.0,
        "weight of the penalty on the decoder's mixed second derivatives with respect to two latents",
        low=0,
        optional=True,
    )

    def __post_init__(self) -> None:
        if not isinstance(self.method, Method):
            raise UserError(
                f"The method of a run must be a Method such as BetaVAE(beta=4.0). Got {self.method!r} instead."
            )
        for name in ("data", "net"):
            if not isinstance(getattr(self, name), str):
                raise UserError(
                    f"The {name!r} parameter of RunSpec must be a name. Got {getattr(self, name)!r} instead."
                )
        for name in ("steps", "learning_rate"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, getattr(self.method, f"default_{name}"))
        check_settings("RunSpec", self)
        if not isinstance(self.method, StoredMethod):
            trust_name(registry_name(type(self.method)), type(self.method))

    @property
    def penalties(self) -> DecoderPenalties:
        """The penalties on the derivatives of the decoder."""
        return DecoderPenalties(self.orthogonal_jacobian, self.sparse_jacobian, self.hessian_penalty)

    @property
    def float32_networks(self) -> tuple[str, ...]:
        """The networks that are always computed in float32, because small differences between their outputs matter."""
        return ("decoder",) if self.penalties.active else self.method.float32_networks

    def to_dict(self, complete: bool = False) -> dict[str, Any]:
        """Return the fields as plain values. `method` is a dictionary with the `name` and the fields of the method.

        Optional fields that have their default (see `setting`) are left out unless `complete` is true.
        """
        values = _field_values(self, complete)
        if isinstance(self.method, StoredMethod):
            return {**values, "method": {"name": self.method.name, **dict(self.method.values)}}
        fields = _field_values(self.method, complete)
        return {**values, "method": {"name": method_name(self.method), **fields}}

    def flat(self, complete: bool = False) -> dict[str, Any]:
        """Return the name of the method, its fields and all other fields in one flat dictionary.

        Optional fields that have their default are left out unless `complete` is true.

        >>> from unbraid.methods import BetaVAE
        >>> list(RunSpec(BetaVAE(beta=2.0), "sprites").flat())[:4]
        ['method', 'beta', 'data', 'seed']
        """
        values = self.to_dict(complete)
        method = values.pop("method")
        return {"method": method.pop("name"), **method, **values}

    @classmethod
    def from_dict(cls, values: dict[str, Any], *, trust: bool = False, facts: Mapping[str, Any] = {}) -> RunSpec:
        """Create a spec from the output of `to_dict`.

        Args:
            values: The output of `to_dict`.
            trust: Whether a method outside the registry may be imported, which runs the code of its module. Otherwise
                the method is a `StoredMethod`, unless its class was used in this process before.
            facts: What tables need to know about a method that is not imported (see `method_facts`).

        Returns:
            The spec.

        Raises:
            UserError: If a field is unknown or missing, or a value is invalid.
        """
        _check_fields(cls, values)
        if not isinstance(values.get("method"), dict):
            raise UserError(f"The method of a run must be an object with a name. Got {values.get('method')!r} instead.")
        method = dict(values["method"])
        name = str(method.pop("name", ""))
        if ":" in name and not (trust or is_trusted(name)):
            return cls(**{**values, "method": StoredMethod.from_values(name, method, facts)})
        kind = method_class(name)
        _check_fields(kind, method)
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
        values = self.to_dict(complete=True)
        method, seed = values.pop("method"), values.pop("seed")
        data, name = values.pop("data"), method.pop("name")
        return data, name, *map(orderable, (*method.values(), *values.values())), seed

    def settings_key(self) -> str:
        """Return a string that is equal for runs that differ only in the seed."""
        return json.dumps({key: value for key, value in self.to_dict().items() if key != "seed"}, sort_keys=True)

    def stack_key(self) -> str:
        """Return a string that is equal for runs that can be trained together in one stack.

        It contains every field except the seed, the learning rate and the `Hyper` fields of the method.
        """
        values = self.to_dict()
        for name in self.method.hypers():
            values["method"].pop(name, None)
        return json.dumps({k: v for k, v in values.items() if k not in ("seed", "learning_rate")}, sort_keys=True)


def _field_values(instance: Any, complete: bool) -> dict[str, Any]:
    """Return the fields of a dataclass by name.

    Optional fields that have their default are left out unless `complete` is true.
    """
    values = {field: getattr(instance, field.name) for field in dataclasses.fields(instance)}
    return {
        field.name: value
        for field, value in values.items()
        if complete or not field.metadata.get("optional") or value != field.default
    }


def find_method(name: str, methods: Iterable[type[Method]]) -> type[Method] | None:
    """Return the class among `methods` that a stored name refers to, or None.

    A class that was defined in a script is stored as `__main__:Class`. If no class has the whole stored name,
    the class with the name after the colon is returned.
    """
    by_name = {registry_name(cls): cls for cls in methods}
    by_class = {cls.__qualname__: cls for cls in methods}
    return by_name.get(name) or by_class.get(name.rpartition(":")[2])


def import_method(spec: RunSpec, methods: Iterable[type[Method]] = ()) -> RunSpec:
    """Return a spec with its real method instead of a `StoredMethod`. The user must have consented to run its code.

    Args:
        spec: The spec.
        methods: Classes of methods that the user has passed. The class of the spec is imported if it is none of them.

    Raises:
        UserError: If the class cannot be imported or does not have the stored settings.
    """
    stored = spec.method
    if isinstance(stored, StoredMethod) and (cls := find_method(stored.name, methods)) is not None:
        _check_fields(cls, dict(stored.values))
        method = cls(**dict(stored.values))
        object.__setattr__(method, "recorded_name", stored.name)
        return dataclasses.replace(spec, method=method)
    return RunSpec.from_dict(spec.to_dict(), trust=True) if isinstance(spec.method, StoredMethod) else spec


def orderable(value: Any) -> tuple[bool, Any]:
    """Return a key that can be compared with the key of any other value. Numbers come before text."""
    number = isinstance(value, int | float)
    return not number, value if number else str(value)


def _check_fields(cls: type[Any], values: dict[str, Any]) -> None:
    """Raise a UserError if a name in `values` is not a field of the dataclass, or if a required field is missing."""
    fields = dataclasses.fields(cls)
    known = [f.name for f in fields]
    for name in values:
        if name not in known:
            raise UserError(unknown_name_message(f"field of {cls.__name__}", name, known))
    for field in fields:
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in values:
            raise UserError(f"The field {field.name!r} of {cls.__name__} is missing.")
