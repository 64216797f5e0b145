"""The run-time type checker of the tests: beartype on every function of the package.

Constructors are left out, because what users pass to them must meet the library's own messages first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from beartype import BeartypeConf, beartype

_check = beartype(conf=BeartypeConf(is_pep484_tower=True))


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check arguments and results; an int is a float."""
    if isinstance(function, type) or function.__name__ == "__init__":
        return function
    checked: Callable[..., Any] = _check(function)
    return checked
