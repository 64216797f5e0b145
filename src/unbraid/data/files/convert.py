"""Convert published files into a table of bytes in the cache folder. The table is memory-mapped when it is used."""

from __future__ import annotations

import contextlib
import hashlib
import math
import mmap
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import UInt8
from numpy.lib import format as npy
from torch import Tensor

from unbraid.data.dataset import Progress
from unbraid.errors import UserError
from unbraid.runtime.files import cache_folder, make_folder, refuse_special_file
from unbraid.runtime.locks import lock
from unbraid.runtime.read_errors import READ_ERRORS

ByteArray: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
Blocks: TypeAlias = Callable[[], Iterator[ByteArray]]

VERSION = 1  # increase this when the output of a reader changes; all files are then converted again


def cached_table(
    name: str, sources: Sequence[Path], shape: tuple[int, ...], blocks: Blocks, progress: Progress | None = None
) -> UInt8[Tensor, "n ..."]:
    """Return a table of bytes that is memory-mapped from the cache folder. The first call computes and stores it.

    The name of the cached .npy file contains two digests: one of the paths of `sources`, and one of their sizes and
    modification times. If a source changes, the table is computed again and the old table is deleted. If two
    processes need the same table, the second one waits for the first and uses its file. The file gets its final name
    only when it is complete and on disk, so an interrupted conversion never leaves a file that looks complete.

    Args:
        name: First part of the name of the cached file.
        sources: Files that the table is computed from.
        shape: Shape of the table.
        blocks: Function that yields the rows of the table in blocks of shape (rows, *shape[1:]).
        progress: Called with the finished fraction, from 0 to 1.

    Returns:
        The table, uint8 of `shape`.

    Raises:
        UserError: If the cache folder cannot be written or has too little space.
    """
    paths_digest, state_digest = _source_digests(sources)
    target = cache_folder() / f"{name}-{paths_digest}-{state_digest}.npy"
    if not _is_complete(target, shape):
        make_folder(target.parent)
        with lock(target.parent / f".{name}.lock"):
            if not _is_complete(target, shape):
                _convert(target, shape, blocks, progress)
                for outdated in target.parent.glob(f"{name}-{paths_digest}-*.npy"):
                    if outdated != target:
                        outdated.unlink(missing_ok=True)
    if progress:
        progress(1.0)
    return _map_table(target, shape)


def _source_digests(sources: Sequence[Path]) -> tuple[str, str]:
    """Return two digests, one of the paths of the sources and one of their sizes and modification times."""
    for path in sources:
        refuse_special_file(path)
    paths = [os.path.realpath(path) for path in sources]
    state = [f"{path.stat().st_size} {path.stat().st_mtime_ns}" for path in sources]
    first, second = (hashlib.sha256("\0".join(words).encode()).hexdigest() for words in (paths, [str(VERSION), *state]))
    return first[:12], second[:12]


def _convert(target: Path, shape: tuple[int, ...], blocks: Blocks, progress: Progress | None) -> None:
    """Write the table to a temporary file, and rename it to `target` when it is complete."""
    needed, free = math.prod(shape), shutil.disk_usage(target.parent).free
    if free < needed:
        raise UserError(
            f"The folder {target.parent} must have {needed / 1e6:,.0f} MB of free space for {target.name}. Got "
            f"{free / 1e6:,.0f} MB instead. Free some space, or set UNBRAID_CACHE to a folder with enough space."
        )
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        with _convert_write_errors(target.parent):
            file = temporary.open("wb")
        with file:
            _write_table(file, shape, blocks(), progress)
        with _convert_write_errors(target.parent):
            temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _write_table(file: Any, shape: tuple[int, ...], blocks: Iterator[ByteArray], progress: Progress | None) -> None:
    """Write the .npy header and the blocks.

    The file is not memory-mapped while it is written, because a full disk would then kill the process instead of
    raising an error.
    """
    rows = 0
    with _convert_write_errors(Path(file.name).parent):
        npy.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
    for block in blocks:
        if block.dtype != np.uint8 or block.shape[1:] != shape[1:]:
            raise ValueError(f"A block must be uint8 (rows, *{shape[1:]}). Got {block.dtype} {block.shape} instead.")
        with _convert_write_errors(Path(file.name).parent):
            file.write(np.ascontiguousarray(block).data)
        rows += len(block)
        if progress:
            progress(min(rows / shape[0], 1.0))
    if rows != shape[0]:
        raise ValueError(f"The blocks must have {shape[0]} rows in total. Got {rows} instead.")
    with _convert_write_errors(Path(file.name).parent):
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def _convert_write_errors(folder: Path) -> Iterator[None]:
    """Convert an OSError to a UserError about the cache folder. Errors from reading the sources are not converted."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"Could not write to {folder}: {error.strerror}. Free some space, or set UNBRAID_CACHE to a different "
            "folder."
        ) from error


def _is_complete(path: Path, shape: tuple[int, ...]) -> bool:
    """Return whether `path` is a complete table of `shape`."""
    try:
        with path.open("rb") as file:
            return _data_offset(file, shape) is not None
    except (FileNotFoundError, NotADirectoryError):
        return False


def _data_offset(file: Any, shape: tuple[int, ...]) -> int | None:
    """Return the offset of the data in bytes, or None if the header or the length does not match `shape`."""
    try:
        if npy.read_magic(file) != (1, 0) or npy.read_array_header_1_0(file) != (shape, False, np.dtype(np.uint8)):
            return None
    except READ_ERRORS:
        return None
    start: int = file.tell()
    return start if os.fstat(file.fileno()).st_size == start + math.prod(shape) else None


def _map_table(path: Path, shape: tuple[int, ...]) -> Tensor:
    """Memory-map the table. The pages are private, so writing to the tensor does not change the file.

    MAP_NORESERVE makes it possible to map a table that is larger than the memory. Older versions of Python do not
    define this constant, so its value on Linux is used.
    """
    reserve = getattr(mmap, "MAP_NORESERVE", 0x4000 if os.uname().sysname == "Linux" else 0)
    with path.open("rb") as file:
        start = _data_offset(file, shape)
        if start is None:
            raise UserError(f"{path} changed while it was opened. Run the command again.")
        pages = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE | reserve, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    return torch.from_numpy(np.frombuffer(pages, np.uint8, offset=start).reshape(shape))
