"""Read archives without unpacking them to disk, and reject archives whose contents could do harm."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from unbraid.errors import UserError

TOTAL_LIMIT = 32 << 30  # unpacked bytes of all members; the largest supported dataset has 13 GB
MEMBER_LIMIT = 2 << 30  # unpacked bytes of one member, which is read into memory
RATIO_LIMIT = 500  # unpacked size divided by packed size; dSprites, the most compressible dataset, has about 116
SMALL_TOTAL = 256 << 20  # unpacked bytes that are accepted at any ratio
PADDING_LIMIT = 64 << 20  # bytes after the last member of a tar
COUNT_LIMIT = 1_000_000  # members; CelebA has 202,599

READ_ERRORS = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, ValueError)


def any_file(name: str) -> bool:
    """Accept every member."""
    return True


def safe_tar(path: Path, wanted: Callable[[str], bool] = any_file) -> Iterator[tuple[str, io.BytesIO]]:
    """Yield the names and contents of the `wanted` files of a tar archive, compressed or not, in their order.

    Before a file is yielded, all members up to it are checked, wanted or not. `safe_members` lists the checks.
    """
    try:
        with tarfile.open(path) as archive:
            for member in safe_members(archive, path):
                if wanted(member.name):
                    content = archive.extractfile(member)
                    assert content is not None  # only plain files get here
                    yield member.name, _complete_content(content.read(), member.size, member.name)
            _read_to_the_end(archive)
    except UserError:
        raise
    except READ_ERRORS as error:
        raise _damaged_error(path, "tar", error) from error


def safe_zip(path: Path, wanted: Callable[[str], bool] = any_file) -> Iterator[tuple[str, io.BytesIO]]:
    """Yield the names and contents of the `wanted` files of a zip archive in order, after checking all members."""
    try:
        with zipfile.ZipFile(path) as archive:
            for member in list(safe_members(archive, path)):
                if wanted(member.filename):
                    yield member.filename, _complete_content(archive.read(member), member.file_size, member.filename)
    except UserError:
        raise
    except (*READ_ERRORS, RuntimeError) as error:
        raise _damaged_error(path, "zip", error) from error


def safe_members(archive: tarfile.TarFile | zipfile.ZipFile, path: Path) -> Iterator[Any]:
    """Yield the regular files of an open archive at `path`, in their order; skip folders.

    Raises a UserError for absolute paths, paths that lead outside the archive, links, devices and encrypted members,
    and for archives with more than a million members, 32 GiB in total, 2 GiB in one member, or (above 256 MiB) 500
    times their own size.
    """
    packed, total = path.stat().st_size, 0
    members: Iterable[Any] = archive if isinstance(archive, tarfile.TarFile) else archive.infolist()
    for count, member in enumerate(members, 1):
        name, size, kind = _describe(member)
        if leads_outside(name):
            raise _unsafe_error(path, f"its paths must stay inside the folder it is unpacked in. Got {name!r}")
        if kind not in ("file", "folder"):
            raise _unsafe_error(path, f"it must contain only regular files and folders. Got {name!r}, a {kind}")
        total += size
        most = min(TOTAL_LIMIT, max(SMALL_TOTAL, RATIO_LIMIT * packed))
        if size > MEMBER_LIMIT or total > most or count > COUNT_LIMIT:
            limits = f"{MEMBER_LIMIT:,} bytes per member, {most:,} bytes in total (the archive has {packed:,})"
            found = f"{size:,} in {name!r} and {total:,} in the first {count:,} members"
            raise _unsafe_error(path, f"it must not exceed {limits} and {COUNT_LIMIT:,} members. Got {found}")
        if kind == "file":
            yield member


def leads_outside(name: str) -> bool:
    r"""Whether a path in an archive could lead outside the folder it is unpacked in.

    >>> [leads_outside(name) for name in ("cars/a.mat", "..a/b", "../a", "a/../../b", "/a", "C:/a", r"a\..\..\b")]
    [False, False, True, True, True, True, True]
    """
    path = PurePosixPath(name.replace("\\", "/"))
    return path.is_absolute() or ".." in path.parts or ":" in path.parts[0] if path.parts else False


def _describe(member: tarfile.TarInfo | zipfile.ZipInfo) -> tuple[str, int, str]:
    """Return the name, the size and the kind of a member."""
    if isinstance(member, zipfile.ZipInfo):
        mode = member.external_attr >> 16
        plain = not mode or stat.S_ISREG(mode) or stat.S_ISDIR(mode) or not stat.S_IFMT(mode)
        kind = "file" if plain else "link or device"
        kind = "encrypted file" if member.flag_bits & 1 else kind
        return member.filename, member.file_size, "folder" if kind == "file" and member.is_dir() else kind
    kind = "file" if member.isfile() else "folder" if member.isdir() else "link or device"
    return member.name, member.size, kind


def _complete_content(content: bytes, size: int, name: str) -> io.BytesIO:
    """Return the content as a file, or raise an EOFError if it is too short."""
    if len(content) != size:
        raise EOFError(f"{name} has {len(content):,} of {size:,} bytes")
    return io.BytesIO(content)


def _read_to_the_end(archive: tarfile.TarFile) -> None:
    """Read past the last member, because the checksum of a compressed tar comes after it and tarfile stops earlier."""
    stream = archive.fileobj
    assert stream is not None  # an open archive has one
    for _ in range(PADDING_LIMIT >> 20):
        if not stream.read(1 << 20):
            return
    raise tarfile.ReadError(f"more than {PADDING_LIMIT:,} bytes follow its last member")


def _unsafe_error(path: Path, rule: str) -> UserError:
    return UserError(f"{path} is rejected as unsafe: {rule} instead. Download it again from a source you trust.")


def _damaged_error(path: Path, kind: str, error: BaseException) -> UserError:
    return UserError(
        f"{path} must be a complete {kind} archive. It is damaged or truncated: {error}. Download it again."
    )
