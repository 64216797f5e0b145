"""Files arrive whole or not at all, whatever the server, the disk or the neighbours do."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.faulty_server import Fault, Server, compose, serving
from unbraid.data.files import fetch as fetching
from unbraid.data.files.locate import File, fetch, remembered
from unbraid.errors import UserError
from unbraid.runtime.progress import progress

CONTENT = bytes(range(97)) * 2 + b"end"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
SHORT = CONTENT[90:130]
BIG = os.urandom(1000) * 300


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(fetching, "PAUSE", 0.0)
    with serving() as running:
        yield running


def known(url: str, *urls: str, name: str = "data.bin") -> File:
    return File(name, (url, *urls), SHA256, len(CONTENT))


def nothing_passes(file: File, folder: Path) -> None:
    """Whatever is left after a failure has not got the name, and what is kept to go on with is right so far."""
    assert not (folder / file.name).exists()
    for left in folder.glob("*.part"):
        assert CONTENT.startswith(left.read_bytes()) or SHORT.startswith(left.read_bytes())


def whole(file: File, folder: Path, content: bytes = CONTENT) -> None:
    assert (folder / file.name).read_bytes() == content
    assert {path.name for path in folder.iterdir()} - {".lock", f"{file.name}.sha256"} == {file.name}


VARIANTS = {
    "ranges": Fault(),
    "no ranges": Fault(ranges=False),
    "no etag": Fault(etag=None),
    "weak etag": Fault(etag='W/"one"'),
    "no length": Fault(length=-1),
}


# Without a published sha256 an answer without a length is refused: see test_length_must_be_known.
PAIRS = [(name, published) for name in VARIANTS for published in (True, False) if published or name != "no length"]


@pytest.mark.parametrize(("variant", "published"), PAIRS)
def test_cut_at_every_byte_of_the_answer(
    variant: str, published: bool, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headers and body: the first call is cut and leaves no file, the second resumes or restarts."""
    monkeypatch.setattr(fetching, "TRIES", 1)
    fault = VARIANTS[variant]
    sha256 = hashlib.sha256(SHORT).hexdigest()
    for cut in range(sum(map(len, compose(fault, SHORT, None, None)))):
        folder = tmp_path / str(cut)
        url = server.add("/data.bin", SHORT, dataclasses.replace(fault, cut=cut), always=fault)
        file = File("data.bin", (url,), sha256 if published else None, len(SHORT) if published else None)
        with pytest.raises(UserError, match=r"data\.bin"):
            fetch(file, folder)
        nothing_passes(file, folder)
        fetch(file, folder)
        whole(file, folder, SHORT)
        assert remembered(folder / "data.bin") == (None if published else sha256)


def test_cut_at_every_byte_of_the_body_is_resumed_in_one_call(server: Server, tmp_path: Path) -> None:
    for cut in range(len(CONTENT)):
        server.requests.clear()
        file = known(server.add("/data.bin", CONTENT, Fault(cut_body=cut)))
        fetch(file, tmp_path / str(cut))
        whole(file, tmp_path / str(cut))
        assert server.requests == [("/data.bin", None), ("/data.bin", f"bytes={cut}-" if cut else None)]


def test_cut_again_and_again(server: Server, tmp_path: Path) -> None:
    """A connection that never lives long is borne as long as each brings a piece."""
    content = BIG * 20
    url = server.add("/data.bin", content, *[Fault(cut_body=(1 << 20) + 5)] * 5)
    assert fetch(File("data.bin", (url,), hashlib.sha256(content).hexdigest()), tmp_path).read_bytes() == content
    assert len(server.requests) == 6


@pytest.mark.parametrize("length", [len(CONTENT) - 40, len(CONTENT) + 40])
def test_wrong_length(length: int, server: Server, tmp_path: Path) -> None:
    url = server.add("/data.bin", CONTENT, always=Fault(length=length, ranges=False))
    for file in (known(url), File("data.bin", (url,), SHA256)):
        with pytest.raises(UserError, match=r"data\.bin"):
            fetch(file, tmp_path)
        nothing_passes(file, tmp_path)


def test_length_must_be_known(server: Server, tmp_path: Path) -> None:
    url = server.add("/data.bin", CONTENT, always=Fault(length=-1, cut_body=50))
    with pytest.raises(UserError, match="does not say how long"):
        fetch(File("data.bin", (url,)), tmp_path)
    chunked = server.add("/chunked", CONTENT, Fault(chunked=True, cut_body=30), always=Fault(chunked=True, etag=None))
    assert fetch(File("chunked", (chunked,)), tmp_path).read_bytes() == CONTENT
    endless = server.add("/endless", CONTENT * 3, always=Fault(chunked=True))
    with pytest.raises(UserError, match="it gave 591 bytes, not the 197"):
        fetch(known(endless, name="endless"), tmp_path)


