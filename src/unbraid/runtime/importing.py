"""Importing objects by a name of the form `module:attribute`, which specs and settings use."""

from __future__ import annotations

import importlib
from typing import Any

from unbraid.errors import UserError


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
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"The {kind} {name!r} must be importable as module:attribute. Got: {error}.") from error
