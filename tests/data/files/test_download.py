"""Downloads produce the complete file or none, whatever the server or the disk does."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.faulty_server import Fault, Server, compose_response, run_server
from unbraid.data.files import download
from unbraid.data.files.catalogue import File
from unbraid.data.files.download import download_file
from unbraid.data.files.integrity import read_sha256_record
from unbraid.errors import UserError
from unbraid.runtime.progress import progress

CONTENT = bytes(range(97)) * 2 + b"end"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
SHORT = CONTENT[90:130]
BIG = os.urandom(1000) * 300


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(download, "RETRY_SECONDS", 0.0)
    with run_server() as running:
        yield running


def published_file(url: str, *urls: str, name: str = "data.bin") -> File:
    return File(name, (url, *urls), SHA256, len(CONTENT))


def check_no_file(file: File, folder: Path) -> None:
    """After a failure there is no file with the final name, and a partial file has the correct first bytes."""
    assert not (folder / file.name).exists()
    for part in folder.glob("*.part"):
        assert CONTENT.startswith(part.read_bytes()) or SHORT.startswith(part.read_bytes())


def check_file(file: File, folder: Path, content: bytes = CONTENT) -> None:
    assert (folder / file.name).read_bytes() == content
    assert {path.name for path in folder.iterdir()} - {".lock", f"{file.name}.sha256"} == {file.name}


VARIANTS = {
    "ranges": Fault(),
    "no ranges": Fault(ranges=False),
    "no etag": Fault(etag=None),
    "weak etag": Fault(etag='W/"one"'),
    "no length": Fault(length=-1),
}


# Without a published sha256, a response without a length is rejected: see test_length_must_be_known.
PAIRS = [(name, published) for name in VARIANTS for published in (True, False) if published or name != "no length"]


@pytest.mark.parametrize(("variant", "published"), PAIRS)
def test_response_cut_at_every_byte(
    variant: str, published: bool, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call is cut in the headers or the body and leaves no file; the second resumes or restarts."""
    monkeypatch.setattr(download, "MAX_FAILURES", 1)
    fault = VARIANTS[variant]
    sha256 = hashlib.sha256(SHORT).hexdigest()
    for cut in range(sum(map(len, compose_response(fault, SHORT, None, None)))):
        folder = tmp_path / str(cut)
        url = server.add("/data.bin", SHORT, dataclasses.replace(fault, cut=cut), always=fault)
        file = File("data.bin", (url,), sha256 if published else None, len(SHORT) if published else None)
        with pytest.raises(UserError, match=r"data\.bin"):
            download_file(file, folder)
        check_no_file(file, folder)
        download_file(file, folder)
        check_file(file, folder, SHORT)
        assert read_sha256_record(folder / "data.bin") == (None if published else sha256)


def test_body_cut_at_every_byte_is_resumed_in_one_call(server: Server, tmp_path: Path) -> None:
    for cut in range(len(CONTENT)):
        server.requests.clear()
        file = published_file(server.add("/data.bin", CONTENT, Fault(cut_body=cut)))
        download_file(file, tmp_path / str(cut))
        check_file(file, tmp_path / str(cut))
        assert server.requests == [("/data.bin", None), ("/data.bin", f"bytes={cut}-" if cut else None)]


def test_repeated_cuts_are_resumed_while_there_is_progress(server: Server, tmp_path: Path) -> None:
    """Short connections are accepted as long as each of them brings a piece."""
    content = BIG * 20
    url = server.add("/data.bin", content, *[Fault(cut_body=(1 << 20) + 5)] * 5)
    assert (
        download_file(File("data.bin", (url,), hashlib.sha256(content).hexdigest()), tmp_path).read_bytes() == content
    )
    assert len(server.requests) == 6


@pytest.mark.parametrize("length", [len(CONTENT) - 40, len(CONTENT) + 40])
def test_wrong_length_is_rejected(length: int, server: Server, tmp_path: Path) -> None:
    url = server.add("/data.bin", CONTENT, always=Fault(length=length, ranges=False))
    for file in (published_file(url), File("data.bin", (url,), SHA256)):
        with pytest.raises(UserError, match=r"data\.bin"):
            download_file(file, tmp_path)
        check_no_file(file, tmp_path)


