"""Whether a file is the one it should be: its size, how it begins and ends, its sha256."""

from __future__ import annotations

import contextlib
import hashlib
import os
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from unbraid.data.files.catalogue import File
from unbraid.errors import UserError
from unbraid.runtime.files import write_atomic
from unbraid.runtime.progress import Report, silent

Meter: TypeAlias = Callable[[str, float], AbstractContextManager[Report]]

PIECE = 1 << 20
HDF5 = b"\x89HDF\r\n\x1a\n"
BEGINNINGS = {".npz": b"PK", ".zip": b"PK", ".gz": b"\x1f\x8b", ".h5": HDF5, ".hdf5": HDF5, ".ply": b"ply"}


@dataclass(frozen=True)
class Finding:
    """How a file was checked; `sha256` is None for a folder, `new` says that no earlier value was there to compare."""

    how: str
    sha256: str | None = None
    new: bool = False


def quiet(label: str, total: float) -> AbstractContextManager[Report]:
    """A meter that shows nothing; `unbraid.runtime.progress.progress` is one that does."""
    return contextlib.nullcontext(silent)


def record_of(path: Path) -> Path:
    """Where the sha256 of a file without a published one is kept, in the form `sha256sum -c` reads."""
    return path.with_name(f"{path.name}.sha256")


def remember(path: Path, sha256: str) -> None:
    """Keep the sha256 of a file beside it."""
    write_atomic(record_of(path), f"{sha256}  {path.name}\n".encode())


def remembered(path: Path) -> str | None:
    """The sha256 kept beside a file, if there is one."""
    record = record_of(path)
    if not record.exists():
        return None
    words = record.read_text(errors="replace").split()
    if not words or len(words[0]) != 64:
        raise UserError(f"{record} must begin with a sha256 of 64 digits. Got {words[:1]} instead. Delete it.")
    return words[0].lower()


def digest(path: Path, meter: Meter = quiet) -> str:
    """The sha256 of a file."""
    sha, done = hashlib.sha256(), 0
    with path.open("rb") as file, meter(f"checking {path.name} (MB)", path.stat().st_size / 1e6) as report:
        while piece := file.read(PIECE):
            sha.update(piece)
            done += len(piece)
            report(done / 1e6)
    return sha.hexdigest()


def examine(file: File, path: Path, expected: str | None = None, meter: Meter = quiet) -> Finding:
    """How `path` was found to be `file`, or a UserError with what was expected and what was found.

    Compared are the published size and sha256, else the `expected` one, and how a file of that kind begins and ends.
    """
    if file.entries is not None:
        return _examine_folder(path, file.entries)
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        raise UserError(f"{path} must have {file.size:,} bytes. Got {size:,} instead.")
    _examine_form(path, Path(file.name).suffix)
    found, wanted = digest(path, meter), file.sha256 or expected
    if wanted is not None and found != wanted:
        raise UserError(f"{path} must have the {_kind(file)} sha256 {wanted}. Got {found} instead.")
    if wanted is None:
        return Finding("no sha256 is published: this one is kept for later checks", found, new=True)
    return Finding(f"{_kind(file)} sha256", found)


def _kind(file: File) -> str:
    return "published" if file.sha256 else "first seen"


def _examine_form(path: Path, suffix: str) -> None:
    """A page of text or half an archive under the name of a data file is found without a checksum."""
    beginning = BEGINNINGS.get(suffix, b"")
    with path.open("rb") as file:
        found = file.read(max(len(beginning), 8))
    if not found.startswith(beginning):
        raise UserError(f"{path} must begin with {beginning!r}, as {suffix} files do. Got {found!r} instead.")
    if suffix in (".npz", ".zip") and not zipfile.is_zipfile(path):
        raise UserError(
            f"{path} must end with a table of contents, as {suffix} files do. It has none: it was cut short."
        )


def _examine_folder(path: Path, entries: int) -> Finding:
    with os.scandir(path) as found:
        count = sum(entry.is_file() and not entry.name.startswith(".") for entry in found)
    if count != entries:
        raise UserError(f"{path} must hold {entries:,} files. Got {count:,} instead.")
    return Finding(f"{count:,} files counted")
