"""Objects named in files: `module:attribute`."""

from __future__ import annotations

import importlib
from typing import Any

from unbraid.errors import UserError


def import_name(kind: str, name: str) -> Any:
    """The object behind `module:attribute`."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"The {kind} {name!r} must be importable as module:attribute. Got: {error}.") from error
