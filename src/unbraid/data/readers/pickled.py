"""Read numbers, text, containers and NumPy arrays from pickle files without executing anything.

A pickle is a program for a small stack machine, and the unpickler of Python calls whatever functions such a program
names. This module interprets the few instructions that data need by itself. It never imports or calls anything that a
file names: the names of the functions with which NumPy stores arrays are compared with a fixed list, and the arrays are
built here. Every other name and every other instruction is refused.
"""

from __future__ import annotations

import math
import mmap
import pickletools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NoReturn, cast

import numpy as np

from unbraid.data.readers.verify import Array, convert_read_errors
from unbraid.errors import UserError

# Instructions whose argument is the value that they push.
VALUES = frozenset({
    *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
})  # fmt: skip
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
IGNORED = frozenset({"PROTO", "FRAME", "STOP"})
NUMBER_TYPE = re.compile("[biuf][1248]")
PLAIN_TYPE = (None, None, None, -1, -1, 0)  # the end of the state of a dtype without fields, subarrays and metadata

# What NumPy and pickle call the functions and types in pickles of arrays, by version.
NAMES = {
    **{f"numpy{core}.multiarray _reconstruct": "new array" for core in (".core", "._core")},
    **{f"numpy{core}.numeric _frombuffer": "array of bytes" for core in (".core", "._core")},
    "numpy ndarray": "array type",
    "numpy dtype": "number type",
    "_codecs encode": "encode",
}


def read_pickle(path: Path) -> object:
    """Read a pickle of numbers, text, bytes, lists, tuples, dictionaries and NumPy arrays of numbers.

    Args:
        path: A pickle file of protocol 2 to 5 that Python 3 has written.

    Returns:
        The object. The arrays are read-only.

    Raises:
        UserError: If the file is damaged, or contains anything else. Nothing is executed in this case either.
    """
    with convert_read_errors(path, "pickle"), path.open("rb") as file:
        machine = Machine(path)
        # A memory-mapped file never allocates more bytes than it has, whatever lengths are in it.
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for instruction, argument, _ in pickletools.genops(cast(IO[bytes], content)):
                machine.execute(instruction.name, argument)
            if content.tell() < len(content):
                raise EOFError("there are more bytes after the end of the data")
        return machine.result()


class Mark:
    """The place on the stack where a container begins."""


@dataclass(frozen=True)
class Name:
    """An allowed name of a function or type. It is only compared, and never looked up."""

    meaning: str


@dataclass
class Unfinished:
    """An array or a number type whose content follows in a later instruction.

    Attributes:
        text: The number type, such as "f4". None for an array.
        memo: The places of the memo that contain this object.
    """

    text: str | None = None
    memo: list[int] = field(default_factory=list)


