"""Errors of damaged files, in words for users."""

from __future__ import annotations

import ast
import io
import lzma
import struct
import tokenize
import zipfile

import pytest

from unbraid.runtime.read_errors import READ_ERRORS, read_reason


def python_error() -> SyntaxError:
    """Return the error of Python code that is not valid, which numpy raises for a damaged header."""
    with pytest.raises(SyntaxError) as caught:
        ast.literal_eval("(1, 02)")
    return caught.value


REASONS = {
    "its structure is not valid": [
        KeyError("name"), IndexError("string index out of range"), OverflowError("Python int too large"),
        RecursionError("maximum recursion depth exceeded"), TypeError("unhashable type: 'list'"),
        ValueError("cannot reshape array of size 0 into shape (4,2)"),
        ValueError("malformed node or string on line 1: <ast.Name object at 0x7f27f5bf6200>"),
        ValueError("not enough values to unpack (expected 3, got 1)"),
        struct.error("unpack requires a buffer of 4 bytes"),
        tokenize.TokenError("EOF in multi-line statement", (2, 0)), python_error(),
    ],
    "it has bytes that are not text": [UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")],
    "there is not enough memory for its content": [MemoryError()],
    "Unable to allocate 72.0 TiB": [MemoryError("Unable to allocate 72.0 TiB")],
    "broken PNG file": [SyntaxError("broken PNG file")],
    "Corrupt input data": [lzma.LZMAError("Corrupt input data")],
    "compressed patched data (flag bit 5)": [NotImplementedError("compressed patched data (flag bit 5)")],
    "file could not be opened successfully": [ValueError("file could not be opened successfully:\n- method gz")],
    "cannot identify image file": [OSError(f"cannot identify image file {io.BytesIO()!r}")],
    "BadZipFile": [zipfile.BadZipFile()],
}  # fmt: skip


@pytest.mark.parametrize("reason", REASONS)
def test_reasons_have_no_words_for_programmers(reason: str) -> None:
    for error in REASONS[reason]:
        assert isinstance(error, READ_ERRORS)
        assert read_reason(error) == reason
