"""Read uint8 arrays from MATLAB files of versions 5 to 7.3.

SciPy is not used, because its reader for version 5 crashes the process on some damaged files (observed with 1.17.1).
"""

from __future__ import annotations

import io
import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from unbraid.data.files.convert import ByteArray
from unbraid.data.readers import hdf5
from unbraid.data.readers.verify import convert_read_errors, expect
from unbraid.errors import UserError

HEADER_BYTES = 128
HDF5 = b"MATLAB 7.3"
ORDERS = {b"IM": "<", b"MI": ">"}
MATRIX, DEFLATED, BYTES = 14, 15, 2  # types of elements: a matrix, a compressed element, uint8 numbers
BYTE_CLASS = 9  # class of a matrix of uint8 numbers
MAX_HEAD_BYTES = 1 << 12  # maximum size of the head of a matrix, which contains its flags, dimensions and name


def read_array(path: Path, content: bytes, name: str, shape: tuple[int, ...]) -> ByteArray:
    """Read a uint8 array from the content of a MATLAB file.

    Version 7.3 of the format is HDF5 with the axes in reverse order.

    Args:
        path: Path of the file, which is used only in error messages.
        content: Content of the file.
        name: Name of the array.
        shape: Expected shape of the array.

    Returns:
        The array.

    Raises:
        UserError: If the file is damaged, or if the array is missing or has a different shape or type.

    Reference: MathWorks, MAT-File Format, chapter 1.
    """
    if content.startswith(HDF5):
        with hdf5.open_hdf5(path, io.BytesIO(content)) as file:
            found = hdf5.find_dataset(path, file, name, shape[::-1], "u")
            expect(path, f"type of {name!r}", "uint8", str(found.dtype))
            reversed_axes: ByteArray = found[()]
            return reversed_axes.T
    with convert_read_errors(path, "MATLAB"):
        try:
            return _read_version_5(path, content, name, shape)
        except struct.error as error:
            raise EOFError("it ends inside a matrix") from error


def _read_version_5(path: Path, content: bytes, name: str, shape: tuple[int, ...]) -> ByteArray:
    mark, names = content[HEADER_BYTES - 2 : HEADER_BYTES], list[str]()
    if mark not in ORDERS:
        raise EOFError(f"bytes 126 and 127 must be IM or MI, but are {mark!r}")
    order = ORDERS[mark]
    size = math.prod(shape)
    for matrix in _read_matrices(content, order, size + MAX_HEAD_BYTES):
        kind, dimensions, found, at = _read_head(matrix, order)
        names.append(found)
        if found == name:
            expect(path, f"shape of {name!r}", shape, dimensions)
            data_type, length, start, _ = _read_tag(matrix, at, order)
            expect(path, f"class and type of {name!r}", (BYTE_CLASS, BYTES), (kind, data_type))
            expect(path, f"length in bytes of {name!r}", size, min(length, len(matrix) - start))
            return np.frombuffer(matrix, np.uint8, size, start).reshape(shape, order="F")
    raise UserError(f"{path} must have an array {name!r}. Got {', '.join(names) or 'none'} instead.")


def _read_matrices(content: bytes, order: str, max_bytes: int) -> Iterator[bytes]:
    """Yield the content of each matrix. At most `max_bytes` bytes of a compressed matrix are decompressed."""
    at = HEADER_BYTES
    while at < len(content):
        kind, length, start, after = _read_tag(content, at, order)
        if start + length > len(content):
            raise EOFError(f"it ends {start + length - len(content):,} bytes early")
        inner = content[start : start + length]
        if kind == DEFLATED:
            stream = zlib.decompressobj()
            inner = stream.decompress(inner, max_bytes)
            if len(inner) < max_bytes and not stream.eof:
                raise EOFError("a compressed matrix is incomplete")
            after = start + length  # compressed elements are not padded to eight bytes
            kind, length, start, _ = _read_tag(inner, 0, order)
            inner = inner[start : start + length]
        if kind == MATRIX:
            yield inner
        at = after


def _read_head(matrix: bytes, order: str) -> tuple[int, tuple[int, ...], str, int]:
    """Return the class, the dimensions and the name of a matrix, and the offset of its data."""
    _, _, start, at = _read_tag(matrix, 0, order)
    kind = struct.unpack_from(f"{order}I", matrix, start)[0] & 0xFF
    _, length, start, at = _read_tag(matrix, at, order)
    dimensions = struct.unpack_from(f"{order}{min(length, MAX_HEAD_BYTES) // 4}i", matrix, start)
    _, length, start, at = _read_tag(matrix, at, order)
    return kind, dimensions, matrix[start : start + min(length, MAX_HEAD_BYTES)].decode("ascii"), at


def _read_tag(content: bytes, at: int, order: str) -> tuple[int, int, int, int]:
    """Return the type and length of the element at offset `at`, and the offsets of its data and of the next element.

    The data of small elements are stored in the tag itself.
    """
    kind, length = struct.unpack_from(f"{order}II", content, at)
    if kind >> 16:
        return kind & 0xFFFF, kind >> 16, at + 4, at + 8
    return kind, length, at + 8, at + 8 + length + -length % 8
