"""A cache on disk for tables that take long to compute.

A failure of the cache never stops a program: it prints a warning, and the table is computed again.
"""

from __future__ import annotations

import hashlib
import warnings
import zlib
from collections.abc import Iterator

import torch
from torch import Tensor

from unbraid.errors import UserError
from unbraid.runtime.files import cache_folder, make_folder, write_atomic

DIGEST = hashlib.sha256().digest_size
PIECE, BITE = 1 << 20, 1 << 16  # largest number of bytes decompressed and read at once


def read(name: str, shape: tuple[int, int]) -> Tensor | None:
    """Return the uint8 table of `shape` stored as `name`, or None if it is missing or, with a warning, unreadable."""
    try:
        content = (cache_folder() / name).read_bytes()
        return _unpack(content, shape)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, RuntimeError) as error:
        _warn(f"The cache of {name} could not be read ({error}). The data are computed again.")
    except (ValueError, zlib.error) as error:
        _warn(f"The cached {cache_folder() / name} is damaged ({error}). The data are computed again.")
    return None


def write(name: str, table: Tensor) -> None:
    """Store a uint8 table as `name`. The file is written completely or not at all."""
    try:
        target = cache_folder() / name
        make_folder(target.parent)
        write_atomic(target, _pack(table))
    except (UserError, RuntimeError) as error:
        reason = error.__cause__ or error
        _warn(f"The cache of {name} could not be written ({reason}). Set UNBRAID_CACHE to a folder with enough space.")


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=5)


def _pack(table: Tensor) -> bytes:
    """Return the bytes of the cache file: a sha256, then the table compressed by zlib at level 1.

    dSprites shrinks from 377 MB to 9.5 MB.
    """
    body = zlib.compress(table.numpy().data, 1)
    return hashlib.sha256(body).digest() + body


def _unpack(content: bytes, shape: tuple[int, int]) -> Tensor:
    """Return the table in `content`, or raise a ValueError if it is damaged.

    The content is decompressed piece by piece into the table, without a second copy.
    """
    body = memoryview(content)[DIGEST:]
    if hashlib.sha256(body).digest() != content[:DIGEST]:
        raise ValueError("its sha256 differs")
    table, end = torch.empty(shape, dtype=torch.uint8), 0
    flat = table.numpy().data.cast("B")
    for piece in _inflate(body):
        flat[end : end + len(piece)] = piece
        end += len(piece)
    if end != len(flat):
        raise ValueError(f"it holds {end} bytes, not {len(flat)}")
    return table


def _inflate(body: memoryview) -> Iterator[bytes]:
    """Yield the decompressed pieces of a zlib stream.

    The checksum at its end is read last, so the output is complete when no input is left. The input is passed in small
    portions, because for every piece zlib copies the input that it has not used yet.
    """
    stream = zlib.decompressobj()
    for start in range(0, len(body), BITE):
        rest: bytes | memoryview = body[start : start + BITE]
        while rest:
            yield stream.decompress(rest, PIECE)
            rest = stream.unconsumed_tail
