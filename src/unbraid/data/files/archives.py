"""Read archives without unpacking them to disk, and reject archives with unsafe contents."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from unbraid.errors import UserError
from unbraid.runtime.files import refuse_special_file
from unbraid.runtime.read_errors import READ_ERRORS, read_reason

TOTAL_LIMIT = 32 << 30  # maximum unpacked bytes of all members; the largest supported dataset has 13 GB
MEMBER_LIMIT = 2 << 30  # maximum unpacked bytes of one member, because a member is read into memory
RATIO_LIMIT = 500  # maximum ratio of unpacked to packed size; supported datasets reach about 116 (dSprites)
SMALL_TOTAL = 256 << 20  # an archive with at most this many unpacked bytes may have any ratio
PADDING_LIMIT = 64 << 20  # maximum number of bytes after the last member of a tar archive
COUNT_LIMIT = 1_000_000  # maximum number of members; CelebA has 202,599


def accept_all(name: str) -> bool:
    """Return True, to read every file of an archive."""
    return True


def read_tar_files(path: Path, wanted: Callable[[str], bool] = accept_all) -> Iterator[tuple[str, io.BytesIO]]:
    """Yield the name and content of each file in a tar archive for which `wanted(name)` is true, in order.

    The archive may be compressed. Before a file is yielded, `safe_members` checks this file and all members before it,
    including those that are not wanted.
    """
    try:
        refuse_special_file(path)
        with tarfile.open(path) as archive:
            for member in safe_members(archive, path):
                if wanted(member.name):
                    content = archive.extractfile(member)
                    assert content is not None  # because the member is a regular file
                    yield member.name, _check_length(content.read(), member.size, member.name)
            _read_to_end(archive)
    except UserError:
        raise
    except READ_ERRORS as error:
        raise _damaged_error(path, "tar", error) from error


def read_zip_files(path: Path, wanted: Callable[[str], bool] = accept_all) -> Iterator[tuple[str, io.BytesIO]]:
    """Yield the name and content of each file in a zip archive for which `wanted(name)` is true, in order.

    All members are checked by `safe_members` before the first file is yielded.
    """
    try:
        refuse_special_file(path)
        with zipfile.ZipFile(path) as archive:
            for member in list(safe_members(archive, path)):
                if wanted(member.filename):
                    yield member.filename, _check_length(archive.read(member), member.file_size, member.filename)
    except UserError:
        raise
    except READ_ERRORS as error:
        raise _damaged_error(path, "zip", error) from error


def safe_members(archive: tarfile.TarFile | zipfile.ZipFile, path: Path) -> Iterator[Any]:
    """Yield the members of an open archive that are regular files, in order. Folders are skipped.

    Args:
        archive: The open archive.
        path: Path of the archive.

    Raises:
        UserError: If a member has an absolute path or a path that leads outside the archive, if it is a link or a
            device, or if it is encrypted. Also if the archive has more than a million members, if it unpacks to more
            than 32 GiB, if one member unpacks to more than 2 GiB, or if the archive unpacks to more than 256 MiB and
            more than 500 times its own size.
    """
    packed, total = path.stat().st_size, 0
    members: Iterable[Any] = archive if isinstance(archive, tarfile.TarFile) else archive.infolist()
    for count, member in enumerate(members, 1):
        name, size, kind = _describe_member(member)
        if leads_outside(name):
            raise _unsafe_error(path, f"Its paths must stay inside the folder in which it is unpacked. Got {name!r}")
        if kind not in ("file", "folder"):
            raise _unsafe_error(path, f"It must contain only regular files and folders. Got {name!r}, a {kind}")
        total += size
        limit = min(TOTAL_LIMIT, max(SMALL_TOTAL, RATIO_LIMIT * packed))
        if size > MEMBER_LIMIT or total > limit or count > COUNT_LIMIT:
            limits = f"{MEMBER_LIMIT:,} bytes per member, {limit:,} bytes in total (the archive has {packed:,})"
            found = f"{size:,} in {name!r} and {total:,} in the first {count:,} members"
            raise _unsafe_error(path, f"It must not exceed {limits} and {COUNT_LIMIT:,} members. Got {found}")
        if kind == "file":
            yield member


def leads_outside(name: str) -> bool:
    r"""Return whether a path in an archive could lead outside the folder in which the archive is unpacked.

    >>> [leads_outside(name) for name in ("cars/a.mat", "..a/b", "../a", "a/../../b", "/a", "C:/a", r"a\..\..\b")]
    [False, False, True, True, True, True, True]
    """
    path = PurePosixPath(name.replace("\\", "/"))
    return path.is_absolute() or ".." in path.parts or ":" in path.parts[0] if path.parts else False


def _describe_member(member: tarfile.TarInfo | zipfile.ZipInfo) -> tuple[str, int, str]:
    """Return the name of a member, its unpacked size in bytes, and its kind, such as "file" or "folder"."""
    if isinstance(member, zipfile.ZipInfo):
        mode = member.external_attr >> 16
        plain = not mode or stat.S_ISREG(mode) or stat.S_ISDIR(mode) or not stat.S_IFMT(mode)
        kind = "file" if plain else "link or device"
        kind = "encrypted file" if member.flag_bits & 1 else kind
        return member.filename, member.file_size, "folder" if kind == "file" and member.is_dir() else kind
    kind = "file" if member.isfile() else "folder" if member.isdir() else "link or device"
    return member.name, member.size, kind


def _check_length(content: bytes, size: int, name: str) -> io.BytesIO:
    """Return the content as a binary file, or raise an EOFError if its length is not `size`."""
    if len(content) != size:
        raise EOFError(f"{name} has {len(content):,} of {size:,} bytes")
    return io.BytesIO(content)


def _read_to_end(archive: tarfile.TarFile) -> None:
    """Read the rest of a tar archive after its last member.

    A compressed archive has a checksum at its end, which tarfile alone would not read and verify.
    """
    stream = archive.fileobj
    assert stream is not None  # because the archive is open
    for _ in range(PADDING_LIMIT >> 20):
        if not stream.read(1 << 20):
            return
    raise tarfile.ReadError(f"more than {PADDING_LIMIT:,} bytes follow its last member")


def _unsafe_error(path: Path, rule: str) -> UserError:
    return UserError(f"{path} is not safe to unpack. {rule} instead. Download it again from a source that you trust.")


def _damaged_error(path: Path, kind: str, error: BaseException) -> UserError:
    return UserError(
        f"{path} must be a complete {kind} archive. It is damaged or truncated: {read_reason(error)}. Download it "
        "again."
    )
