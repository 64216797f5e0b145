"""Downloads in separate processes that are killed, interrupted, run twice, out of disk space or without permission."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.faulty_server import Fault, Server, run_server
from unbraid.data.files.catalogue import File
from unbraid.data.files.download import download_file

CONTENT = bytes(range(97)) * 2 + b"end"
BIG = os.urandom(1000) * 300

# Downloads URL to FOLDER as a file with the given sha256 ("-" for none).
SCRIPT = """
import sys
from pathlib import Path
from unbraid.cli import main
from unbraid.data.files import download
from unbraid.data.files.catalogue import File
from unbraid.cli import dispatch
url, folder, sha256 = sys.argv[1:]
download.RETRY_SECONDS = 0.01
def action(self, name, arguments):
    download.download_file(File("data.bin", (url,), None if sha256 == "-" else sha256), Path(folder))
dispatch.Command.run = action
dispatch.COMMANDS["download"] = dispatch.Command("download", "")
{before}
sys.exit(main(["download"]))
"""


@pytest.fixture
def server() -> Iterator[Server]:
    with run_server() as running:
        yield running


def start_download(url: str, folder: Path, sha256: str, before: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-B", "-c", SCRIPT.format(before=before), url, str(folder), sha256]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # background jobs ignore it
    )  # fmt: skip


def test_killed_download_is_resumed(server: Server, tmp_path: Path) -> None:
    sha256 = hashlib.sha256(BIG).hexdigest()
    url = server.add("/data.bin", BIG, Fault(delay=0.01, piece=1000))
    part = tmp_path / "data.bin.part"
    running = start_download(url, tmp_path, sha256)
    while not (part.exists() and part.stat().st_size > 20_000):
        assert running.poll() is None
        time.sleep(0.005)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    assert not (tmp_path / "data.bin").exists()
    downloaded = part.stat().st_size
    assert downloaded < len(BIG)
    file = File("data.bin", (url,), sha256)
    assert download_file(file, tmp_path).read_bytes() == BIG
    assert server.requests[-1] == ("/data.bin", f"bytes={downloaded}-")
    assert {path.name for path in tmp_path.iterdir()} == {".lock", "data.bin"}


def test_interrupted_download_keeps_the_partial_file(server: Server, tmp_path: Path) -> None:
    url = server.add("/data.bin", BIG, Fault(delay=0.2, piece=1000))
    running = start_download(url, tmp_path, "-")
    while not (tmp_path / "data.bin.part").exists():
        time.sleep(0.005)
    running.send_signal(signal.SIGINT)
    assert "stopped" in running.communicate()[1]
    assert running.returncode == 130
    assert {path.name for path in tmp_path.iterdir()} == {".lock", "data.bin.part", "data.bin.part.json"}


def test_two_processes_download_once(server: Server, tmp_path: Path) -> None:
    """The server delays the first process until the second has printed that it waits."""
    gate = threading.Event()
    url = server.add("/data.bin", BIG, Fault(gate=gate))
    first = start_download(url, tmp_path, "-")
    while not server.requests:
        time.sleep(0.005)
    second = start_download(url, tmp_path, "-")
    assert second.stderr is not None
    assert "Waiting for it" in second.stderr.readline()
    gate.set()
    assert [running.communicate()[1] for running in (first, second)] == ["", ""]
    assert [first.returncode, second.returncode] == [0, 0]
    assert server.requests == [("/data.bin", None)]
    assert (tmp_path / "data.bin").read_bytes() == BIG


def test_full_disk_prints_one_line_and_is_resumed(server: Server, tmp_path: Path) -> None:
    """The process has a real limit on the size of files."""
    url = server.add("/data.bin", BIG)
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))"
    running = start_download(url, tmp_path, "-", limit)
    error = running.communicate()[1]
    assert running.returncode == 2
    assert error.startswith("unbraid: error: Could not write")
    assert error.count("\n") == 1
    assert (tmp_path / "data.bin.part").read_bytes() == BIG[:50_000]
    assert download_file(File("data.bin", (url,)), tmp_path).read_bytes() == BIG
    assert server.requests[-1] == ("/data.bin", "bytes=50000-")
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_read_only_folder_prints_one_line(server: Server) -> None:
    """The process runs as an ordinary user, because root may write anywhere."""
    url = server.add("/data.bin", CONTENT)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "read only"
        folder.mkdir()
        folder.chmod(0o555)
        Path(temporary).chmod(0o755)
        before = "import os; os.getuid() == 0 and os.setuid(65534)"
        running = start_download(url, folder, "-", before)
        error = running.communicate()[1]
        assert running.returncode == 2
        assert str(folder) in error
        assert "Permission denied" in error
        assert error.count("\n") == 1
        assert list(folder.iterdir()) == []
    assert server.requests == []
