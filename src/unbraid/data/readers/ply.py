"""Triangle meshes in PLY files, text or binary."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from unbraid.data.readers.verify import REMEDY, Array, Stream, exactly, expect, expect_below, reading
from unbraid.errors import UserError

Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]
Integers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

TYPES = {"char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "float": "f4"}
TYPES |= {"double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4"}
TYPES |= {"float32": "f4", "float64": "f8"}
ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
COLUMNS = {"vertex": ("x", "y", "z"), "face": ("count", "0", "1", "2")}
LONGEST = 1 << 12  # bytes of a header's line
MOST = 1 << 24  # rows of an element


@dataclass
class Element:
    """A table of the file: its rows, and the names and types of its columns. A list is a count and three numbers."""

    name: str
    rows: int
    columns: list[tuple[str, str]] = field(default_factory=list)


def mesh(path: Path, file: Stream) -> tuple[Floats, Integers]:
    """The vertices (n, 3) and the triangles (m, 3) of a mesh in an open file; `path` is its name in refusals.

    Reference: Turk (1994), The PLY polygon file format.
    """
    with reading(path, "PLY"):
        order, elements = _header(path, file)
        tables = _tables(file, order, elements)
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


def _line(file: Stream) -> list[str]:
    line = file.readline(LONGEST)
    if not line.endswith(b"\n"):
        raise EOFError("the header has no end")
    return line.decode("ascii").split()


def _header(path: Path, file: Stream) -> tuple[str, list[Element]]:
    expect(path, "first line", ["ply"], _line(file))
    order, elements = "", list[Element]()
    while (words := _line(file)) != ["end_header"]:
        match words:
            case ["format", encoding, "1.0"]:
                order = encoding
                if order not in ORDERS:
                    raise UserError(f"an unknown format {order!r}")
            case ["element", name, rows]:
                expect_below(path, f"number of rows of {name!r}", MOST, np.array([int(rows)]))
                elements.append(Element(name, int(rows)))
            case ["property", "list", count, number, _]:
                elements[-1].columns += [("count", TYPES[count]), *((corner, TYPES[number]) for corner in "012")]
            case ["property", kind, name]:
                elements[-1].columns.append((name, TYPES[kind]))
            case []:
                raise UserError("an empty line in the header")
            case [first, *_] if first not in ("comment", "obj_info"):
                raise UserError(f"a header line that begins with {first!r}")
    if not order:
        raise UserError("a header without a format")
    return order, elements


def _tables(file: Stream, order: str, elements: list[Element]) -> dict[str, dict[str, Array]]:
    """The columns of vertices and faces; what follows them is left alone."""
    tables: dict[str, dict[str, Array]] = {}
    for element in elements:
        if {"vertex", "face"} <= tables.keys():
            break
        tables[element.name] = _text(file, element) if order == "ascii" else _binary(file, element, ORDERS[order])
    else:
        if file.read(1).strip():
            raise EOFError("bytes follow where the data must end")
    return tables


def _binary(file: Stream, element: Element, order: str) -> dict[str, Array]:
    dtype = np.dtype([(name, order + kind) for name, kind in element.columns])
    table = np.frombuffer(exactly(file, element.rows * dtype.itemsize), dtype)
    return {name: table[name] for name, _ in element.columns}


def _text(file: Stream, element: Element) -> dict[str, Array]:
    lines = [file.readline(LONGEST).split() for _ in range(element.rows)]
    short = sum(len(line) != len(element.columns) for line in lines)
    if short:
        raise EOFError(
            f"{short:,} of {element.rows:,} rows of {element.name!r} have not {len(element.columns)} numbers"
        )
    table = np.array(lines, np.float64).reshape(element.rows, len(element.columns))
    return {name: table[:, i] for i, (name, _) in enumerate(element.columns)}
