"""Registries of built-in entries that also find entries of other installed packages.

An installed package can add a method, metric, dataset or network through an entry point in the group
`unbraid.methods`, `unbraid.metrics`, `unbraid.data` or `unbraid.nets`. Entry points are read when a name that is not
built in is looked up. The module of an entry point is imported only when its entry is used. A built-in name always
refers to the built-in entry.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from unbraid.errors import UserError

T = TypeVar("T")
GROUPS = ("methods", "metrics", "data", "nets")


@functools.cache
def plugins(group: str) -> dict[str, tuple[EntryPoint, ...]]:
    """Return the entry points in a group, such as "methods", by name.

    Several packages may offer the same name, so each name has a tuple of entry points.
    """
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in entry_points(group=f"unbraid.{group}"):
        if entry.value not in [other.value for other in found.get(entry.name, ())]:
            found[entry.name] = (*found.get(entry.name, ()), entry)
    return found


def plugin(group: str, name: str) -> EntryPoint:
    """Return the entry point of a group with a given name. The name must exist in the group.

    Raises:
        UserError: If several packages offer different entries with this name.
    """
    entries = plugins(group)[name]
    if len(entries) > 1:
        offered = " and ".join(f"{package_name(entry)} ({entry.value})" for entry in entries)
        raise UserError(
            f"The name {name!r} in the group unbraid.{group} must be unique. Got {offered}. Uninstall one of the "
            "packages."
        )
    return entries[0]


def load_plugin(group: str, name: str) -> Any:
    """Import and return the object that an entry point of an installed package refers to.

    Raises:
        UserError: If the object cannot be imported, or if several packages offer the name.
    """
    entry = plugin(group, name)
    try:
        return entry.load()
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise UserError(
            f"The entry point {name!r} of the package {package_name(entry)} must be importable as {entry.value}. Got: "
            f"{error}. Reinstall or remove the package."
        ) from error


def package_name(entry: EntryPoint) -> str:
    """Return the name of the installed package that declares an entry point, or "unknown"."""
    return "unknown" if entry.dist is None else entry.dist.name


def is_offered(name: str) -> bool:
    """Return whether an entry point of an installed package refers to the object `name`, such as "module:attribute"."""
    return any(entry.value == name for group in GROUPS for entries in plugins(group).values() for entry in entries)


class Registry(dict[str, T]):
    """Built-in entries by name. Other names are looked up among the entry points of installed packages.

    Iterating over a registry gives the built-in entries only.

    Args:
        group: The name of the group, such as "methods".
        entries: The built-in entries.
    """

    def __init__(self, group: str, entries: Mapping[str, T]) -> None:
        super().__init__(entries)
        self.group = group

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in plugins(self.group)

    def __missing__(self, name: str) -> T:
        if name not in plugins(self.group):
            raise KeyError(name)
        entry: T = load_plugin(self.group, name)
        return entry

    def is_built_in(self, name: str) -> bool:
        """Return whether a name refers to a built-in entry."""
        return super().__contains__(name)

    def added(self) -> dict[str, str]:
        """Return the names that installed packages add, each with the name of its package."""
        return {
            name: package_name(entries[0])
            for name, entries in plugins(self.group).items()
            if not self.is_built_in(name)
        }
