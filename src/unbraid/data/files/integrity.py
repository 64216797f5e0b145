"""Check that a file is the published one, by its size, its first and last bytes and its sha256."""

from __future__ import annotations

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
from unbraid.runtime.progress import Report, no_progress

# A function like `runtime.progress.progress`: given a label and a total, it returns a context manager that yields the
# function to report progress with.
Meter: TypeAlias = Callable[[str, float], AbstractContextManager[Report]]

PIECE = 1 << 20
HDF5 = b"\x89HDF\r\n\x1a\n"
FIRST_BYTES = {".npz": b"PK", ".zip": b"PK", ".gz": b"\x1f\x8b", ".h5": HDF5, ".hdf5": HDF5, ".ply": b"ply"}


@dataclass(frozen=True)
class CheckResult:
    """The result of a successful check.

    Attributes:
        how: What was compared, in words.
        sha256: The sha256 of the file; None for a folder.
        new: Whether there was no earlier sha256 to compare with.
    """

    how: str
    sha256: str | None = None
    new: bool = False


def sha256_record(path: Path) -> Path:
    """Return the path of the file beside `path` that stores its sha256, in the format of `sha256sum -c`."""
    return path.with_name(f"{path.name}.sha256")


def write_sha256_record(path: Path, sha256: str) -> None:
    """Write the sha256 of a file to the record beside it."""
    write_atomic(sha256_record(path), f"{sha256}  {path.name}\n".encode())


def read_sha256_record(path: Path) -> str | None:
    """Return the sha256 in the record beside a file, or None if there is no record."""
    record = sha256_record(path)
    if not record.exists():
        return None
    words = record.read_text(errors="replace").split()
    if not words or len(words[0]) != 64:
        raise UserError(f"{record} must begin with a sha256 of 64 digits. Got {words[:1]} instead. Delete it.")
    return words[0].lower()


def sha256_of(path: Path, meter: Meter = no_progress) -> str:
    """Return the sha256 of a file as hexadecimal digits."""
    sha, done = hashlib.sha256(), 0
    with path.open("rb") as file, meter(f"checking {path.name} (MB)", path.stat().st_size / 1e6) as report:
        while piece := file.read(PIECE):
            sha.update(piece)
            done += len(piece)
            report(done / 1e6)
    return sha.hexdigest()


def check_file(file: File, path: Path, expected: str | None = None, meter: Meter = no_progress) -> CheckResult:
    """Check that `path` is the published `file`.

    Compares the size, the first and last bytes of the format, and the sha256. `expected` is the sha256 to compare with
    if none is published. Raises a UserError with the expected and the actual value if one of them differs.
    """
    if file.entries is not None:
        return _check_folder(path, file.entries)
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        raise UserError(f"{path} must have {file.size:,} bytes. Got {size:,} instead.")
    _check_format(path, Path(file.name).suffix)
    found, wanted = sha256_of(path, meter), file.sha256 or expected
    if wanted is not None and found != wanted:
        raise UserError(f"{path} must have the {_sha256_kind(file)} sha256 {wanted}. Got {found} instead.")
    if wanted is None:
        return CheckResult("no sha256 is published; this one is recorded for later checks", found, new=True)
    return CheckResult(f"{_sha256_kind(file)} sha256", found)


def _sha256_kind(file: File) -> str:
    return "published" if file.sha256 else "first seen"


def _check_format(path: Path, suffix: str) -> None:
    """Detect an HTML page or a truncated archive under the name of a data file, even without a checksum."""
    beginning = FIRST_BYTES.get(suffix, b"")
    with path.open("rb") as file:
        found = file.read(max(len(beginning), 8))
    if not found.startswith(beginning):
        raise UserError(f"{path} must begin with {beginning!r}, as {suffix} files do. Got {found!r} instead.")
    if suffix in (".npz", ".zip") and not zipfile.is_zipfile(path):
        raise UserError(
            f"{path} must end with a table of contents, as {suffix} files do. It has none, so it is truncated."
        )


def _check_folder(path: Path, entries: int) -> CheckResult:
    with os.scandir(path) as found:
        count = sum(entry.is_file() and not entry.name.startswith(".") for entry in found)
    if count != entries:
        raise UserError(f"{path} must contain {entries:,} files. Got {count:,} instead.")
    return CheckResult(f"{count:,} files counted")
