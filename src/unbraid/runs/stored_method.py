"""A method of the user's own as data, without importing its class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unbraid.methods.method import Method


@dataclass(frozen=True)
class StoredMethod(Method):
    """The name and the settings of a method outside the registry, as they were read from a file.

    The class of the method is not imported. Tables, comparisons and ids need only what is stored here. A run that is
    loaded as a model has the real method (see `unbraid.runs.spec.import_method`).

    Attributes:
        name: The name of the class, `module:Class`.
        values: The settings of the method, in the order of its fields.
        swept_value: The value of the setting that studies vary (the swept setting). If it is None, `strength` is the
            value of the first setting that is a floating-point number.
        codes: The kinds of codes that the method has. The first one is the default.
    """

    name: str
    values: tuple[tuple[str, Any], ...]
    swept_value: float | None = None
    codes: tuple[str, ...] = Method.code_kinds

    def __post_init__(self) -> None:
        object.__setattr__(self, "code_kinds", self.codes)

    @classmethod
    def from_values(cls, name: str, values: Mapping[str, Any], facts: Mapping[str, Any]) -> StoredMethod:
        """Create a stored method from its settings and the facts that `method_facts` returned, which may be empty."""
        codes = tuple(facts.get("codes", Method.code_kinds))
        return cls(name, tuple(values.items()), facts.get("strength"), codes)

    @property
    def strength(self) -> float:
        """The `swept_value`.

        If it is None, `strength` is the first setting that is a floating-point number, or 0 if there is none.
        """
        if self.swept_value is not None:
            return self.swept_value
        return next((value for _, value in self.values if isinstance(value, float)), 0.0)


def method_facts(method: Method) -> dict[str, Any]:
    """Return what tables need to know about a method in addition to its settings, as plain values."""
    return {"strength": method.strength, "codes": list(method.code_kinds)}
