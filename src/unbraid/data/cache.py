"""A folder that keeps what was computed once; every failure costs a line of warning and the computation, no more."""

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
PIECE, BITE = 1 << 20, 1 << 16  # most bytes out and in at once
folder = cache_folder


def read(name: str, shape: tuple[int, int]) -> Tensor | None:
    """The uint8 table kept under `name`, or None where there is none; a damaged one is None with a warning."""
    try:
        content = (folder() / name).read_bytes()
        return _unpack(content, shape)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, RuntimeError) as error:
        _warn(f"The cache of {name} could not be read ({error}) and is made again.")
    except (ValueError, zlib.error) as error:
        _warn(f"The cached {folder() / name} is damaged ({error}) and is made again.")
    return None


def write(name: str, table: Tensor) -> None:
    """Keep a uint8 table under `name`, whole or not at all."""
    try:
        target = folder() / name
        make_folder(target.parent)
        write_atomic(target, _pack(table))
    except (UserError, RuntimeError) as error:
        reason = error.__cause__ or error
        _warn(f"The cache of {name} could not be written ({reason}). Set UNBRAID_CACHE to a folder with room.")


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=5)


def _pack(table: Tensor) -> bytes:
    """The sha256 of the rest, then the table deflated at level 1 (dSprites: 377 MB become 9.5 MB)."""
    body = zlib.compress(table.numpy().data, 1)
    return hashlib.sha256(body).digest() + body


def _unpack(content: bytes, shape: tuple[int, int]) -> Tensor:
    """The table in `content`, or ValueError; inflated piece by piece straight into place, without a second copy."""
    body = memoryview(content)[DIGEST:]
    if hashlib.sha256(body).digest() != content[:DIGEST]:
        raise UserError("its sha256 differs")
    table, end = torch.empty(shape, dtype=torch.uint8), 0
    flat = table.numpy().data.cast("B")
    for piece in _inflate(body):
        flat[end : end + len(piece)] = piece
        end += len(piece)
    if end != len(flat):
        raise UserError(f"it holds {end} bytes, not {len(flat)}")
    return table


def _inflate(body: memoryview) -> Iterator[bytes]:
    """The pieces of a zlib stream; its closing checksum is read last, so no input left means no output left.

    Input goes in by small bites, because with every piece zlib copies what it has not yet read of what it was given.
    """
    stream = zlib.decompressobj()
    for start in range(0, len(body), BITE):
        rest: bytes | memoryview = body[start : start + BITE]
        while rest:
            yield stream.decompress(rest, PIECE)
            rest = stream.unconsumed_tail
