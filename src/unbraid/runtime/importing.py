"""Importing objects by a name of the form `module:attribute`, which specs and settings use.

A name that the user passes in this process is trusted. A name that was read from a file is imported only with consent,
because importing a module runs its code.
"""

from __future__ import annotations

import importlib
from typing import Any

from unbraid.errors import UserError

_TRUSTED: set[str] = set()  # names that the user has passed or consented to in this process


def import_name(kind: str, name: str) -> Any:
    """Import an object by its name `module:attribute`.

    Args:
        kind: What the object is, for the error message.
        name: The name, such as "package.module:function".

    Returns:
        The object.

    Raises:
        UserError: If the object cannot be imported.
    """
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise UserError(f"The {kind} {name!r} must be importable as module:attribute. Got: {error}.") from error


def trust_name(name: str) -> None:
    """Remember that the user has passed this name, or the object with this name, in this process."""
    _TRUSTED.add(name)


def is_trusted(name: str) -> bool:
    """Return whether the user has passed this name, or the object with this name, in this process."""
    return name in _TRUSTED


def check_trust(kind: str, name: str, where: object, trust: bool) -> None:
    """Raise an error if a name that was read from a file may not be imported.

    Args:
        kind: What the object is, for the error message.
        name: The name, such as "package.module:function".
        where: The folder of the run, for the error message.
        trust: Whether the user has consented to run code that files name.

    Raises:
        UserError: If the user has neither consented nor passed the name in this process.
    """
    if not (trust or is_trusted(name)):
        raise UserError(
            f"The {kind} {name!r} of the run {where} is not part of unbraid. Loading it imports the Python module "
            f"{name.partition(':')[0]!r} and runs its code with your rights. If you trust the folder of the run and "
            "this module, pass --trust (trust=True)."
        )
