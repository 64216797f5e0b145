"""The run-time type checker of the tests: beartype on every function of the package.

Constructors are left out, because what users pass to them must meet the library's own messages first.

The import hook of jaxtyping decorates every function with `jaxtyping.jaxtyped`, which binds all arguments to the
signature and checks them twice. That takes more time than many functions. `use_fast_checks` replaces it by `checked`,
which makes the same checks once: beartype alone for functions without array shapes, and beartype with one set of axis
sizes for functions with them.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import TypeCheckError, jaxtyped

Function = Callable[..., Any]

_beartype = beartype(conf=BeartypeConf(is_pep484_tower=True, violation_type=TypeCheckError))


def use_fast_checks() -> None:
    """Decorate the functions of modules that are imported from now on with `checked`."""
    jaxtyping.jaxtyped = lambda *, typechecker: checked  # type: ignore[assignment, misc]


def check(function: Function) -> Function:
    """Check arguments and results; an int is a float. The sizes of axes are compared within `jaxtyped`."""
    if isinstance(function, type) or function.__name__ == "__init__":
        return function
    return _beartype(function)


def checked(function: Function) -> Function:
    """Check arguments and results, among them the sizes of axes, which must agree within one call."""
    if isinstance(function, type) or function.__name__ == "__init__":
        return function
    hints = resolved_hints(function)
    shapes = [repr(hint) for hint in hints.values() if "jaxtyping." in repr(hint)]
    if inspect.isgeneratorfunction(function) or any("{" in shape for shape in shapes):
        return jaxtyped(function, typechecker=check)
    simple = with_hints(function, hints)
    return with_axis_sizes(function, simple) if shapes else simple


def resolved_hints(function: Function) -> dict[str, Any]:
    """The annotations of a function as objects; `Any` for names that do not exist yet or only for type checkers."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:
        return {name: resolved(hint, function.__globals__) for name, hint in function.__annotations__.items()}


def resolved(annotation: Any, names: dict[str, Any]) -> Any:
    try:
        return typing.get_type_hints(SimpleNamespace(__annotations__={"": annotation}), names, include_extras=True)[""]
    except Exception:
        return Any


def with_hints(function: Function, hints: dict[str, Any]) -> Function:
    """Check a function by hints that replace its annotations, which stay as they are written."""
    written = function.__annotations__
    function.__annotations__ = hints
    try:
        simple: Function = _beartype(function)
    finally:
        function.__annotations__ = written
    simple.__annotations__ = written
    return simple


def with_axis_sizes(function: Function, simple: Function) -> Function:
    """Compare the sizes of axes between arguments and results of one call."""

    @functools.wraps(function)
    def shaped(*arguments: Any, **options: Any) -> Any:
        with jaxtyped("context"):
            return simple(*arguments, **options)

    return shaped
