"""Writing files: what a path names is written, never replaced by something else, and nothing is left half-written."""

from __future__ import annotations

import errno
import multiprocessing
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from support.full_disk import file_size_limit
from unbraid.errors import UserError
from unbraid.runtime.files import remove_temporary_files, write_atomic


def names(folder: Path) -> list[str]:
    """The names of all files in a folder."""
    return sorted(path.name for path in folder.iterdir())


def test_a_plain_file_is_replaced_and_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_bytes(b"old")
    path.chmod(0o600)
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names(tmp_path) == ["scores.csv"]


@pytest.mark.parametrize("present", [True, False])
def test_a_symbolic_link_stays_and_its_file_is_written(tmp_path: Path, present: bool) -> None:
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "real.csv"
    if present:
        target.write_bytes(b"old")
    link = tmp_path / "scores.csv"
    link.symlink_to(Path("elsewhere") / "real.csv")
    write_atomic(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert names(target.parent) == ["real.csv"]


def test_links_that_form_a_loop_are_refused(tmp_path: Path) -> None:
    link = tmp_path / "loop"
    link.symlink_to(link)
    with pytest.raises(UserError, match=r"Could not write .*unchanged\. Choose another folder"):
        write_atomic(link, b"new")
    assert link.is_symlink()


def test_a_device_is_written_to(tmp_path: Path) -> None:
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    write_atomic(link, b"new")
    assert link.is_symlink()
    write_atomic(Path("/dev/null"), b"new")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_full_device_is_reported() -> None:
    with pytest.raises(UserError, match=r"Could not write /dev/full: No space left on device\..* Free some space"):
        write_atomic(Path("/dev/full"), b"new")


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    opened = threading.Event()

    def read() -> None:
        with os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            opened.set()
            os.set_blocking(file.fileno(), True)
            received.append(file.read())

    content = bytes(200_000)  # more than the buffer of a pipe
    keep_open = os.open(pipe, os.O_RDWR)  # so that the reader does not see an end before the first byte
    reader = threading.Thread(target=read)
    reader.start()
    assert opened.wait(5)
    write_atomic(pipe, content)
    os.close(keep_open)
    reader.join(5)
    assert received == [content]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_pipe_that_nothing_reads_is_an_error_and_does_not_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="Could not write"):
        write_atomic(tmp_path / "pipe", b"new")


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1"])
def test_standard_output_that_is_a_file_keeps_all_that_is_written(name: str, tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from unbraid.runtime.files import write_atomic; print('before'); "
        f"write_atomic(Path({name!r}), b'content\\n'); print('after')"
    )
    with (tmp_path / "out.txt").open("wb") as file:
        subprocess.run([sys.executable, "-c", program], stdout=file, check=True)
    assert (tmp_path / "out.txt").read_text() == "before\ncontent\nafter\n"
    piped = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, text=True)
    assert piped.stdout == "before\ncontent\nafter\n"


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Is a directory"):
        write_atomic(tmp_path, b"new")


def test_a_full_disk_leaves_the_old_file_and_no_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_bytes(b"old")
    with file_size_limit(1000), pytest.raises(UserError, match=f"Could not write.*{os.strerror(errno.EFBIG)}"):
        write_atomic(path, bytes(2000))
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["scores.csv"]


def test_an_interrupted_write_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(tmp_path / "scores.csv", b"new")
    assert names(tmp_path) == []


def test_the_longest_possible_name_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"


def test_threads_of_one_process_can_write_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    contents = [bytes([i]) * 100_000 for i in range(8)]
    threads = [threading.Thread(target=write_atomic, args=(path, content)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in contents
    assert names(tmp_path) == ["scores.csv"]


def _hold_temporary_file(folder: Path, ready: multiprocessing.synchronize.Event) -> None:
    from unbraid.runtime import files

    with files._open_temporary(folder / ".scores.csv.1.tmp"):
        ready.set()
        threading.Event().wait(30)


def test_only_temporary_files_that_nothing_writes_are_removed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    writer = context.Process(target=_hold_temporary_file, args=(tmp_path, ready))
    writer.start()
    try:
        assert ready.wait(20)
        (tmp_path / ".left.csv.2.tmp").write_bytes(b"half")
        remove_temporary_files(tmp_path)
        assert names(tmp_path) == [".scores.csv.1.tmp"]
    finally:
        writer.kill()
        writer.join()
    remove_temporary_files(tmp_path)
    assert names(tmp_path) == []


def test_a_file_is_written_while_another_process_removes_temporary_files(tmp_path: Path) -> None:
    stop = threading.Event()

    def remove() -> None:
        while not stop.is_set():
            remove_temporary_files(tmp_path)

    thread = threading.Thread(target=remove)
    thread.start()
    try:
        for i in range(200):
            write_atomic(tmp_path / "scores.csv", str(i).encode())
    finally:
        stop.set()
        thread.join()
    assert (tmp_path / "scores.csv").read_bytes() == b"199"


def test_writing_a_file_removes_what_killed_processes_left_of_it(tmp_path: Path) -> None:
    for name in (".a[1].csv.7.8.tmp", ".other.csv.7.8.tmp"):
        (tmp_path / name).write_bytes(b"half")
    write_atomic(tmp_path / "a[1].csv", b"whole")
    assert names(tmp_path) == [".other.csv.7.8.tmp", "a[1].csv"]
