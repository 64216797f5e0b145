"""Read triangle meshes from text or binary PLY files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from unbraid.data.readers.verify import REMEDY, Array, Stream, convert_read_errors, expect, expect_below, read_exactly
from unbraid.errors import UserError

Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]
Integers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

TYPES = {"char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "float": "f4"}
TYPES |= {"double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4"}
TYPES |= {"float32": "f4", "float64": "f8"}
ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
COLUMNS = {"vertex": ("x", "y", "z"), "face": ("count", "0", "1", "2")}
MAX_LINE_BYTES = 1 << 12  # maximum length of a line
MAX_ROWS = 1 << 24  # maximum number of rows of an element


@dataclass
class Element:
    """A table in a PLY file, with its number of rows and the names and types of its columns.

    A list property, such as the corners of a triangle, becomes four columns: the length of the list and three values.
    """

    name: str
    rows: int
    columns: list[tuple[str, str]] = field(default_factory=list)


def read_mesh(path: Path, file: Stream) -> tuple[Floats, Integers]:
    """Read a mesh from an open file.

    Args:
        path: Path of the file, which is used only in error messages.
        file: The open file.

    Returns:
        The vertices, float32 of shape (n, 3), and the vertex indices of the triangles, int64 of shape (m, 3).

    Reference: Turk (1994), The PLY polygon file format.
    """
    with convert_read_errors(path, "PLY"):
        order, elements = _read_header(path, file)
        tables = _read_tables(file, order, elements)
    for name, columns in COLUMNS.items():
        if not set(columns) <= tables.get(name, {}).keys():
            found = ", ".join(tables.get(name, {})) or "none"
            raise UserError(f"Element {name!r} of {path} must have {', '.join(columns)}. Got {found} instead. {REMEDY}")
    corners = np.unique(tables["face"]["count"])
    expect(path, "numbers of corners of a face", [3], corners.tolist())
    with np.errstate(over="ignore"):
        vertices = np.stack([tables["vertex"][axis] for axis in "xyz"], 1).astype(np.float32)
    triangles = np.stack([tables["face"][corner] for corner in "012"], 1).astype(np.int64)
    expect(path, "number of vertices that are not finite", 0, int((~np.isfinite(vertices)).any(1).sum()))
    expect_below(path, "corners of triangles", len(vertices), triangles)
    return vertices, triangles


def _read_line(file: Stream) -> list[str]:
    line = file.readline(MAX_LINE_BYTES)
    if not line.endswith(b"\n"):
        raise EOFError("the header is incomplete or has a line that is too long")
    return line.decode("ascii").split()


def _read_header(path: Path, file: Stream) -> tuple[str, list[Element]]:
    expect(path, "first line", ["ply"], _read_line(file))
    order, elements = "", list[Element]()
    while (words := _read_line(file)) != ["end_header"]:
        match words:
            case ["format", encoding, "1.0"]:
                order = encoding
                if order not in ORDERS:
                    raise ValueError(f"unknown format {order!r}")
            case ["element", name, rows]:
                if not rows.removeprefix("-").isdecimal():
                    raise ValueError(f"the number of rows of {name!r} is {rows!r}, which is not a whole number")
                expect_below(path, f"number of rows of {name!r}", MAX_ROWS, np.array([int(rows)]))
                elements.append(Element(name, int(rows)))
            case ["property", *_] if not elements:
                raise ValueError("the header describes a property before the first element")
            case ["property", "list", count, number, _]:
                columns = [("count", _type(count)), *((corner, _type(number)) for corner in "012")]
                elements[-1].columns += columns
            case ["property", kind, name]:
                elements[-1].columns.append((name, _type(kind)))
            case []:
                raise ValueError("the header contains an empty line")
            case [first, *_] if first not in ("comment", "obj_info"):
                raise ValueError(f"the header contains an unknown line that begins with {first!r}")
    if not order:
        raise ValueError("the header does not state the format")
    return order, elements


def _type(name: str) -> str:
    """Return the numpy type of a PLY type."""
    if name not in TYPES:
        raise ValueError(f"unknown type {name!r} of a property")
    return TYPES[name]


def _read_tables(file: Stream, order: str, elements: list[Element]) -> dict[str, dict[str, Array]]:
    """Return the columns of each element. Elements that follow both the vertices and the faces are not read."""
    tables: dict[str, dict[str, Array]] = {}
    for element in elements:
        if {"vertex", "face"} <= tables.keys():
            break
        is_text = order == "ascii"
        tables[element.name] = _read_text(file, element) if is_text else _read_binary(file, element, ORDERS[order])
    else:
        if file.read(1).strip():
            raise EOFError("there are more bytes after the end of the data")
    return tables


def _read_binary(file: Stream, element: Element, order: str) -> dict[str, Array]:
    dtype = np.dtype([(name, order + kind) for name, kind in element.columns])
    table = np.frombuffer(read_exactly(file, element.rows * dtype.itemsize), dtype)
    return {name: table[name] for name, _ in element.columns}


def _read_text(file: Stream, element: Element) -> dict[str, Array]:
    lines = [file.readline(MAX_LINE_BYTES).split() for _ in range(element.rows)]
    short = sum(len(line) != len(element.columns) for line in lines)
    if short:
        raise EOFError(
            f"{short:,} of {element.rows:,} rows of {element.name!r} do not have {len(element.columns)} numbers"
        )
    try:
        table = np.array(lines, np.float64).reshape(element.rows, len(element.columns))
    except ValueError as error:
        raise ValueError(f"a row of {element.name!r} has a word that is not a number") from error
    return {name: table[:, i] for i, (name, _) in enumerate(element.columns)}