class Machine:
    """A stack, a memo, and the instructions that pickles of data need."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.actions: dict[str, Callable[[Any], None]] = {
            "EMPTY_LIST": lambda _: self.stack.append([]),
            "EMPTY_DICT": lambda _: self.stack.append({}),
            "MARK": lambda _: self.stack.append(Mark()),
            "TUPLE": lambda _: self.stack.append(tuple(self._pop_to_mark())),
            "APPEND": lambda _: self._extend([self.stack.pop()]),
            "APPENDS": lambda _: self._extend(self._pop_to_mark()),
            "SETITEM": lambda _: self._update([self.stack.pop(-2), self.stack.pop()]),
            "SETITEMS": lambda _: self._update(self._pop_to_mark()),
            **dict.fromkeys(("BINPUT", "LONG_BINPUT"), self._memoize),
            "MEMOIZE": lambda _: self._memoize(len(self.memo)),
            **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda place: self.stack.append(self.memo[place])),
            "GLOBAL": self._push_name,
            "STACK_GLOBAL": lambda _: self._push_name(" ".join(reversed([self._pop(str), self._pop(str)]))),
            "REDUCE": lambda _: self._reduce(self._pop(tuple), self._pop(Name)),
            "BUILD": lambda _: self._build(self._pop(tuple), self._pop(Unfinished)),
        }

    def execute(self, instruction: str, argument: Any) -> None:
        """Execute one instruction, or raise a UserError if data do not need it."""
        if instruction in VALUES:
            self.stack.append(argument)
        elif instruction in CONSTANTS:
            self.stack.append(CONSTANTS[instruction])
        elif instruction in TUPLES:
            size = TUPLES[instruction]
            items = [self.stack.pop() for _ in range(size)]
            self.stack.append(tuple(reversed(items)))
        elif instruction in self.actions:
            self.actions[instruction](argument)
        elif instruction not in IGNORED:
            self._refuse(f"the instruction {instruction}")

    def result(self) -> object:
        """Return the object on the stack, which must be the only one."""
        if len(self.stack) != 1:
            raise ValueError(f"it has {len(self.stack)} objects instead of one")
        return self.stack[0]

    def _refuse(self, found: str) -> NoReturn:
        raise UserError(
            f"{self.path} must contain only numbers, text, lists, tuples, dictionaries and NumPy arrays of numbers. "
            f"Got {found} instead. Nothing in the file was executed. Use the published file."
        )

    def _pop(self, kind: type) -> Any:
        """Remove the top of the stack, which must be of a type."""
        value = self.stack.pop()
        if type(value) is not kind:
            raise ValueError(f"it has an object of type {type(value).__name__} in the place of another type")
        return value

    def _pop_to_mark(self) -> list[Any]:
        """Remove everything above the last mark, and the mark, from the stack."""
        items = []
        while not isinstance(item := self.stack.pop(), Mark):
            items.append(item)
        return items[::-1]

    def _extend(self, items: list[Any]) -> None:
        target = self._pop(list)
        target.extend(items)
        self.stack.append(target)

    def _update(self, items: list[Any]) -> None:
        """Set items of a dictionary. Keys are text or integers, because the hash of a nested tuple is recursive."""
        target, keys = self._pop(dict), items[::2]
        if len(items) % 2 or not all(type(key) in (str, int) for key in keys):
            raise ValueError("it has a dictionary whose keys are not text or integers")
        target.update(zip(keys, items[1::2], strict=True))
        self.stack.append(target)

    def _memoize(self, place: int) -> None:
        value = self.stack[-1]
        self.memo[place] = value
        if isinstance(value, Unfinished):
            value.memo.append(place)

    def _push_name(self, name: str) -> None:
        """Push the name of a module and of a function or type in it, separated by a space."""
        if name not in NAMES:
            self._refuse(f"the name {name[:80]!r}")
        self.stack.append(Name(NAMES[name]))

    def _reduce(self, arguments: tuple[Any, ...], function: Name) -> None:
        """Push what NumPy or pickle would get from a function, of which only the name is in the file."""
        match function.meaning, arguments:
            case "new array", (Name("array type"), tuple(), bytes()):
                self.stack.append(Unfinished())
            case "number type", (str(text), bool(), bool()) if NUMBER_TYPE.fullmatch(text):
                self.stack.append(Unfinished(text))
            case "array of bytes", (
                bytes() | bytearray() as content,
                np.dtype() as dtype,
                tuple(shape),
                "C" | "F" as order,
            ):
                self.stack.append(make_array(content, dtype, shape, order))
            case "encode", (str(text), "latin1"):
                self.stack.append(text.encode("latin1"))
            case _:
                self._refuse(f"other arguments of the function for {function.meaning}")

    def _build(self, state: tuple[Any, ...], target: Unfinished) -> None:
        """Finish an array or a number type, and replace it in the memo."""
        value: Array | np.dtype[Any]
        match target.text, state:
            case None, (int(), tuple(shape), np.dtype() as dtype, bool(fortran), bytes(content)):
                value = make_array(content, dtype, shape, "F" if fortran else "C")
            case str(text), (int(), "<" | ">" | "|" | "=" as order, *rest) if tuple(rest) == PLAIN_TYPE:
                value = np.dtype(order + text)
            case _:
                self._refuse("an array or a number type in another form")
        self.memo.update(dict.fromkeys(target.memo, value))
        self.stack.append(value)


def make_array(content: bytes | bytearray, dtype: np.dtype[Any], shape: tuple[Any, ...], order: Any) -> Array:
    """Return an array of numbers, after checking its shape."""
    if not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError("it has an array whose shape is not valid")
    if math.prod(shape) * dtype.itemsize != len(content):
        raise ValueError(f"it has an array of shape {shape} with {len(content):,} bytes")
    return np.frombuffer(bytes(content), dtype, math.prod(shape)).reshape(shape, order=order)
