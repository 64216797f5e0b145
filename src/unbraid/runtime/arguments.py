"""Error messages for keyword arguments that a public function does not have."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from unbraid.errors import UserError

P = ParamSpec("P")
R = TypeVar("R")

# Names that users may expect, for example from other libraries, and the arguments of unbraid that they may stand for.
OTHER_NAMES = {
    "batch_size": ("batch",),
    "by": ("between", "rank"),
    "criterion": ("by",),
    "dataset": ("data",),
    "datasets": ("data",),
    "epochs": ("steps",),
    "factor_names": ("names",),
    "folder": ("runs", "out"),
    "group": ("within",),
    "iterations": ("steps",),
    "latent_dim": ("latents",),
    "latent_size": ("latents",),
    "lr": ("learning_rate",),
    "metric": ("metrics", "rank"),
    "model": ("runs", "run"),
    "models": ("runs",),
    "name": ("source",),
    "output": ("out",),
    "path": ("folder", "source", "out"),
    "random_state": ("seeds", "seed"),
    "run": ("runs", "model"),
    "runs": ("folder", "run", "model"),
    "seed": ("seeds", "random_state"),
    "sort": ("rank",),
    "study": ("source",),
    "top": ("best",),
    "z_dim": ("latents",),
}


def explain_unknown_arguments(note: str = "") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that makes a function or a constructor raise a UserError for unknown keyword arguments.

    The message suggests the first argument of the function that `OTHER_NAMES` lists for the unknown name, or else an
    argument with a similar name. It always lists all arguments of the function.

    Args:
        note: A sentence that the message contains if there is no suggestion.

    Returns:
        The decorator.

    >>> @explain_unknown_arguments()
    ... def fit(steps: int = 1) -> int:
    ...     return steps
    >>> fit(epochs=3)
    Traceback (most recent call last):
    unbraid.errors.UserError: fit has no argument 'epochs'. Did you mean 'steps'? Its arguments are: steps.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = [one for one in inspect.signature(function).parameters.values() if one.name != "self"]
        owner = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
        known = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL]
        listed = ", ".join(str(one.replace(annotation=one.empty, default=one.empty)) for one in parameters)

        @functools.wraps(function)
        def checked(*arguments: P.args, **named: P.kwargs) -> R:
            for name in named:
                if name not in known:
                    raise UserError(_message(owner, name, known, listed, note))
            return function(*arguments, **named)

        return checked

    return decorate


def _message(function: str, name: str, known: list[str], listed: str, note: str) -> str:
    near = [other for other in OTHER_NAMES.get(name, ()) if other in known]
    near = near or difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else note and f"{note} "
    return f"{function} has no argument {name!r}. {hint}Its arguments are: {listed}."
