"""Reading and writing files. A file is written as a whole, so it is either complete or absent."""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import os
import stat
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from unbraid.errors import UserError

try:
    import fcntl
except ImportError:  # on Windows, which needs no locks here, because open files cannot be deleted
    fcntl = None  # type: ignore[assignment]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # errors that a full disk or a quota causes
TEMPORARY = ".tmp"  # ending of the names of temporary files
TEMPORARY_NAME = 200  # maximum number of characters of a file's name that the name of its temporary file contains


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file atomically.

    A temporary file in the same folder is written, synced to disk and renamed to `path`. Readers see either the old
    content or all of the new content, even if the process is killed. A symbolic link stays a link, and the file that it
    names is written. Devices, pipes and the output of this process (`/dev/stdout`) are written to directly and never
    replaced.

    Args:
        path: The file to write.
        content: The whole content of the file.

    Raises:
        UserError: If the file cannot be written.
    """
    try:
        if not _write_to_stream(path, content):
            _replace_file(Path(os.path.realpath(path)), content)
    except OSError as error:
        advice = "Free some space or choose another folder" if error.errno in FULL else "Choose another folder"
        raise UserError(
            f"Could not write {path}: {error.strerror}. Existing files are unchanged. {advice}, then repeat the "
            "command to resume from the last checkpoint."
        ) from error


def _replace_file(path: Path, content: bytes) -> None:
    """Write a temporary file and rename it to `path`. If this fails, remove the temporary file.

    Temporary files of `path` that killed processes have left are removed too.
    """
    remove_temporary_files(path.parent, path.name)
    unique = f"{os.getpid()}.{threading.get_ident()}"
    temporary = path.with_name(f".{path.name[:TEMPORARY_NAME]}.{unique}{TEMPORARY}")
    try:
        with _open_temporary(temporary) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            if path.exists():
                temporary.chmod(stat.S_IMODE(path.stat().st_mode))
            if fcntl is None:
                file.close()  # Windows does not rename open files
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _open_temporary(path: Path) -> IO[bytes]:
    """Open a new temporary file and lock it, so that `remove_temporary_files` keeps it."""
    while True:
        file = path.open("wb")
        with contextlib.suppress(OSError):  # raised by file systems without locks
            _lock_file(file, wait=True)
        if path.exists():
            return file
        file.close()  # it was removed before it was locked


def _lock_file(file: IO[bytes], wait: bool) -> None:
    """Lock an open file until it is closed. Raise an OSError if another process holds the lock and `wait` is False."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def _write_to_stream(path: Path, content: bytes) -> bool:
    """Write to a device, a pipe, or the output of this process. Return False if `path` is none of these."""
    try:
        facts = path.stat()
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(facts.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    descriptor = _own_output(facts)
    if descriptor is None and stat.S_ISREG(facts.st_mode):
        return False
    if descriptor is not None:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        return True
    opened = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)  # fails for a pipe without a reader
    os.set_blocking(opened, True)
    with os.fdopen(opened, "wb") as file:
        file.write(content)
    return True


def _own_output(facts: os.stat_result) -> int | None:
    """Return 1 or 2 if a file is the standard output or the standard error of this process, otherwise None."""
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        with contextlib.suppress(OSError):
            if os.path.samestat(facts, os.fstat(descriptor)):
                stream.flush()
                return descriptor
    return None


def write_jsonl(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Write records to a .jsonl file, one per line. An existing file is replaced."""
    write_atomic(path, "".join(json.dumps(record) + "\n" for record in records).encode())


def expand_user(path: str | Path) -> Path:
    """Return a path with ``~`` and ``~name`` replaced by home folders. The name of an unknown user stays as it is."""
    return Path(os.path.expanduser(path))  # noqa: PTH111, `Path.expanduser` raises an error for unknown users


def resolve_path(path: str | Path) -> Path:
    """Return the absolute path of a file, without links. If links form a loop, the returned path does not exist."""
    return Path(os.path.realpath(expand_user(path)))


def refuse_special_file(path: Path) -> None:
    """Raise a UserError if a path exists and is neither a file nor a folder. Reading a pipe or a device may not end."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise UserError(
            f"{path} must be an ordinary file. Got a pipe or a device instead. Replace it by the file itself."
        )


def cache_folder() -> Path:
    """Return the cache folder.

    It is $UNBRAID_CACHE if this variable is set, otherwise $XDG_CACHE_HOME/unbraid if that variable is set, and
    otherwise ~/.cache/unbraid.
    """
    if chosen := os.environ.get("UNBRAID_CACHE"):
        return Path(chosen)
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "unbraid"
    return Path.home() / ".cache" / "unbraid"


def make_folder(path: Path) -> None:
    """Create a folder and its parents, if they do not exist.

    Raises:
        UserError: If the folder cannot be created.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"Could not create the folder {path}: {error.strerror}. Choose another one.") from error


def remove_temporary_files(folder: Path, name: str = "") -> None:
    """Remove temporary files of `write_atomic` that a killed process left in a folder.

    Files that another process is writing at this moment are kept.

    Args:
        folder: The folder.
        name: The name of the file whose temporary files are removed. By default, those of all files are removed.
    """
    for leftover in folder.glob(f".{glob.escape(name[:TEMPORARY_NAME])}*{TEMPORARY}"):
        with contextlib.suppress(OSError), leftover.open("rb") as file:
            _lock_file(file, wait=False)
            if os.path.samestat(os.fstat(file.fileno()), leftover.stat()):  # it was not renamed before the lock
                leftover.unlink()
