"""Archives read without unpacking them to disk, and refused where their contents could do harm."""

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

TOTAL_LIMIT = 32 << 30  # bytes of all members together; the largest dataset here has 13 GB
MEMBER_LIMIT = 2 << 30  # bytes of one member, which is read whole
RATIO_LIMIT = 500  # unpacked to packed; dSprites, the emptiest images here, has about 116
SMALL = 256 << 20  # bytes in all that do no harm at any ratio
PADDING_LIMIT = 64 << 20  # bytes behind the last member of a tar
COUNT_LIMIT = 1_000_000  # members; CelebA has 202,599

DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, ValueError)


def everything(name: str) -> bool:
    """Takes every member."""
    return True


def safe_tar(path: Path, wanted: Callable[[str], bool] = everything) -> Iterator[tuple[str, io.BytesIO]]:
    """The names and contents of the `wanted` files of a tar archive, packed or not, in its order.

    All members up to there are judged first, wanted or not; see `safe_members` for what is refused.
    """
    try:
        with tarfile.open(path) as archive:
            for member in safe_members(archive, path):
                if wanted(member.name):
                    content = archive.extractfile(member)
                    assert content is not None  # only plain files get here
                    yield member.name, _whole(content.read(), member.size, member.name)
            _read_to_the_end(archive)
    except DAMAGE as error:
        raise _damaged(path, "tar", error) from error


def safe_zip(path: Path, wanted: Callable[[str], bool] = everything) -> Iterator[tuple[str, io.BytesIO]]:
    """The names and contents of the `wanted` files of a zip archive, in its order, after all have been judged."""
    try:
        with zipfile.ZipFile(path) as archive:
            for member in list(safe_members(archive, path)):
                if wanted(member.filename):
                    yield member.filename, _whole(archive.read(member), member.file_size, member.filename)
    except (*DAMAGE, RuntimeError) as error:
        raise _damaged(path, "zip", error) from error


def safe_members(archive: tarfile.TarFile | zipfile.ZipFile, path: Path) -> Iterator[Any]:
    """The plain files of an open archive at `path`, in its order; folders are passed over.

    Refused are absolute paths and those that lead outside, links, devices, encrypted members, and an archive of more
    than a million members, 32 GiB, 2 GiB in one member, or (above 256 MiB) 500 times its own size.
    """
    packed, total = path.stat().st_size, 0
    members: Iterable[Any] = archive if isinstance(archive, tarfile.TarFile) else archive.infolist()
    for count, member in enumerate(members, 1):
        name, size, kind = _described(member)
        if outside(name):
            raise _unsafe(path, f"all paths inside it must stay below the folder it is unpacked in. Got {name!r}")
        if kind not in ("file", "folder"):
            raise _unsafe(path, f"it must hold plain files and folders only. Got {name!r}, a {kind}")
        total += size
        most = min(TOTAL_LIMIT, max(SMALL, RATIO_LIMIT * packed))
        if size > MEMBER_LIMIT or total > most or count > COUNT_LIMIT:
            limits = f"{MEMBER_LIMIT:,} bytes a member, {most:,} in all (its own are {packed:,})"
            found = f"{size:,} in {name!r} and {total:,} in the first {count:,} members"
            raise _unsafe(path, f"it must keep to {limits} and {COUNT_LIMIT:,} members. Got {found}")
        if kind == "file":
            yield member


def outside(name: str) -> bool:
    r"""Whether a path of an archive could lead out of the folder it is unpacked in.

    >>> [outside(name) for name in ("cars/a.mat", "..a/b", "../a", "a/../../b", "/a", "C:/a", r"a\..\..\b")]
    [False, False, True, True, True, True, True]
    """
    path = PurePosixPath(name.replace("\\", "/"))
    return path.is_absolute() or ".." in path.parts or ":" in path.parts[0] if path.parts else False


def _described(member: tarfile.TarInfo | zipfile.ZipInfo) -> tuple[str, int, str]:
    """The name, the size and the kind of a member."""
    if isinstance(member, zipfile.ZipInfo):
        mode = member.external_attr >> 16
        plain = not mode or stat.S_ISREG(mode) or stat.S_ISDIR(mode) or not stat.S_IFMT(mode)
        kind = "file" if plain else "link or device"
        kind = "encrypted file" if member.flag_bits & 1 else kind
        return member.filename, member.file_size, "folder" if kind == "file" and member.is_dir() else kind
    kind = "file" if member.isfile() else "folder" if member.isdir() else "link or device"
    return member.name, member.size, kind


def _whole(content: bytes, size: int, name: str) -> io.BytesIO:
    if len(content) != size:
        raise EOFError(f"{name} has {len(content):,} of {size:,} bytes")
    return io.BytesIO(content)


def _read_to_the_end(archive: tarfile.TarFile) -> None:
    """The checksum of a packed tar lies behind its last member, where tarfile does not look."""
    stream = archive.fileobj
    assert stream is not None  # an open archive has one
    for _ in range(PADDING_LIMIT >> 20):
        if not stream.read(1 << 20):
            return
    raise tarfile.ReadError(f"more than {PADDING_LIMIT:,} bytes follow its last member")


def _unsafe(path: Path, rule: str) -> UserError:
    return UserError(f"{path} is refused: {rule} instead. Fetch it again from a source you trust.")


def _damaged(path: Path, kind: str, error: BaseException) -> UserError:
    return UserError(f"{path} must be a whole {kind} archive. It is damaged or cut short: {error}. Fetch it again.")