def test_length_must_be_known(server: Server, tmp_path: Path) -> None:
    url = server.add("/data.bin", CONTENT, always=Fault(length=-1, cut_body=50))
    with pytest.raises(UserError, match="does not state the length"):
        download_file(File("data.bin", (url,)), tmp_path)
    chunked = server.add("/chunked", CONTENT, Fault(chunked=True, cut_body=30), always=Fault(chunked=True, etag=None))
    assert download_file(File("chunked", (chunked,)), tmp_path).read_bytes() == CONTENT
    endless = server.add("/endless", CONTENT * 3, always=Fault(chunked=True))
    with pytest.raises(UserError, match="the server sent more than the 197 bytes that the file has"):
        download_file(published_file(endless, name="endless"), tmp_path)


def test_wrong_sha256_is_rejected(server: Server, tmp_path: Path) -> None:
    other = CONTENT[:-1] + b"!"
    file = published_file(server.add("/data.bin", other))
    with pytest.raises(UserError, match=f"SHA-256 {SHA256}. Got {hashlib.sha256(other).hexdigest()}"):
        download_file(file, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_all_sources_are_tried_and_all_errors_reported(server: Server, tmp_path: Path) -> None:
    wrong = server.add("/wrong", b"x" * len(CONTENT))
    broken = server.add("/broken", CONTENT, always=Fault(cut_body=0))
    dead = "http://127.0.0.1:9/data.bin"  # nothing listens on the discard port
    bad = [server.url + "/missing", wrong, broken, dead, "ftp://127.0.0.1/data.bin", "file:///etc/hostname", "data.bin"]
    with pytest.raises(UserError) as caught:
        download_file(published_file(*bad), tmp_path)
    message = str(caught.value)
    for reason in (f"{bad[0]}: 404", "must have the published SHA-256", "closed after 0 of 197", "refused"):
        assert reason in message
    assert message.count("only http and https") == 3
    assert f"put it at {tmp_path / 'data.bin'}" in message
    assert download_file(published_file(*bad, server.add("/right", CONTENT)), tmp_path).read_bytes() == CONTENT


def test_redirects_are_followed_over_http_only(server: Server, tmp_path: Path) -> None:
    with run_server() as other:
        there = other.add("/there", CONTENT)
        url = server.add("/data.bin", b"", always=Fault(status=302, location=there))
        whole_file = published_file(url)
        assert download_file(whole_file, tmp_path / "a").read_bytes() == CONTENT
        other.add("/there", CONTENT, Fault(cut_body=60))
        download_file(whole_file, tmp_path / "b")
        assert other.requests[-1] == ("/there", "bytes=60-")
    server.add("/data.bin", b"", always=Fault(status=302, location="ftp://127.0.0.1/there"))
    with pytest.raises(UserError, match="redirects to ftp"):
        download_file(whole_file, tmp_path / "c")
    server.add("/data.bin", b"", always=Fault(status=302, location=url))
    with pytest.raises(UserError, match="302"):
        download_file(whole_file, tmp_path / "d")


def test_slow_servers_succeed_and_silent_servers_time_out(server: Server, tmp_path: Path) -> None:
    drip = server.add("/drip", CONTENT, always=Fault(delay=0.02, piece=20))
    assert download_file(published_file(drip), tmp_path / "a", timeout=0.3).read_bytes() == CONTENT
    silent = server.add("/silent", CONTENT, always=Fault(silence=0.5))
    with pytest.raises(UserError, match="no response in time"):
        download_file(published_file(silent), tmp_path / "b", timeout=0.1)


def test_bytes_of_two_versions_are_never_combined(server: Server, tmp_path: Path) -> None:
    """Both versions have the same length. If a server ignores If-Range, the sha256 detects the difference."""
    old = bytes(len(CONTENT))
    cut = Fault(cut_body=100, body=old, etag='"old"')
    url = server.add("/data.bin", CONTENT, cut)
    assert download_file(File("data.bin", (url,)), tmp_path / "a").read_bytes() == CONTENT
    file = published_file(server.add("/data.bin", CONTENT, cut, always=Fault(if_range=False)))
    assert download_file(file, tmp_path / "b").read_bytes() == CONTENT
    for sha256 in (SHA256, None):
        url = server.add("/data.bin", CONTENT, Fault(cut_body=100), Fault(offset=7))
        assert download_file(File("data.bin", (url,), sha256), tmp_path / f"c{sha256}").read_bytes() == CONTENT
    longer = Fault(cut_body=100, body=old * 2, etag='"one"')
    url = server.add("/data.bin", CONTENT, longer)
    assert download_file(File("data.bin", (url,)), tmp_path / "d").read_bytes() == CONTENT
    shorter = server.add("/data.bin", CONTENT, Fault(cut_body=250, body=old * 2))
    assert download_file(File("data.bin", (shorter,)), tmp_path / "e").read_bytes() == CONTENT


def test_partial_file_of_unknown_origin_is_not_resumed(server: Server, tmp_path: Path) -> None:
    for origin in (None, "", "[]", '{"url": 1}'):
        (tmp_path / "data.bin.part").write_bytes(b"not ours")
        if origin is not None:
            (tmp_path / "data.bin.part.json").write_text(origin)
        file = File("data.bin", (server.add("/data.bin", CONTENT),))
        check_file(file, download_file(file, tmp_path).parent)
        assert server.requests[-1] == ("/data.bin", None)
        (tmp_path / "data.bin").unlink()


def test_second_source_resumes_only_with_a_published_sha256(server: Server, tmp_path: Path) -> None:
    first = server.add("/first", CONTENT, Fault(cut_body=90), always=Fault(status=500))
    for sha256, asked in ((SHA256, "bytes=90-"), (None, None)):
        server.add("/first", CONTENT, Fault(cut_body=90), always=Fault(status=500))
        second = server.add("/second", CONTENT)
        download_file(File("data.bin", (first, second), sha256), tmp_path / str(sha256))
        assert server.requests[-1] == ("/second", asked)


def test_complete_partial_file_needs_no_request(server: Server, tmp_path: Path) -> None:
    url = server.add("/data.bin", CONTENT, Fault(cut_body=len(CONTENT) - 1))
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        patch.setattr(download, "MAX_FAILURES", 1)
        with pytest.raises(UserError, match="closed after 196 of 197"):
            download_file(published_file(url), tmp_path)
    with (tmp_path / "data.bin.part").open("ab") as part:
        part.write(CONTENT[-1:])
    server.requests.clear()
    assert download_file(published_file(url), tmp_path).read_bytes() == CONTENT
    assert server.requests == []


def test_full_disk_is_reported_before_writing(server: Server, tmp_path: Path) -> None:
    url = server.add("/data.bin", CONTENT, always=Fault(length=10**18))
    with pytest.raises(
        UserError, match=r"must have 1,000,000,\d{3},\d{3},\d{3},\d{3} bytes free .* Got [\d,]+ instead"
    ):
        download_file(File("data.bin", (url,)), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_proxy_from_the_environment_is_used(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.delenv("no_proxy", raising=False)
    server.add("http://data.invalid/data.bin", CONTENT)
    assert download_file(published_file("http://data.invalid/data.bin"), tmp_path).read_bytes() == CONTENT


def test_progress_is_in_megabytes_with_eta(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unbraid.runtime.progress.QUIET_SECONDS", 0.0)
    content = BIG * 10
    url = server.add("/data.bin", content, Fault(delay=0.01, piece=100_000))
    download_file(File("data.bin", (url,)), tmp_path, progress)
    assert "data.bin (MB): 0/3 (" in capsys.readouterr().err


@pytest.mark.parametrize("length", [-1, None])
def test_no_more_than_the_published_size_is_stored(length: int | None, server: Server, tmp_path: Path) -> None:
    """A server that names no length and never stops sending cannot fill the disk."""
    big = bytes(20 << 20)
    fault = Fault(chunked=True) if length is None else Fault(length=length)
    url = server.add("/big", big, always=fault)
    largest = 0

    def watch(path: Path, offset: int, total: int | None) -> None:
        nonlocal largest
        largest = max(largest, *(file.stat().st_size for file in tmp_path.iterdir()))

    written = download._write_all
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(download, "_write_all", lambda file, piece: (written(file, piece), watch(tmp_path, 0, None))[0])
        with pytest.raises(UserError, match="more than the 1,000 bytes"):
            download_file(File("big", (url,), size=1000, sha256="0" * 64), tmp_path)
    assert largest <= 1000
    assert not (tmp_path / "big.part").exists()


def test_a_download_of_unknown_length_leaves_some_space_free(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.add("/big", bytes(5 << 20), always=Fault(chunked=True))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(UserError, match="bytes free"):
        download_file(File("big", (url,), sha256="0" * 64), tmp_path)
