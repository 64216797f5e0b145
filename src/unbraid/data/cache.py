"""A cache on disk for tables that take a long time to compute.

If a table cannot be read from the cache or written to it, a warning is issued. A table that cannot be read is computed
again. The program never stops because of the cache.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator

import torch
from torch import Tensor

from unbraid.errors import UserError, warn_user
from unbraid.runtime.files import cache_folder, make_folder, write_atomic

DIGEST_BYTES = hashlib.sha256().digest_size
OUTPUT_BYTES = 1 << 20  # maximum number of bytes that are decompressed at once
INPUT_BYTES = 1 << 16  # maximum number of compressed bytes that are passed to zlib at once


def read(name: str, shape: tuple[int, int]) -> Tensor | None:
    """Return the uint8 table of `shape` that is stored as `name`, or None if it is missing or cannot be read.

    A warning is issued if the file exists but cannot be read.
    """
    try:
        content = (cache_folder() / name).read_bytes()
        return _unpack(content, shape)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, RuntimeError) as error:
        _warn(f"The cached file {name} could not be read ({error}). The data will be computed again.")
    except (ValueError, zlib.error) as error:
        _warn(f"The cached file {cache_folder() / name} is damaged ({error}). The data will be computed again.")
    return None


def write(name: str, table: Tensor) -> None:
    """Store a uint8 table as `name`. The file is written completely or not at all."""
    try:
        target = cache_folder() / name
        make_folder(target.parent)
        write_atomic(target, _pack(table))
    except (UserError, RuntimeError) as error:
        reason = error.__cause__ or error
        _warn(
            f"The file {name} could not be written to the cache ({reason}). Set UNBRAID_CACHE to a folder with enough "
            "space."
        )


def _warn(message: str) -> None:
    warn_user(message)


def _pack(table: Tensor) -> bytes:
    """Return the content of the cache file.

    It is the table, compressed by zlib at level 1, preceded by the SHA-256 of the compressed bytes. Compression reduces
    dSprites from 377 MB to 9.5 MB.
    """
    body = zlib.compress(table.numpy().data, 1)
    return hashlib.sha256(body).digest() + body


def _unpack(content: bytes, shape: tuple[int, int]) -> Tensor:
    """Return the table in `content`, or raise a ValueError if it is damaged.

    The content is decompressed in pieces directly into the table, so there is never a second copy in memory.
    """
    body = memoryview(content)[DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != content[:DIGEST_BYTES]:
        raise ValueError("its SHA-256 differs")
    table, filled = torch.empty(shape, dtype=torch.uint8), 0
    flat = table.numpy().data.cast("B")
    for piece in _decompress(body):
        flat[filled : filled + len(piece)] = piece
        filled += len(piece)
    if filled != len(flat):
        raise ValueError(f"it contains {filled} bytes instead of {len(flat)}")
    return table


def _decompress(body: memoryview) -> Iterator[bytes]:
    """Yield the decompressed content of a zlib stream in pieces.

    The stream ends with a checksum, which zlib reads only after it has produced all output. The output is therefore
    complete when no input is left. The input is passed to zlib in small portions, because zlib copies all input that it
    has not used yet whenever it returns a piece of output.
    """
    stream = zlib.decompressobj()
    for start in range(0, len(body), INPUT_BYTES):
        rest: bytes | memoryview = body[start : start + INPUT_BYTES]
        while rest:
            yield stream.decompress(rest, OUTPUT_BYTES)
            rest = stream.unconsumed_tail
