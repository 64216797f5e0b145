"""The error that users can cause, the message for an unknown name, and warnings for users."""

from __future__ import annotations

import difflib
import os
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path

PACKAGE = str(Path(__file__).parent) + os.sep


def unknown_name_message(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the error message for a name that is not in a registry.

    The message suggests the most similar valid name, if there is one, and lists all valid names.
    """
    names = sorted(known)
    folded = {known_name.lower(): known_name for known_name in names}
    near = difflib.get_close_matches(name, names, n=1) or difflib.get_close_matches(str(name).lower(), folded, n=1)
    hint = f" Did you mean {folded.get(near[0], near[0])!r}?" if near else ""
    return f"Unknown {kind} {name!r}.{hint} Choose from: {', '.join(names)}."


class UserError(ValueError):
    """An error that the user can correct.

    The message says what must hold, what was given and what to do. The command line prints it as one line, without a
    traceback. Any other exception is a bug.
    """


def warn_user(message: str) -> None:
    """Issue a RuntimeWarning that names the line of the user's code which called unbraid.

    This line is the innermost line of the traceback that is outside the package. If a command of unbraid was started in
    a shell, it is the line that starts the command.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, RuntimeWarning, stacklevel=level)


def convert_missing_torch(error: Exception, what: str) -> Exception:
    """Return a UserError that says how to install PyTorch, if PyTorch is missing. Otherwise return the given error.

    Args:
        error: The error that was raised while `what` was imported or run.
        what: What needs PyTorch, for the message.
    """
    if not (isinstance(error, ModuleNotFoundError) and error.name == "torch"):
        return error
    return UserError(
        f"{what} needs PyTorch, which is not installed. Install it with: pip install torch. Without it, "
        "unbraid.metrics and ub.score(codes=..., factors=...) work."
    )