def test_wrong_hash(server: Server, tmp_path: Path) -> None:
    other = CONTENT[:-1] + b"!"
    file = known(server.add("/data.bin", other))
    with pytest.raises(UserError, match=f"sha256 {SHA256}. Got {hashlib.sha256(other).hexdigest()}"):
        fetch(file, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_mirrors_in_turn_and_all_reasons(server: Server, tmp_path: Path) -> None:
    wrong = server.add("/wrong", b"x" * len(CONTENT))
    broken = server.add("/broken", CONTENT, always=Fault(cut_body=0))
    dead = "http://127.0.0.1:9/data.bin"  # the discard port: nothing listens
    bad = [server.url + "/missing", wrong, broken, dead, "ftp://127.0.0.1/data.bin", "file:///etc/hostname", "data.bin"]
    with pytest.raises(UserError) as caught:
        fetch(known(*bad), tmp_path)
    message = str(caught.value)
    for reason in (f"{bad[0]}: 404", "must have the published sha256", "cut after 0 of 197", "refused"):
        assert reason in message
    assert message.count("only http and https") == 3
    assert f"put it at {tmp_path / 'data.bin'}" in message
    assert fetch(known(*bad, server.add("/right", CONTENT)), tmp_path).read_bytes() == CONTENT


def test_redirects(server: Server, tmp_path: Path) -> None:
    with serving() as other:
        there = other.add("/there", CONTENT)
        url = server.add("/data.bin", b"", always=Fault(status=302, location=there))
        whole_file = known(url)
        assert fetch(whole_file, tmp_path / "a").read_bytes() == CONTENT
        other.add("/there", CONTENT, Fault(cut_body=60))
        fetch(whole_file, tmp_path / "b")
        assert other.requests[-1] == ("/there", "bytes=60-")
    server.add("/data.bin", b"", always=Fault(status=302, location="ftp://127.0.0.1/there"))
    with pytest.raises(UserError, match="leads to ftp"):
        fetch(whole_file, tmp_path / "c")
    server.add("/data.bin", b"", always=Fault(status=302, location=url))
    with pytest.raises(UserError, match="302"):
        fetch(whole_file, tmp_path / "d")


def test_slow_server(server: Server, tmp_path: Path) -> None:
    drip = server.add("/drip", CONTENT, always=Fault(delay=0.02, piece=20))
    assert fetch(known(drip), tmp_path / "a", timeout=0.3).read_bytes() == CONTENT
    silent = server.add("/silent", CONTENT, always=Fault(silence=0.5))
    with pytest.raises(UserError, match="no answer in time"):
        fetch(known(silent), tmp_path / "b", timeout=0.1)


def test_another_version_is_never_mixed_in(server: Server, tmp_path: Path) -> None:
    """Same length, other content: If-Range asks for the whole; a server that ignores it is caught by the sha256."""
    old = bytes(len(CONTENT))
    cut = Fault(cut_body=100, body=old, etag='"old"')
    url = server.add("/data.bin", CONTENT, cut)
    assert fetch(File("data.bin", (url,)), tmp_path / "a").read_bytes() == CONTENT
    file = known(server.add("/data.bin", CONTENT, cut, always=Fault(if_range=False)))
    assert fetch(file, tmp_path / "b").read_bytes() == CONTENT
    for sha256 in (SHA256, None):
        url = server.add("/data.bin", CONTENT, Fault(cut_body=100), Fault(offset=7))
        assert fetch(File("data.bin", (url,), sha256), tmp_path / f"c{sha256}").read_bytes() == CONTENT
    longer = Fault(cut_body=100, body=old * 2, etag='"one"')
    url = server.add("/data.bin", CONTENT, longer)
    assert fetch(File("data.bin", (url,)), tmp_path / "d").read_bytes() == CONTENT
    shorter = server.add("/data.bin", CONTENT, Fault(cut_body=250, body=old * 2))
    assert fetch(File("data.bin", (shorter,)), tmp_path / "e").read_bytes() == CONTENT


def test_part_of_unknown_origin_is_not_built_on(server: Server, tmp_path: Path) -> None:
    for origin in (None, "", "[]", '{"url": 1}'):
        (tmp_path / "data.bin.part").write_bytes(b"not ours")
        if origin is not None:
            (tmp_path / "data.bin.part.json").write_text(origin)
        file = File("data.bin", (server.add("/data.bin", CONTENT),))
        whole(file, fetch(file, tmp_path).parent)
        assert server.requests[-1] == ("/data.bin", None)
        (tmp_path / "data.bin").unlink()


def test_second_mirror_goes_on_only_if_the_hash_can_tell(server: Server, tmp_path: Path) -> None:
    first = server.add("/first", CONTENT, Fault(cut_body=90), always=Fault(status=500))
    for sha256, asked in ((SHA256, "bytes=90-"), (None, None)):
        server.add("/first", CONTENT, Fault(cut_body=90), always=Fault(status=500))
        second = server.add("/second", CONTENT)
        fetch(File("data.bin", (first, second), sha256), tmp_path / str(sha256))
        assert server.requests[-1] == ("/second", asked)


def test_killed_before_the_name_was_given(server: Server, tmp_path: Path) -> None:
    url = server.add("/data.bin", CONTENT, Fault(cut_body=len(CONTENT) - 1))
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        patch.setattr(fetching, "TRIES", 1)
        with pytest.raises(UserError, match="cut after 196 of 197"):
            fetch(known(url), tmp_path)
    with (tmp_path / "data.bin.part").open("ab") as part:
        part.write(CONTENT[-1:])
    server.requests.clear()
    assert fetch(known(url), tmp_path).read_bytes() == CONTENT
    assert server.requests == []


def test_no_room_is_said_before_anything_is_written(server: Server, tmp_path: Path) -> None:
    url = server.add("/data.bin", CONTENT, always=Fault(length=10**18))
    with pytest.raises(UserError, match=r"must have 1,000,000,\d{3},\d{3},\d{3},\d{3} bytes free .* It has"):
        fetch(File("data.bin", (url,)), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_proxy_of_the_environment_is_used(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.delenv("no_proxy", raising=False)
    server.add("http://data.invalid/data.bin", CONTENT)
    assert fetch(known("http://data.invalid/data.bin"), tmp_path).read_bytes() == CONTENT


def test_progress_is_in_megabytes_with_eta(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unbraid.runtime.progress.PATIENCE", 0.0)
    content = BIG * 10
    url = server.add("/data.bin", content, Fault(delay=0.01, piece=100_000))
    fetch(File("data.bin", (url,)), tmp_path, progress)
    assert "data.bin (MB): 0/3 (" in capsys.readouterr().err
