"""`unbraid data`: lists, downloads and checks of datasets, and errors of one line."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.faulty_server import Fault, Server, run_server
from unbraid.cli import data
from unbraid.cli import dispatch as cli
from unbraid.data import DATASETS, load
from unbraid.data.files import dataset_files, download
from unbraid.data.files.catalogue import SOURCES, File, Source
from unbraid.errors import UserError

Capture = pytest.CaptureFixture[str]
Run = Callable[..., tuple[int, str, str]]

CONTENT = bytes(range(97)) * 2 + b"end"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PACKED = zlib.compress(CONTENT)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server with the files of three datasets: with a published sha256, without one, and with one file missing."""
    monkeypatch.setattr(download, "RETRY_SECONDS", 0.0)
    with run_server() as running:
        known = File("known.bin", (running.add("/known.bin", CONTENT),), SHA256, len(CONTENT))
        unknown = File("unknown.z", (running.add("/unknown.z", PACKED),), other_names=("other.z",))
        half = File("rest.txt", size=3)
        for name, files in {"known": (known,), "unknown": (unknown,), "half": (known, half)}.items():
            source = Source(name, "a test", "CC0", "Nobody (2000)", "https://home.invalid", (files,), "Ask for it.")
            monkeypatch.setitem(SOURCES, name, source)
        yield running


def inflate(name: str, root: Path | None) -> str | None:
    """A reader for the dataset `unknown` that rejects damaged files, and the real readers for all others."""
    if name == "unknown" and root:
        try:
            return f"{len(zlib.decompress(next((root / name).glob('*.z')).read_bytes()))} bytes"
        except zlib.error as error:
            raise UserError(f"unknown.z must be complete: {error}") from error
    return repr(load(name, root=root)) if name in DATASETS else None


