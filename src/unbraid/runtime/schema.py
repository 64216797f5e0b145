"""Reading JSON files whose content must have a given structure.

The structure is a type: a dataclass, a number, text, or a list, dictionary or union of such types. A file is checked
once, when it is read. Errors name the file and the field, and say what must hold, what was found and what to do.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from unbraid.errors import UserError

MAX_BYTES = 256 * 2**20  # maximum size of a JSON file
MAX_DEPTH = 20  # maximum number of nested lists and objects in a field of type Any
MAX_INTEGER = 2**63 - 1
T = TypeVar("T")
NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}


class WrongContentError(ValueError):
    """Content that does not have the required type. The message says what must hold and what was found."""


def check(kind: Any, value: Any, field: str = "") -> Any:
    """Return a JSON value as an instance of a type.

    If the type is a dataclass, a JSON object becomes an instance of the dataclass. Keys that are not fields of the
    dataclass are ignored. Numbers and text are returned unchanged. Lists and dictionaries are converted item by item.

    Args:
        kind: The type.
        value: The value, as `json.loads` returns it.
        field: The name of the value, for the error message.

    Raises:
        WrongContentError: If the value does not have the type.

    >>> check(dict[str, int | None], {"a": 1, "b": None})
    {'a': 1, 'b': None}
    >>> check(list[float], [1, "x"], "rates")
    Traceback (most recent call last):
    unbraid.runtime.schema.WrongContentError: The field 'rates[1]' must be a number. Got 'x' instead.
    """
    if type(value) is float and kind in (float, Any):  # the most common case
        return value
    if kind is Any:
        _check_plain(value, field, MAX_DEPTH)
        return value
    if dataclasses.is_dataclass(kind):
        return _check_object(kind, value, field)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _check_union(arguments, value, field)
    if origin is Literal:
        return value if value in arguments else _reject(field, f"one of {', '.join(map(str, arguments))}", value)
    if origin is list:
        items = value if isinstance(value, list) else _reject(field, "a list", value)
        return [check(arguments[0], item, f"{field}[{i}]") for i, item in enumerate(items)]
    if origin is dict:
        entries = value if isinstance(value, dict) else _reject(field, "an object", value)
        return {check(str, key, field): check(arguments[1], item, _join(field, key)) for key, item in entries.items()}
    return value if _is_plain(kind, value) else _reject(field, NAMES[kind], value)


def _is_plain(kind: Any, value: Any) -> bool:
    """Return whether a value is a number, text, true, false or null of the given type."""
    if kind in (int, float):
        numeric = isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
        return numeric and (isinstance(value, float) or abs(value) <= MAX_INTEGER)
    return isinstance(value, kind) and (kind is not str or _is_text(value))


def _is_text(value: str) -> bool:
    """Return whether text can be written to files and used in paths: it has no null characters or lone surrogates."""
    return "\0" not in value and (value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value))


def _check_object(kind: Any, value: Any, field: str) -> Any:
    """Return an object as an instance of a dataclass."""
    if not isinstance(value, dict):
        _reject(field, "an object", value)
    fields, hints = _fields(kind)
    found = {}
    for entry in fields:
        if entry.name in value:
            found[entry.name] = check(hints[entry.name], value[entry.name], _join(field, entry.name))
        elif entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING:
            raise WrongContentError(f"The field {_join(field, entry.name)!r} is missing.")
    return kind(**found)


@functools.cache
def _fields(kind: Any) -> tuple[tuple[dataclasses.Field[Any], ...], dict[str, Any]]:
    """Return the fields of a dataclass and their types. The result is cached, because looking up the types is slow."""
    return dataclasses.fields(kind), get_type_hints(kind)


def _check_union(kinds: tuple[Any, ...], value: Any, field: str) -> Any:
    """Return a value as an instance of the first type in a union that accepts it.

    If no type accepts the value, raise the error of the first type.
    """
    errors = []
    for kind in kinds:
        try:
            return check(kind, value, field)
        except WrongContentError as error:
            errors.append(error)
    raise errors[0]


def _check_plain(value: Any, field: str, depth: int) -> None:
    """Raise an error if a JSON value is nested too deeply, or if it contains text or numbers that are not usable."""
    if type(value) in (float, bool, type(None)):
        return
    if isinstance(value, list | dict):
        if depth == 0:
            raise WrongContentError(f"The field {field!r} must have at most {MAX_DEPTH} nested levels.")
        for item in value if isinstance(value, list) else (*value, *value.values()):
            _check_plain(item, field, depth - 1)
    elif not any(_is_plain(kind, value) for kind in NAMES):
        _reject(field, "usable text or a usable number", value)


def _join(field: str, name: Any) -> str:
    return f"{field}.{name}" if field else str(name)


def _reject(field: str, must: str, value: Any) -> Any:
    """Raise the error for a value that is not what it must be."""
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
    what = f"The field {field!r}" if field else "The content"
    raise WrongContentError(f"{what} must be {must}. Got {shown} instead.")


def read_json(path: Path, kind: type[T], remedy: str) -> T:
    """Read a JSON file as an instance of a type.

    Args:
        path: The file.
        kind: A dataclass, or any other type that `check` accepts.
        remedy: What the user should do if the file is damaged. It is the last sentence of the error message.

    Raises:
        UserError: If the file cannot be read, or if its content does not have the type.
    """
    with _named_errors(path, remedy):
        content: T = check(kind, json.loads(_read_limited(path)))
    return content


def read_jsonl(path: Path, *kinds: Any, remedy: str) -> list[dict[str, Any]]:
    """Read a file with one JSON object per line. Each object must match all types in `kinds`.

    Return the objects as dictionaries with all their keys, or an empty list if the file does not exist. The argument
    `remedy` is that of `read_json`.

    Raises:
        UserError: If the file cannot be read, or if a line does not match a type.
    """
    if not path.exists():
        return []
    records = []
    with _named_errors(path, remedy):
        for number, line in enumerate(_read_limited(path).splitlines(), 1):
            record = json.loads(line)
            for kind in (dict[str, Any], *kinds):
                check(kind, record, f"line {number}")
            records.append(record)
    return records


def _read_limited(path: Path) -> bytes:
    """Read an ordinary file of at most `MAX_BYTES`. A device or a pipe could have no end, and is rejected."""
    if not path.is_file():
        raise WrongContentError("It must be an ordinary file.")
    if path.stat().st_size > MAX_BYTES:
        raise WrongContentError(f"It must have at most {MAX_BYTES:,} bytes. Got {path.stat().st_size:,} bytes instead.")
    return path.read_bytes()


@contextmanager
def _named_errors(path: Path, remedy: str) -> Iterator[None]:
    """Convert errors about the content of a file into a UserError that names the file."""
    try:
        yield
    except WrongContentError as error:
        raise UserError(f"{path} is damaged. {error} {remedy}") from error
    except RecursionError as error:
        raise UserError(f"{path} is damaged: it has too many nested levels. {remedy}") from error
    except (ValueError, OSError) as error:
        raise UserError(f"{path} cannot be read: {error}. {remedy}") from error
