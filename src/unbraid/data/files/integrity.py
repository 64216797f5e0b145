"""Check that a file is the published one, by its size, its first and last bytes and its SHA-256."""

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
from unbraid.runtime.progress import ProgressCallback, no_progress

# A function like `runtime.progress.progress`. It takes a label and the total amount of work, and returns a context
# manager that yields a function. The function is called with the amount done so far.
ProgressDisplay: TypeAlias = Callable[[str, float], AbstractContextManager[ProgressCallback]]

CHUNK_BYTES = 1 << 20
HDF5 = b"\x89HDF\r\n\x1a\n"
FIRST_BYTES = {".npz": b"PK", ".zip": b"PK", ".gz": b"\x1f\x8b", ".h5": HDF5, ".hdf5": HDF5, ".ply": b"ply"}


@dataclass(frozen=True)
class CheckResult:
    """The result of a successful check of one file.

    Attributes:
        summary: What was compared, in words.
        sha256: The SHA-256 of the file, or None for a folder.
        new: True if there was neither a published nor a recorded SHA-256 to compare with.
    """

    summary: str
    sha256: str | None = None
    new: bool = False


def sha256_record_path(path: Path) -> Path:
    """Return the path of the file beside `path` that records its SHA-256, in the format of `sha256sum -c`."""
    return path.with_name(f"{path.name}.sha256")


def write_sha256_record(path: Path, sha256: str) -> None:
    """Write the SHA-256 of a file to the record beside it."""
    write_atomic(sha256_record_path(path), f"{sha256}  {path.name}\n".encode())


def read_sha256_record(path: Path) -> str | None:
    """Return the SHA-256 in the record beside a file, or None if there is no record."""
    record = sha256_record_path(path)
    if not record.exists():
        return None
    words = record.read_text(errors="replace").split()
    if not words or len(words[0]) != 64:
        raise UserError(f"{record} must begin with a SHA-256 of 64 digits. Got {words[:1]} instead. Delete the file.")
    return words[0].lower()


def compute_sha256(path: Path, display: ProgressDisplay = no_progress) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    sha, done = hashlib.sha256(), 0
    with path.open("rb") as file, display(f"checking {path.name} (MB)", path.stat().st_size / 1e6) as show_progress:
        while piece := file.read(CHUNK_BYTES):
            sha.update(piece)
            done += len(piece)
            show_progress(done / 1e6)
    return sha.hexdigest()


def check_file(
    file: File, path: Path, recorded: str | None = None, display: ProgressDisplay = no_progress
) -> CheckResult:
    """Check the size, the first and last bytes, and the SHA-256 of a file.

    Args:
        file: Published file.
        path: Path of the file to check.
        recorded: SHA-256 to compare with if none is published.
        display: Shows progress.

    Returns:
        The result of the check.

    Raises:
        UserError: If a value differs. The message contains the expected and the actual value.
    """
    if file.entries is not None:
        return _check_folder(path, file.entries)
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        raise UserError(f"{path} must have {file.size:,} bytes. Got {size:,} instead.")
    _check_format(path, Path(file.name).suffix)
    found, expected = compute_sha256(path, display), file.sha256 or recorded
    kind = "published" if file.sha256 else "recorded"
    if expected is not None and found != expected:
        raise UserError(f"{path} must have the {kind} SHA-256 {expected}. Got {found} instead.")
    if expected is None:
        return CheckResult("no SHA-256 is published, so this one is recorded for later checks", found, new=True)
    return CheckResult(f"the SHA-256 equals the {kind} one", found)


def _check_format(path: Path, suffix: str) -> None:
    """Raise a UserError if a data file is in fact an HTML page or a truncated archive.

    The check looks at the first and last bytes, so it needs no published checksum.
    """
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
    return CheckResult(f"the folder contains all {count:,} files")