@pytest.fixture
def run(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command `unbraid data`, with a reader for the dataset `unknown`."""
    monkeypatch.setattr(dataset_files, "describe_dataset", inflate)

    def call(*arguments: Any) -> tuple[int, str, str]:
        capsys.readouterr()
        status = cli.main(["data", *map(str, arguments)])
        return (status, *capsys.readouterr())

    return call


def error_line(result: tuple[int, str, str]) -> str:
    status, _, error = result
    assert status == 2
    assert error.startswith("unbraid: error: ")
    assert error.count("\n") == 1
    return error


def test_list_shows_everything(run: Run, tmp_path: Path) -> None:
    status, text, _ = run("list", "--root", tmp_path)
    assert status == 0
    rows = {line.split()[0]: line for line in text.splitlines() if line}
    for name, source in SOURCES.items():
        assert source.description in rows[name]
        assert source.licence in rows[name]
    assert "  built in  " in rows["dsprites"]
    assert "  can be downloaded  " in rows["shapes3d"]
    assert "267.6 MB" in rows["shapes3d"]
    assert "  download by hand  " in rows["faust"]
    assert str(tmp_path) in text


def test_list_shows_which_files_are_present(run: Run, server: Server, tmp_path: Path) -> None:
    assert re.search(r"^known +a test +can be downloaded +197 bytes +CC0$", run("list", "--root", tmp_path)[1], re.M)
    assert run("get", "known", "--root", tmp_path)[0] == 0
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "known.bin").write_bytes(CONTENT)
    rows = {line.split()[0]: line for line in run("list", "--root", tmp_path)[1].splitlines() if line}
    assert "  present  " in rows["known"]
    assert "download by hand, 1 of 2 files present" in rows["half"]


@pytest.mark.parametrize("name", SOURCES)
def test_list_of_one_dataset_shows_all_details(name: str, run: Run, tmp_path: Path) -> None:
    status, text, _ = run("list", name, "--root", tmp_path)
    assert status == 0
    flat = " ".join(text.split())
    source = SOURCES[name]
    for part in (
        source.description,
        source.licence,
        source.citation,
        source.homepage,
        source.manual_steps,
        source.made_from,
    ):
        assert " ".join(part.split()) in flat
    for files in source.alternatives:
        for file in files if len(files) < 7 else (files[0], files[-1]):
            assert file.name in flat
            assert all(url in flat for url in file.urls)
            assert (file.sha256 or "") in flat


def test_get_downloads_once_and_check_passes(run: Run, server: Server, tmp_path: Path) -> None:
    status, text, _ = run("get", "known", "unknown", "--root", tmp_path)
    assert status == 0
    assert "licence CC0" in text
    assert "Nobody (2000)" in text
    assert f"Downloaded {tmp_path / 'known' / 'known.bin'}" in text
    assert len(server.requests) == 2
    status, text, _ = run("get", "known", "--root", tmp_path)
    assert (status, len(server.requests)) == (0, 2)
    assert f"present: {tmp_path / 'known' / 'known.bin'}" in text
    status, text, _ = run("check", "known", "unknown", "--root", tmp_path)
    assert status == 0
    assert "known.bin: the SHA-256 equals the published one" in text
    assert "unknown.z: the SHA-256 equals the recorded one" in text
    assert "unknown: loaded as 197 bytes" in text
    assert "known: not loaded, because there is no reader for it" in text


def test_the_environment_sets_the_folder(
    run: Run, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNBRAID_DATA", str(tmp_path / "there"))
    assert run("get", "known")[0] == 0
    assert (tmp_path / "there" / "known" / "known.bin").read_bytes() == CONTENT


def test_interrupted_download_never_passes_the_check(run: Run, server: Server, tmp_path: Path) -> None:
    for cut in (0, 1, 100, 196):
        server.add("/known.bin", CONTENT, *[Fault(cut_body=cut, ranges=False)] * download.MAX_FAILURES)
        root = tmp_path / str(cut)
        assert f"closed after {cut} of 197 bytes" in error_line(run("get", "known", "--root", root))
        assert "Some are missing" in error_line(run("check", "known", "--root", root))
        assert run("get", "known", "--root", root)[0] == 0
        assert run("check", "known", "--root", root)[0] == 0


@pytest.mark.parametrize("damage", [CONTENT[:-1], CONTENT + b"!", b"!" + CONTENT[1:], b""])
def test_check_prints_expected_and_actual_values(damage: bytes, run: Run, server: Server, tmp_path: Path) -> None:
    assert run("get", "known", "--root", tmp_path)[0] == 0
    path = tmp_path / "known" / "known.bin"
    path.write_bytes(damage)
    error = error_line(run("check", "known", "--root", tmp_path))
    assert str(path) in error
    if len(damage) == len(CONTENT):
        assert f"{SHA256}. Got {hashlib.sha256(damage).hexdigest()}" in error
    else:
        assert f"must have 197 bytes. Got {len(damage)} instead" in error
        assert "Delete it and download it again" in error_line(run("get", "known", "--root", tmp_path))


def test_the_first_check_stores_the_sha256_only_if_the_data_load(run: Run, server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "unknown"
    folder.mkdir()
    path, record = folder / "other.z", folder / "other.z.sha256"
    path.write_bytes(PACKED[:-5])
    assert "must be complete" in error_line(run("check", "unknown", "--root", tmp_path))
    assert not record.exists()
    path.write_bytes(PACKED)
    assert "recorded for later checks" in run("check", "unknown", "--root", tmp_path)[1]
    assert record.read_text() == f"{hashlib.sha256(PACKED).hexdigest()}  other.z\n"
    assert "the SHA-256 equals the recorded one" in run("check", "unknown", "--root", tmp_path)[1]
    path.write_bytes(zlib.compress(CONTENT, 1))
    assert "must have the recorded SHA-256" in error_line(run("check", "unknown", "--root", tmp_path))


def test_instructions_for_a_download_by_hand(run: Run, server: Server, tmp_path: Path) -> None:
    error = error_line(run("get", "half", "--root", tmp_path))
    assert (tmp_path / "half" / "known.bin").exists()
    assert f"must be in {tmp_path / 'half'}" in error
    assert "put them there: rest.txt (3 bytes). Ask for it. Homepage: https://home.invalid" in error
    (tmp_path / "half" / "rest.txt").write_bytes(b"yes")
    assert run("get", "half", "--root", tmp_path)[0] == 0
    error = error_line(run("get", "faust", "--root", tmp_path))
    for part in ("tr_reg_000.ply to tr_reg_099.ply (100 files)", "MPI-FAUST.zip", "http://faust.is.tue.mpg.de"):
        assert part in error


def test_another_source_by_url(run: Run, server: Server, tmp_path: Path) -> None:
    mirror = server.add("/mirror/known.bin", CONTENT)
    assert run("get", "known", "--url", mirror, "--root", tmp_path / "a")[0] == 0
    assert run("get", "known", "--url", server.url + "/mirror/", "--root", tmp_path / "b")[0] == 0
    odd = server.add("/download?id=7", CONTENT)
    assert run("get", "known", "--url", odd, "--root", tmp_path / "c")[0] == 0
    rest = server.add("/elsewhere/rest.txt", b"yes")
    assert run("get", "half", "--url", rest, "--root", tmp_path / "d")[0] == 0
    assert [path for path, _ in server.requests] == [
        "/mirror/known.bin", "/mirror/known.bin", "/download?id=7", "/known.bin", "/elsewhere/rest.txt"
    ]  # fmt: skip
    assert "must end with / or with the name" in error_line(run("get", "half", "--url", odd, "--root", tmp_path / "e"))
    assert "with one dataset only" in error_line(run("get", "half", "known", "--url", odd))
    assert "only http and https" in error_line(
        run("get", "known", "--url", "file:///known.bin", "--root", tmp_path / "f")
    )


def test_one_failure_does_not_stop_the_others(run: Run, server: Server, tmp_path: Path) -> None:
    server.add("/known.bin", CONTENT, always=Fault(status=404))
    error = error_line(run("get", "known", "unknown", "--root", tmp_path))
    assert "known: Could not download known.bin" in error
    assert (tmp_path / "unknown" / "unknown.z").exists()
    error = error_line(run("check", "known", "unknown", "--root", tmp_path))
    assert "known: The files of known must be in" in error


def test_present_alternative_is_enough(run: Run, server: Server, tmp_path: Path) -> None:
    """If the published .hdf5 file is present, the .npz file is not downloaded."""
    (file,) = SOURCES["dsprites_file"].alternatives[1]
    (tmp_path / "dsprites_file").mkdir()
    path = tmp_path / "dsprites_file" / file.name
    path.touch()
    assert "must have 28,024,106 bytes. Got 0 instead" in error_line(run("get", "dsprites_file", "--root", tmp_path))
    with path.open("wb") as content:
        content.truncate(file.size)
    assert f"present: {path}" in run("get", "dsprites_file", "--root", tmp_path)[1]
    assert "must begin with" in error_line(run("check", "dsprites_file", "--root", tmp_path))


def test_built_in_needs_no_files(run: Run, tmp_path: Path) -> None:
    assert "built in. There is nothing to download" in run("get", "toy", "--root", tmp_path)[1]
    status, text, _ = run("check", "toy", "--root", tmp_path)
    assert status == 0
    assert "toy: loaded as toy: 960 examples" in text
    assert list(tmp_path.iterdir()) == []


def test_help_and_wrong_arguments(run: Run, capsys: Capture, tmp_path: Path) -> None:
    for arguments in ([], ["--help"]):
        assert "usage: unbraid data ACTION" in run(*arguments)[1]
    for action in data.ACTIONS:
        with pytest.raises(SystemExit):
            run(action, "--help")
        assert f"usage: unbraid data {action}" in capsys.readouterr().out
    assert "Did you mean 'list'?" in error_line(run("lst"))
    assert "Did you mean 'cars3d'?" in error_line(run("get", "cars"))
    assert "Did you mean 'cars3d'?" in error_line(run("check", "toy", "cars"))
    assert "Did you mean '--root'?" in error_line(run("list", "--rot", "x"))
    assert "required: NAME" in error_line(run("get"))
    (tmp_path / "file").touch()
    assert "Could not create the folder" in error_line(run("get", "shapes3d", "--root", tmp_path / "file"))
