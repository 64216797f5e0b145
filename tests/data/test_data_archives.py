"""Archives that could do harm are refused with what was found; the others are read whole and in order."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from unbraid.data.files.locate import safe_members, safe_tar, safe_zip
from unbraid.errors import UserError

CONTENTS = {"data/cars/b.mat": bytes(range(256)) * 40, "data/cars/a.mat": b"first", "data/empty": b""}
NUL = bytes(1 << 20)
Member: TypeAlias = tuple[tarfile.TarInfo, bytes | None]


def tar(path: Path, *members: Member, mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for info, content in members:
            archive.addfile(info, io.BytesIO(content) if content is not None else None)
    return path


def member(name: str, content: bytes | None = b"", kind: bytes = tarfile.REGTYPE) -> Member:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, "elsewhere", len(content or b"")
    return info, content


def zipped(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def moded(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_tar_is_read_in_order(mode: str, tmp_path: Path) -> None:
    folder = member("data/cars", None, tarfile.DIRTYPE)
    path = tar(tmp_path / "a.tar", folder, *(member(*pair) for pair in CONTENTS.items()), mode=mode)
    assert [(name, file.read()) for name, file in safe_tar(path)] == list(CONTENTS.items())
    assert [name for name, _ in safe_tar(path, lambda name: name.endswith("a.mat"))] == ["data/cars/a.mat"]
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.tar"]


def test_zip_is_read_in_order(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", ("data/", b""), *CONTENTS.items())
    assert [(name, file.read()) for name, file in safe_zip(path)] == list(CONTENTS.items())
    assert [name for name, _ in safe_zip(path, lambda name: "cars" in name)] == ["data/cars/b.mat", "data/cars/a.mat"]
    with zipfile.ZipFile(path) as archive:
        assert [info.filename for info in safe_members(archive, path)] == list(CONTENTS)


OUTSIDE = ["../a", "/etc/passwd", "data/../../a", "..\\a", "C:\\a", "data/.."]


@pytest.mark.parametrize("name", OUTSIDE)
def test_paths_that_lead_outside(name: str, tmp_path: Path) -> None:
    for found in (
        safe_tar(tar(tmp_path / "a.tar", member("good"), member(name))),
        safe_zip(zipped(tmp_path / "a.zip", ("good", b""), (name, b""))),
    ):
        with pytest.raises(UserError, match="must stay below") as caught:
            list(found)
        assert repr(name) in str(caught.value)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_tar(kind: bytes, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'odd', a link or device"):
        list(safe_tar(tar(tmp_path / "a.tar", member("odd", None, kind))))


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK])
def test_links_and_devices_in_zip(kind: int, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'odd', a link or device"):
        list(safe_zip(zipped(tmp_path / "a.zip", (moded("odd", kind | 0o644), b"elsewhere"))))
    assert len(list(safe_zip(zipped(tmp_path / "b.zip", (moded("plain", stat.S_IFREG | 0o644), b""))))) == 1


def test_encrypted_zip(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", ("secret", b"content"))
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="encrypted file"):
        list(safe_zip(path))


def test_bombs_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    """300 MiB of nothing in 300 kB, and a member that says it has 3 GiB."""
    seen: list[str] = []

    def wanted(name: str) -> bool:
        seen.append(name)
        return False

    packed = zipped(tmp_path / "a.zip", *((f"{i}", NUL) for i in range(300)))
    assert packed.stat().st_size < 400_000
    own = rf"\(its own are {packed.stat().st_size:,}\)"
    with pytest.raises(UserError, match=rf"268,435,456 in all {own}.* Got 1,048,576 in '256' and 269,484,032"):
        list(safe_zip(packed, wanted))
    assert seen == []
    large, _ = member("large", None)
    large.size = 3 << 30
    (tmp_path / "a.tar").write_bytes(large.tobuf())
    with pytest.raises(UserError, match=r"2,147,483,648 bytes a member.* Got 3,221,225,472 in 'large'"):
        list(safe_tar(tmp_path / "a.tar", wanted))
    assert seen == []


CUTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "text": lambda content: b"<html>not found</html>",
    "half": lambda content: content[: len(content) // 2],
    "last byte": lambda content: content[:-1],
    "bit": lambda content: content[:200] + bytes([content[200] ^ 4]) + content[201:],
}
ZIP_CUTS = [cut for cut in CUTS if cut != "last byte"]  # that is the length of a comment, and forgiven


@pytest.mark.parametrize("cut", CUTS)
def test_damaged_tar_gets_one_error(cut: str, tmp_path: Path) -> None:
    """Even where only the checksum behind the last member tells."""
    path = tar(tmp_path / "a.tar.gz", *(member(*pair) for pair in CONTENTS.items()))
    path.write_bytes(CUTS[cut](path.read_bytes()))
    with pytest.raises(UserError, match="must be a whole tar archive"):
        list(safe_tar(path))


@pytest.mark.parametrize("cut", ZIP_CUTS)
def test_damaged_zip_gets_one_error(cut: str, tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", *CONTENTS.items())
    path.write_bytes(CUTS[cut](path.read_bytes()))
    with pytest.raises(UserError, match="must be a whole zip archive"):
        list(safe_zip(path))


def test_endless_padding(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar.gz", member("a", b"content"))
    with gzip.open(path, "ab") as more:
        for _ in range(66):
            more.write(NUL)
    with pytest.raises(UserError, match="more than 67,108,864 bytes follow its last member"):
        list(safe_tar(path))
