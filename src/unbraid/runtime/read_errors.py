"""The exceptions that decoders raise for damaged files, and their reasons in words for users.

All readers of archives, arrays, pictures and tables use the same exceptions, because a damaged file can lead to any of
them. For example, zipfile raises a NotImplementedError if a damaged flag says that a member has strong encryption.
"""

from __future__ import annotations

import csv
import lzma
import re
import struct
import tarfile
import tokenize
import zipfile
import zlib

# RuntimeError includes NotImplementedError and RecursionError. ValueError includes UserError and UnicodeError.
READ_ERRORS = (
    *(EOFError, LookupError, MemoryError, OSError, OverflowError, RuntimeError, SyntaxError, TypeError, ValueError),
    *(csv.Error, lzma.LZMAError, struct.error, tarfile.TarError, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
"""Exceptions that the decoders of Python, numpy, Pillow and h5py raise for damaged files."""

INTERNAL_ERRORS = (LookupError, OverflowError, RecursionError, TypeError, struct.error, tokenize.TokenError)
"""Exceptions in READ_ERRORS whose messages are written for programmers."""

INTERNAL_WORDS = re.compile(r"cannot reshape|values to unpack|malformed node")
"""Parts of messages of the other exceptions in READ_ERRORS that are written for programmers."""


def read_reason(error: BaseException) -> str:
    """Return why a file cannot be read, as a part of a sentence without a full stop.

    It is the first line of the message of the exception, without the addresses of objects. Messages for programmers are
    replaced.

    >>> read_reason(OSError("cannot identify image file <_io.BytesIO object at 0x7f27f5bf6200>"))
    'cannot identify image file'
    >>> read_reason(IndexError("string index out of range"))
    'its structure is not valid'
    """
    parsed_as_code = isinstance(error, SyntaxError) and error.lineno is not None  # numpy parses headers as Python code
    if isinstance(error, INTERNAL_ERRORS) or parsed_as_code or INTERNAL_WORDS.search(str(error)):
        return "its structure is not valid"
    if isinstance(error, UnicodeError):
        return "it has bytes that are not text"
    message = re.sub(r":? ?<[^<>]* at 0x[0-9a-fA-F]+>", "", str(error)).strip()
    if isinstance(error, MemoryError) and not message:
        return "there is not enough memory for its content"
    return (message or type(error).__name__).splitlines()[0].rstrip(".:")
