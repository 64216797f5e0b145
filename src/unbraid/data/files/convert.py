"""Published files turned once into a table of bytes that is mapped, not read."""

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

from unbraid.data.cache import folder
from unbraid.data.dataset import Progress
from unbraid.errors import UserError
from unbraid.runtime.files import make_folder
from unbraid.runtime.locks import lock

Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
Blocks: TypeAlias = Callable[[], Iterator[Bytes]]

VERSION = 1  # of what the readers make of their files; a new one converts everything anew


def converted(
    name: str, sources: Sequence[Path], shape: tuple[int, ...], blocks: Blocks, progress: Progress | None = None
) -> UInt8[Tensor, "n ..."]:
    """The table of `shape` that `blocks()` yields in order, kept as one .npy in the cache folder and mapped from there.

    The name tells the paths of `sources` and their sizes and times of change, so a changed file is converted anew and
    what was made of its former self removed. A process that comes second waits for the first and takes its table. The
    file gets its name when it is whole and on the disk, so one that was killed on the way is never taken for complete.
    """
    where, state = _stamp(sources)
    target = folder() / f"{name}-{where}-{state}.npy"
    if not _complete(target, shape):
        make_folder(target.parent)
        with lock(target.parent / f".{name}.lock"):
            if not _complete(target, shape):
                _convert(target, shape, blocks, progress)
                for former in target.parent.glob(f"{name}-{where}-*.npy"):
                    if former != target:
                        former.unlink(missing_ok=True)
    if progress:
        progress(1.0)
    return _mapped(target, shape)


def _stamp(sources: Sequence[Path]) -> tuple[str, str]:
    """Digests of where the sources are, and of their state."""
    where = [str(path.resolve()) for path in sources]
    state = [f"{path.stat().st_size} {path.stat().st_mtime_ns}" for path in sources]
    first, second = (hashlib.sha256("\0".join(words).encode()).hexdigest() for words in (where, [str(VERSION), *state]))
    return first[:12], second[:12]


def _convert(target: Path, shape: tuple[int, ...], blocks: Blocks, progress: Progress | None) -> None:
    needed, free = math.prod(shape), shutil.disk_usage(target.parent).free
    if free < needed:
        raise UserError(
            f"The folder {target.parent} must have {needed / 1e6:,.0f} MB free for {target.name}. Got "
            f"{free / 1e6:,.0f} MB instead. Free some space, or set UNBRAID_CACHE to a folder with room."
        )
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        with _writing(target.parent):
            file = temporary.open("wb")
        with file:
            _fill(file, shape, blocks(), progress)
        with _writing(target.parent):
            temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _fill(file: Any, shape: tuple[int, ...], blocks: Iterator[Bytes], progress: Progress | None) -> None:
    """The header and the blocks; written, not mapped, for a full disk then is an error and not a signal that kills."""
    rows = 0
    with _writing(Path(file.name).parent):
        npy.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
    for block in blocks:
        if block.dtype != np.uint8 or block.shape[1:] != shape[1:]:
            raise UserError(f"A block must be uint8 (rows, *{shape[1:]}). Got {block.dtype} {block.shape} instead.")
        with _writing(Path(file.name).parent):
            file.write(np.ascontiguousarray(block).data)
        rows += len(block)
        if progress:
            progress(min(rows / shape[0], 1.0))
    if rows != shape[0]:
        raise UserError(f"The blocks must have {shape[0]} rows together. Got {rows} instead.")
    with _writing(Path(file.name).parent):
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def _writing(place: Path) -> Iterator[None]:
    """Errors of the cache folder, told apart from those of the sources."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"Could not write in {place}: {error.strerror}. Free some space, or set UNBRAID_CACHE to another folder."
        ) from error


def _complete(path: Path, shape: tuple[int, ...]) -> bool:
    """Whether `path` is a whole table of `shape`."""
    try:
        with path.open("rb") as file:
            return _start(file, shape) is not None
    except (FileNotFoundError, NotADirectoryError):
        return False


def _start(file: Any, shape: tuple[int, ...]) -> int | None:
    """Where the bytes begin, or None where header or length are not those of a table of `shape`."""
    try:
        if npy.read_magic(file) != (1, 0) or npy.read_array_header_1_0(file) != (shape, False, np.dtype(np.uint8)):
            return None
    except ValueError:
        return None
    start: int = file.tell()
    return start if os.fstat(file.fileno()).st_size == start + math.prod(shape) else None


def _mapped(path: Path, shape: tuple[int, ...]) -> Tensor:
    """The table without a copy, from private pages: torch may write to them, and the file stays as it is.

    Without MAP_NORESERVE (Linux's value until Python has the name) a table larger than the memory could not be mapped.
    """
    reserve = getattr(mmap, "MAP_NORESERVE", 0x4000 if os.uname().sysname == "Linux" else 0)
    with path.open("rb") as file:
        start = _start(file, shape)
        if start is None:
            raise UserError(f"{path} changed while it was opened. Give the command again.")
        pages = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE | reserve, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    return torch.from_numpy(np.frombuffer(pages, np.uint8, offset=start).reshape(shape))
