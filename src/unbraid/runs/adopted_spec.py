"""The specs of runs whose models were trained outside unbraid.

Such a spec says what is known about the model: the name and the settings that the user gave, the data, the number of
latents, and a digest of the model. It has no steps, batch size or learning rate.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unbraid.errors import UserError
from unbraid.methods import METHODS
from unbraid.methods.adopted import POINT_CODES, Adopted
from unbraid.methods.method import Method
from unbraid.runs.spec import RunSpec, orderable

STORED = "stored"  # the value of `net` if the model is stored in the folder of the run
FIELDS = ("method", "data", "seed", "latents", "net", "model")
UNKNOWN = ("steps", "batch", "learning_rate", "likelihood")


@dataclass(frozen=True)
class AdoptedSpec(RunSpec):
    """The spec of a model that was trained outside unbraid.

    `steps`, `batch`, `learning_rate` and `likelihood` are None, because they are not known. `seed` is None unless the
    user gave one. `net` is "stored" if the model is stored in the folder of the run, or ``module:function`` if it is
    Python code.

    Attributes:
        model: A digest of the model, 16 hexadecimal digits.
    """

    seed: int | None = None  # type: ignore[assignment]
    net: str = STORED
    model: str = ""

    def __post_init__(self) -> None:
        for name in UNKNOWN:
            object.__setattr__(self, name, None)
        if self.seed is not None and not (isinstance(self.seed, int) and 0 <= self.seed < 2**63):
            raise UserError(f"The seed must be a whole number from 0, or None. Got {self.seed!r} instead.")
        if not isinstance(self.latents, int) or self.latents < 1:
            raise UserError(f"The number of latents must be a whole number from 1. Got {self.latents!r} instead.")
        if not isinstance(self.method, Adopted):
            raise UserError(f"The method of an adopted run must be Adopted. Got {self.method!r} instead.")
        if not all(isinstance(getattr(self, name), str) for name in ("data", "net", "model")):
            raise UserError("The data, the net and the model of an adopted run must be text.")

    def to_dict(self, complete: bool = False) -> dict[str, Any]:
        """Return the known fields as plain values. `method` contains the name and the settings that the user gave.

        `complete` has no effect.
        """
        assert isinstance(self.method, Adopted)
        net = {} if self.net == STORED else {"net": self.net}
        own = {"name": self.method.name, **dict(self.method.values)}
        return {"method": own, "data": self.data, "seed": self.seed, "latents": self.latents, **net,
                "model": self.model}  # fmt: skip

    def sort_key(self) -> tuple[Any, ...]:
        """Return a key that sorts runs by dataset, name, settings, seed and model."""
        values = self.to_dict()
        method = values.pop("method")
        name = method.pop("name")
        return self.data, name, *map(orderable, (*method.values(), self.seed, self.model))

    def settings_key(self) -> str:
        """Return a string that is equal for models that differ only in the seed and in the digest of the model.

        Models with equal strings count as runs of one setting with different seeds, even if they have no seed.
        """
        values = {key: value for key, value in self.to_dict().items() if key not in ("seed", "model")}
        return json.dumps(values, sort_keys=True)


def read_spec(values: dict[str, Any], facts: Mapping[str, Any]) -> RunSpec:
    """Create a spec from the output of `to_dict`. A spec with the field `model` is that of an adopted model.

    Args:
        values: The output of `to_dict`.
        facts: What tables need to know about a method that is not imported (see `method_facts`).

    Raises:
        UserError: If a field is unknown or missing, or a value is invalid.
    """
    if "model" not in values:
        return RunSpec.from_dict(values, facts=facts)
    method = values.get("method")
    if not set(values) <= set(FIELDS) or not isinstance(method, dict) or not isinstance(method.get("name"), str):
        raise UserError(f"A spec with a model must have the fields {', '.join(FIELDS)}. Got {', '.join(values)}.")
    settings = {name: value for name, value in method.items() if name != "name"}
    codes = Method.code_kinds if tuple(facts.get("codes", ())) == Method.code_kinds else POINT_CODES
    return AdoptedSpec(**{**values, "method": Adopted.from_values(method["name"], check_given(settings), codes)})


def check_name(name: Any) -> str:
    """Return the name of an adopted model, or raise a UserError if tables or the command line could not show it."""
    if not isinstance(name, str) or not re.fullmatch(r"[^\W_][\w .+()-]{0,59}", name) or name != name.strip():
        raise UserError(
            "The name of a model must have 1 to 60 letters, digits, spaces or characters among ._+-(), and must begin "
            f"with a letter or a digit. Got {name!r} instead."
        )
    if name in METHODS or name == "untrained":
        raise UserError(f"The name of a model must not be that of a method of unbraid. Got {name!r}. Choose another.")
    return name


def check_given(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that the user gave, or raise a UserError if they cannot be columns of tables."""
    for name, value in settings.items():
        taken = name in (*FIELDS, *UNKNOWN, "name", "run", "label", "status", "strength", "index", "level", "variant")
        if not isinstance(name, str) or not name.isidentifier() or taken:
            raise UserError(
                f"A setting must have a name such as beta that is not yet a column of tables. Got {name!r}."
            )
        if isinstance(value, bool) or not isinstance(value, int | float | str) or value != value:
            raise UserError(f"The setting {name!r} must be a number or text. Got {value!r} instead.")
    return dict(settings)
