"""Choosing runs of a study or stored runs by their properties, as in ``method=beta_vae,beta=8``."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from unbraid.errors import UserError, unknown_name_message

Only: TypeAlias = str | Mapping[str, Any] | Iterable[str] | None
"""Which runs to choose, such as "method=beta_vae,beta=8", {"beta": [4, 8]}, or several texts. None chooses all."""

T = TypeVar("T")
# A text is split at commas. A part that matches this pattern begins a new property. Any other part is one more value of
# the previous property.
PROPERTY = re.compile(r"[A-Za-z_][\w.]*=")
MAX_LISTED = 8  # maximum number of values of a property that an error lists


def parse_only(only: Only) -> dict[str, list[str]]:
    """Return the wanted values of each property as text.

    In a text, commas separate properties and also several values of one property.

    Args:
        only: One text, several texts, or a mapping from properties to one or several values.

    Returns:
        The values by property, each as a user would type it.

    Raises:
        UserError: If a text does not begin with a property and an equals sign. The value may be empty.

    >>> parse_only("method=beta_vae,factor_vae,beta=8.0")
    {'method': ['beta_vae', 'factor_vae'], 'beta': ['8']}
    >>> parse_only({"beta": [4, 8], "data": "mnist?part=train"})
    {'beta': ['4', '8'], 'data': ['mnist?part=train']}
    """
    if isinstance(only, Mapping):
        given = {str(name): _listed(value) for name, value in only.items()}
    else:
        given = {}
        for text in [] if only is None else list(only) if isinstance(only, list | tuple) else [only]:
            _add_text(given, text)
    return {name: [text_as_typed(value) for value in values] for name, values in given.items()}


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]


def _add_text(given: dict[str, list[Any]], text: Any) -> None:
    """Add the properties and values of one text, such as "level=0,5" or "method=vae,latents=10"."""
    found: dict[str, list[str]] = {}
    name = ""
    for part in str(text).split(","):
        value = part
        if PROPERTY.match(part):
            name, _, value = part.partition("=")
        found.setdefault(name, []).append(value)
    if "" in found:
        raise UserError(
            f"--only must be PROPERTY=VALUE, such as data=dsprites or method=beta_vae,beta=8. Got {text!r} instead."
        )
    for name, values in found.items():
        given.setdefault(name, []).extend(values)


def text_as_typed(value: Any) -> str:
    """Format a value as a user would type it, for example 4 for 4.0.

    >>> text_as_typed(4.0), text_as_typed("4.0"), text_as_typed("dsprites"), text_as_typed(1e-4)
    ('4', '4', 'dsprites', '0.0001')
    """
    try:
        return f"{float(value):g}"
    except (TypeError, ValueError):
        return str(value)


def has_values(properties: Mapping[str, Any], wanted: Mapping[str, Collection[str]]) -> bool:
    """Return whether each wanted property has one of its wanted values. `wanted` is the result of `parse_only`."""
    return all(text_as_typed(properties.get(name)) in values for name, values in wanted.items())


def check_properties(wanted: Iterable[str], known: Iterable[str]) -> None:
    """Raise a UserError if a wanted property is not known."""
    names = list(known)
    for name in wanted:
        if name not in names:
            raise UserError(unknown_name_message("property of a run", name, names))


def choose(items: Sequence[T], properties: Callable[[T], Mapping[str, Any]], only: Only) -> list[T]:
    """Return the items whose properties have the wanted values.

    Raises:
        UserError: If a property is unknown, or if no item is chosen.
    """
    wanted = parse_only(only)
    if not wanted or not items:
        return list(items)
    found = [properties(item) for item in items]
    check_properties(wanted, dict.fromkeys(name for own in found for name in own))
    chosen = [item for item, own in zip(items, found, strict=True) if has_values(own, wanted)]
    if not chosen:
        raise UserError(nothing_chosen(wanted, found))
    return chosen


def nothing_chosen(wanted: Mapping[str, list[str]], found: Sequence[Mapping[str, Any]]) -> str:
    """Return an error message that lists which values the runs have."""
    asked = ", ".join(f"{name}={','.join(values)}" for name, values in wanted.items())
    present = []
    for name in wanted:
        values = list(dict.fromkeys(text_as_typed(own[name]) for own in found if name in own))
        present.append(f"{name}={','.join(values[:MAX_LISTED])}{',...' if len(values) > MAX_LISTED else ''}")
    return f"None of the {len(found)} runs has {asked}. They have {'; '.join(present)}. Choose among these values."
