"""Unsafe archives are rejected with the reason; all others are read completely and in order."""

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

from unbraid.data.files.archives import read_tar_files, read_zip_files, safe_members
from unbraid.errors import UserError

CONTENTS = {"data/cars/b.mat": bytes(range(256)) * 40, "data/cars/a.mat": b"first", "data/empty": b""}
NUL = bytes(1 << 20)
Member: TypeAlias = tuple[tarfile.TarInfo, bytes | None]


def write_tar(path: Path, *members: Member, mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for info, content in members:
            archive.addfile(info, io.BytesIO(content) if content is not None else None)
    return path


def tar_member(name: str, content: bytes | None = b"", kind: bytes = tarfile.REGTYPE) -> Member:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, "elsewhere", len(content or b"")
    return info, content


def write_zip(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def zip_info(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_tar_is_read_in_order(mode: str, tmp_path: Path) -> None:
    folder = tar_member("data/cars", None, tarfile.DIRTYPE)
    path = write_tar(tmp_path / "a.tar", folder, *(tar_member(*pair) for pair in CONTENTS.items()), mode=mode)
    assert [(name, file.read()) for name, file in read_tar_files(path)] == list(CONTENTS.items())
    assert [name for name, _ in read_tar_files(path, lambda name: name.endswith("a.mat"))] == ["data/cars/a.mat"]
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.tar"]


def test_zip_is_read_in_order(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", ("data/", b""), *CONTENTS.items())
    assert [(name, file.read()) for name, file in read_zip_files(path)] == list(CONTENTS.items())
    assert [name for name, _ in read_zip_files(path, lambda name: "cars" in name)] == [
        "data/cars/b.mat",
        "data/cars/a.mat",
    ]
    with zipfile.ZipFile(path) as archive:
        assert [info.filename for info in safe_members(archive, path)] == list(CONTENTS)


OUTSIDE = ["../a", "/etc/passwd", "data/../../a", "..\\a", "C:\\a", "data/.."]


@pytest.mark.parametrize("name", OUTSIDE)
def test_paths_outside_the_archive_are_rejected(name: str, tmp_path: Path) -> None:
    for files in (
        read_tar_files(write_tar(tmp_path / "a.tar", tar_member("good"), tar_member(name))),
        read_zip_files(write_zip(tmp_path / "a.zip", ("good", b""), (name, b""))),
    ):
        with pytest.raises(UserError, match="must stay inside") as caught:
            list(files)
        assert repr(name) in str(caught.value)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_tar_are_rejected(kind: bytes, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'odd', a link or device"):
        list(read_tar_files(write_tar(tmp_path / "a.tar", tar_member("odd", None, kind))))


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK])
def test_links_and_devices_in_zip_are_rejected(kind: int, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'odd', a link or device"):
        list(read_zip_files(write_zip(tmp_path / "a.zip", (zip_info("odd", kind | 0o644), b"elsewhere"))))
    assert len(list(read_zip_files(write_zip(tmp_path / "b.zip", (zip_info("plain", stat.S_IFREG | 0o644), b""))))) == 1


def test_encrypted_zip_is_rejected(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", ("secret", b"content"))
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="encrypted file"):
        list(read_zip_files(path))


def test_archive_bombs_are_rejected_before_unpacking(tmp_path: Path) -> None:
    """One archive has 300 MiB of zeros in 300 kB, and one has a member with a declared size of 3 GiB."""
    seen: list[str] = []

    def wanted(name: str) -> bool:
        seen.append(name)
        return False

    packed = write_zip(tmp_path / "a.zip", *((f"{i}", NUL) for i in range(300)))
    assert packed.stat().st_size < 400_000
    own = rf"\(the archive has {packed.stat().st_size:,}\)"
    with pytest.raises(UserError, match=rf"268,435,456 bytes in total {own}.* Got 1,048,576 in '256' and 269,484,032"):
        list(read_zip_files(packed, wanted))
    assert seen == []
    large, _ = tar_member("large", None)
    large.size = 3 << 30
    (tmp_path / "a.tar").write_bytes(large.tobuf())
    with pytest.raises(UserError, match=r"2,147,483,648 bytes per member.* Got 3,221,225,472 in 'large'"):
        list(read_tar_files(tmp_path / "a.tar", wanted))
    assert seen == []


CUTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "text": lambda content: b"<html>not found</html>",
    "half": lambda content: content[: len(content) // 2],
    "last byte": lambda content: content[:-1],
    "bit": lambda content: content[:200] + bytes([content[200] ^ 4]) + content[201:],
}
ZIP_CUTS = [
    cut for cut in CUTS if cut != "last byte"
]  # the last byte of a zip is the length of a comment, and is not needed


@pytest.mark.parametrize("cut", CUTS)
def test_damaged_tar_raises_a_user_error(cut: str, tmp_path: Path) -> None:
    """This includes damage that only the checksum after the last member shows."""
    path = write_tar(tmp_path / "a.tar.gz", *(tar_member(*pair) for pair in CONTENTS.items()))
    path.write_bytes(CUTS[cut](path.read_bytes()))
    with pytest.raises(UserError, match="must be a complete tar archive"):
        list(read_tar_files(path))


@pytest.mark.parametrize("cut", ZIP_CUTS)
def test_damaged_zip_raises_a_user_error(cut: str, tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", *CONTENTS.items())
    path.write_bytes(CUTS[cut](path.read_bytes()))
    with pytest.raises(UserError, match="must be a complete zip archive"):
        list(read_zip_files(path))


def test_damaged_xz_data_raise_a_user_error(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar.xz", *(tar_member(*pair) for pair in CONTENTS.items()), mode="w:xz")
    content = path.read_bytes()
    path.write_bytes(content[:-20] + bytes([content[-20] ^ 4]) + content[-19:])
    with pytest.raises(UserError, match="must be a complete tar archive"):
        list(read_tar_files(path))


def test_a_length_that_is_too_large_in_a_tar_raises_a_user_error(tmp_path: Path) -> None:
    """Python then raises an OverflowError while it reads an extended header."""
    info, content = tar_member("é" * 60, b"content")
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, io.BytesIO(content or b""))
    plain = (tmp_path / "a.tar").read_bytes()
    start = plain.index(b" path=")
    header = b"9" * 30 + plain[start : start + 512]
    (tmp_path / "a.tar").write_bytes(plain[:512] + header[:512] + plain[1024:])
    with pytest.raises(UserError, match=r"must be a complete tar archive.*: its structure is not valid"):
        list(read_tar_files(tmp_path / "a.tar"))


def test_a_member_without_a_name_raises_a_user_error(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", ("x", b"content"))
    content = path.read_bytes()
    at = content.index(b"PK\x01\x02")
    path.write_bytes(content[: at + 46] + b"\0" + content[at + 47 :])
    with pytest.raises(UserError, match="must be a complete zip archive"):
        list(read_zip_files(path))


def test_padding_after_the_last_member_is_limited(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar.gz", tar_member("a", b"content"))
    with gzip.open(path, "ab") as more:
        for _ in range(66):
            more.write(NUL)
    with pytest.raises(UserError, match="more than 67,108,864 bytes follow its last member"):
        list(read_tar_files(path))
