"""Importing objects by name. A name has the form `module:attribute`, as in specs, or `file.py:attribute`.

A name that the user passes in this process is trusted. A name that was read from a file is imported only with consent,
because importing a module runs its code.
"""

from __future__ import annotations

import importlib
import importlib.util
import operator
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from unbraid.errors import UserError
from unbraid.runtime.files import resolve_path
from unbraid.runtime.plugins import is_offered

_TRUSTED: set[str] = set()  # names that the user has passed or consented to in this process
_OBJECTS: dict[str, Any] = {}  # objects that the user has passed in this process, by name
_FILES: dict[str, Path] = {}  # the files of modules imported by path or passed to `offer_file`, by module


def import_name(kind: str, name: str) -> Any:
    """Import an object by its name `module:attribute` or `file.py:attribute`.

    Args:
        kind: What the object is, for the error message.
        name: The name, such as "package.module:function" or "./mine.py:MyVAE".

    Returns:
        The object.

    Raises:
        UserError: If the object cannot be imported.
    """
    module, _, attribute = name.rpartition(":")
    try:
        if module.endswith(".py"):
            return operator.attrgetter(attribute)(import_file(Path(module)))
        if module in _FILES and module not in sys.modules and importlib.util.find_spec(module) is None:
            return operator.attrgetter(attribute)(import_file(_FILES[module]))
        return operator.attrgetter(attribute)(importlib.import_module(module))
    except UserError:
        raise
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        if is_trusted(name) and name in _OBJECTS:
            return _OBJECTS[name]
        reason = import_reason(module, attribute, error)
        raise UserError(f"The {kind} {name!r} must be importable as module:attribute. {reason}") from error


def import_reason(module: str, attribute: str, error: Exception) -> str:
    """Return a sentence that says why an object cannot be imported.

    >>> import_reason("http", "//", AttributeError())
    "Its parts must be names in Python. Got 'http' and '//' instead."
    >>> import_reason("http", "Server", AttributeError())
    "Got: 'http' does not define 'Server'."
    """
    names = [*([] if module.endswith(".py") else module.split(".")), *attribute.split(".")]
    if not all(name.isidentifier() for name in names):
        return f"Its parts must be names in Python. Got {module!r} and {attribute!r} instead."
    if isinstance(error, AttributeError):
        return f"Got: {module!r} does not define {attribute!r}."
    if isinstance(error, ModuleNotFoundError):
        return f"Got: {error}. If the module is a file in this folder, set PYTHONPATH=. for the command."
    return f"Got: {error}."


def import_file(path: Path) -> ModuleType:
    """Import a file of Python code as the module with its name, such as `mine` for `code/mine.py`.

    The folder of the file is added to the end of the import path, so that the file can import its neighbours.

    Raises:
        UserError: If there is no such file, if its name is not a valid module name, or if another module already has
            this name.
    """
    file, name = resolve_path(path), path.stem
    if not file.is_file() or not name.isidentifier():
        raise UserError(f"{path} must be an existing file of Python code whose name is a Python identifier.")
    present = sys.modules.get(name)
    if present is not None and Path(getattr(present, "__file__", None) or "").resolve() == file:
        _FILES[name] = file
        return present
    if present is not None or not _is_free(name, file):
        raise UserError(f"{path} would have the same name as the module {name!r}. Rename the file.")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    _FILES[name] = file
    return module


def _is_free(name: str, file: Path) -> bool:
    """Return whether a module name is free: no module has it, or only the module in this file."""
    spec = importlib.util.find_spec(name)
    return spec is None or (spec.origin is not None and Path(spec.origin).resolve() == file)


def file_of(name: str) -> Path | None:
    """Return the file of the module of a name `module:attribute`, if the module was imported by its path."""
    return _FILES.get(name.rpartition(":")[0])


def offer_file(name: str, file: Path) -> None:
    """Let `import_name` import this file if the module of the name cannot be imported by its name."""
    _FILES.setdefault(name.rpartition(":")[0], file)


def trust_name(name: str, value: Any = None) -> None:
    """Remember that the user has passed this name, or the object `value` with this name, in this process.

    If the name cannot be imported, for example because the object was defined in a function, `import_name` returns the
    `value` that was passed here.
    """
    _TRUSTED.add(name)
    if value is not None:
        _OBJECTS[name] = value


def is_trusted(name: str) -> bool:
    """Return whether the user has passed this name, or the object with this name, in this process."""
    return name in _TRUSTED


def check_trust(kind: str, name: str, where: object, trust: bool, file: str | None = None) -> None:
    """Raise an error if a name that was read from a file may not be imported.

    Args:
        kind: What the object is, for the error message.
        name: The name, such as "package.module:function".
        where: The folder of the run, for the error message.
        trust: Whether the user has consented to run code whose name was read from a file.
        file: The file that is imported if the module cannot be imported by its name, or None.

    Raises:
        UserError: If the user has neither consented nor passed the name in this process, and no installed package
            offers it by an entry point (see `unbraid.runtime.plugins`).
    """
    if not (trust or is_trusted(name) or is_offered(name)):
        source = "" if file is None else f" (the file {file}, if there is no such module)"
        raise UserError(
            f"The {kind} {name!r} of the run {where} is not part of unbraid. Loading it imports the Python module "
            f"{name.partition(':')[0]!r}{source} and runs its code with your permissions. If you trust the folder of "
            "the run and this module, pass --trust (trust=True)."
        )
