"""Dataset files are found in the data folder; missing and wrong files are reported."""

from __future__ import annotations

import hashlib
import io
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.faulty_server import Server, run_server
from unbraid.data import DATASETS
from unbraid.data.files.catalogue import SOURCES, File
from unbraid.data.files.download import download_file
from unbraid.data.files.integrity import check_file, read_sha256_record
from unbraid.data.files.locate import data_folder, locate_files
from unbraid.errors import UserError

CONTENT = bytes(range(97)) * 2 + b"end"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server() -> Iterator[Server]:
    with run_server() as running:
        yield running


def npz() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(
            zipfile.ZipInfo("images.npy"), CONTENT
        )  # dated 1980, so that the bytes do not depend on the time
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.npz", npz()[:-30], "must end with a table of contents"),
        ("a.npz", b"<!DOCTYPE html>", r"must begin with b'PK'.*Got b'<!DOCTYP'"),
        ("a.gz", b"<!DOCTYPE html>", "must begin with"),
        ("a.h5", b"", r"Got b'' instead"),
        ("a.ply", b"solid", "must begin with b'ply'"),
    ],
)
def test_wrong_and_truncated_files_are_detected_without_a_checksum(
    name: str, content: bytes, message: str, server: Server, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        download_file(File(name, (server.add("/file", content),)), tmp_path)
    assert not (tmp_path / name).exists()
    assert download_file(File("b.npz", (server.add("/file", npz()),)), tmp_path).read_bytes() == npz()


def test_first_sha256_is_recorded_and_compared(server: Server, tmp_path: Path) -> None:
    file = File("data.bin", (server.add("/data.bin", CONTENT),))
    path = download_file(file, tmp_path)
    done = subprocess.run(["sha256sum", "-c", "data.bin.sha256"], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0
    assert check_file(file, path, read_sha256_record(path)).summary == "the SHA-256 equals the recorded one"
    for damaged in (CONTENT[:-1], b"!" + CONTENT[1:]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=f"recorded SHA-256 {SHA256}. Got {hashlib.sha256(damaged).hexdigest()}"):
            check_file(file, path, read_sha256_record(path))
    path.unlink()
    server.add("/data.bin", CONTENT + b"new")
    assert read_sha256_record(download_file(file, tmp_path)) == hashlib.sha256(CONTENT + b"new").hexdigest()
    (tmp_path / "data.bin.sha256").write_text("short")
    with pytest.raises(UserError, match="64 digits"):
        read_sha256_record(path)


def test_data_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/h")
    for name in ("XDG_DATA_HOME", "UNBRAID_DATA"):
        monkeypatch.setenv(name, "")
    assert data_folder() == Path("/h/.local/share/unbraid")
    monkeypatch.setenv("XDG_DATA_HOME", "/x")
    assert data_folder() == Path("/x/unbraid")
    monkeypatch.setenv("UNBRAID_DATA", "~/u")
    assert data_folder() == Path("/h/u")
    assert data_folder("/r") == Path("/r")


def test_locate_files_accepts_any_complete_alternative(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        locate_files("cars3d", tmp_path)
    for part in (str(tmp_path / "cars3d"), "http://www.scottreed.info/files/", "unbraid data get cars3d"):
        assert part in str(caught.value)
    folder = tmp_path / "cars3d"
    folder.mkdir()
    (folder / "nips2015-analogy-data.tar.gz").touch()
    assert locate_files("cars3d", tmp_path) == {"nips2015-analogy-data.tar.gz": folder / "nips2015-analogy-data.tar.gz"}
    (folder / "cars3d.npz").touch()
    assert locate_files("cars3d", tmp_path) == {"cars3d_64x64.npz": folder / "cars3d.npz"}
    assert locate_files("dsprites", tmp_path) == {}
    with pytest.raises(ValueError, match="Did you mean 'cars3d'"):
        locate_files("cars3", tmp_path)


def test_locate_files_lists_only_missing_files(tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    for file in SOURCES["mnist"].alternatives[0][:3]:
        (tmp_path / "mnist" / file.name).touch()
    with pytest.raises(UserError) as caught:
        locate_files("mnist", tmp_path)
    assert "t10k-labels-idx1-ubyte.gz (4,542 bytes) from https://" in str(caught.value)
    assert "train-images" not in str(caught.value)


def test_locate_files_finds_folders_and_unpacked_archives(tmp_path: Path) -> None:
    nested = tmp_path / "celeba" / "img_align_celeba" / "img_align_celeba"
    nested.mkdir(parents=True)
    (nested / "000001.jpg").touch()
    (tmp_path / "celeba" / "list_attr_celeba.txt").touch()
    assert locate_files("celeba", tmp_path)["img_align_celeba"] == nested
    with pytest.raises(UserError, match=r"must contain 202,599 files\. Got 1 instead"):
        check_file(SOURCES["celeba"].alternatives[0][0], nested)
    meshes = tmp_path / "faust" / "MPI-FAUST" / "training" / "registrations"
    meshes.mkdir(parents=True)
    for file in SOURCES["faust"].alternatives[0]:
        (meshes / file.name).touch()
    assert len(locate_files("faust", tmp_path)) == 100


def test_catalogue_is_consistent() -> None:
    assert set(DATASETS) <= set(SOURCES)
    for name, source in SOURCES.items():
        assert name == source.name
        assert source.description
        assert source.licence
        assert source.built_in != bool(source.alternatives)
        assert source.built_in or (source.citation and source.homepage)
        for files in source.alternatives:
            assert len({file.name for file in files}) == len(files)
            for file in files:
                assert file.sha256 is None or (len(bytes.fromhex(file.sha256)) == 32 and file.size)
                assert all(urlsplit(url).scheme in ("http", "https") for url in file.urls)
                assert not any("drive.google" in url for url in file.urls)
