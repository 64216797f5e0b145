"""A table is converted once, is complete or absent, and is memory-mapped."""

from __future__ import annotations

import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.lib import format as npy

from support.formats import random_pixels
from unbraid.data.files import convert
from unbraid.data.files.convert import ByteArray, cached_table
from unbraid.errors import UserError

SHAPE = (10, 3, 4)
TABLE = random_pixels(*SHAPE)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(b"published")
    return path


def two_blocks() -> Iterator[ByteArray]:
    yield TABLE[:4]
    yield TABLE[4:]


def fail_if_called() -> Iterator[ByteArray]:
    raise AssertionError("converted a second time")


def cached_files(store: Path) -> list[str]:
    return sorted(path.name for path in store.iterdir() if not path.name.endswith(".lock"))


def test_table_is_converted_once_with_progress(store: Path, source: Path) -> None:
    reported: list[float] = []
    table = cached_table("set", [source], SHAPE, two_blocks, reported.append)
    assert torch.equal(table, torch.from_numpy(TABLE))
    assert reported == [0.4, 1.0, 1.0]
    assert torch.equal(cached_table("set", [source], SHAPE, fail_if_called), table)
    assert len(cached_files(store)) == 1


def test_table_is_a_valid_npy_file(store: Path, source: Path) -> None:
    cached_table("set", [source], SHAPE, two_blocks)
    assert np.array_equal(np.load(store / cached_files(store)[0]), TABLE)


def test_writing_to_the_table_does_not_change_the_file(store: Path, source: Path) -> None:
    cached_table("set", [source], SHAPE, two_blocks).zero_()
    assert torch.equal(cached_table("set", [source], SHAPE, fail_if_called), torch.from_numpy(TABLE))


def test_table_larger_than_memory_is_mapped(store: Path) -> None:
    """The file is sparse: its size is four times the memory, but it uses no space on disk."""
    rows = 4 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4096
    store.mkdir()
    with (store / "large.npy").open("wb") as file:
        npy.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": (rows, 4096)})
        file.truncate(file.tell() + rows * 4096)
    table = convert._map_table(store / "large.npy", (rows, 4096))
    assert table.shape == (rows, 4096)
    assert not table[rows - 1].any()


CHANGES: dict[str, Callable[[Path], object]] = {
    "longer": lambda path: path.write_bytes(b"published again"),
    "newer": lambda path: os.utime(path, ns=(0, 0)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_source_is_converted_again_and_the_old_table_deleted(store: Path, source: Path, change: str) -> None:
    cached_table("set", [source], SHAPE, two_blocks)
    before = cached_files(store)
    CHANGES[change](source)
    table = cached_table("set", [source], SHAPE, lambda: iter([255 - TABLE]))
    assert torch.equal(table, torch.from_numpy(255 - TABLE))
    assert len(cached_files(store)) == 1
    assert cached_files(store) != before


def test_copy_of_a_source_has_its_own_table(store: Path, source: Path) -> None:
    cached_table("set", [source], SHAPE, two_blocks)
    copy = Path(shutil.copy2(source, source.with_name("copy")))
    cached_table("set", [copy], SHAPE, lambda: iter([255 - TABLE]))
    assert torch.equal(cached_table("set", [source], SHAPE, fail_if_called), torch.from_numpy(TABLE))


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut": lambda content: content[:-1],
    "one more byte": lambda content: content + b"\0",
    "no header": lambda content: bytes(len(content)),
    "other shape": lambda content: content.replace(b"(10, 3, 4)", b"(10, 4, 3)"),
    "other type": lambda content: content.replace(b"|u1", b"|i1"),
    "open bracket": lambda content: content.replace(b"(10, 3, 4)", b"(10, 3, 4,"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_table_is_converted_again(store: Path, source: Path, damage: str) -> None:
    cached_table("set", [source], SHAPE, two_blocks)
    file = store / cached_files(store)[0]
    file.write_bytes(DAMAGE[damage](file.read_bytes()))
    assert torch.equal(cached_table("set", [source], SHAPE, two_blocks), torch.from_numpy(TABLE))


def raise_after_one_block() -> Iterator[ByteArray]:
    yield TABLE[:4]
    raise UserError("damaged")


BROKEN: dict[str, tuple[Callable[[], Iterator[ByteArray]], str]] = {
    "damaged source": (raise_after_one_block, "damaged"),
    "too few rows": (lambda: iter([TABLE[:9]]), "10 rows in total. Got 9"),
    "too many rows": (lambda: iter([TABLE, TABLE]), "10 rows in total. Got 20"),
    "other rows": (lambda: iter([TABLE[:, 1:]]), r"Got uint8 \(10, 2, 4\)"),
    "not bytes": (lambda: iter([TABLE.astype(np.int16)]), r"Got int16"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_failed_conversion_leaves_no_file(store: Path, source: Path, case: str) -> None:
    blocks, message = BROKEN[case]
    with pytest.raises((UserError, ValueError), match=message):
        cached_table("set", [source], SHAPE, blocks)
    assert cached_files(store) == []


def test_full_disk_leaves_no_file(store: Path, source: Path) -> None:
    """A limit on the file size makes the same writes fail as a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, before[1]))
    try:
        with pytest.raises(UserError, match=r"Could not write to .*cache: .*set UNBRAID_CACHE"):
            cached_table("set", [source], (1 << 13, 1), lambda: iter([np.zeros((1 << 13, 1), np.uint8)]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert cached_files(store) == []


def test_missing_disk_space_is_reported_before_reading(store: Path, source: Path) -> None:
    rows = shutil.disk_usage(source.parent).total + 1
    with pytest.raises(UserError, match=r"must have [\d,]+ MB of free space .* Got [\d,]+ MB instead.*UNBRAID_CACHE"):
        cached_table("set", [source], (rows, 1), fail_if_called)


def test_cache_folder_that_cannot_be_created_is_reported(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNBRAID_CACHE", str(source / "below"))
    with pytest.raises(UserError, match="Could not create the folder"):
        cached_table("set", [source], SHAPE, fail_if_called)


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from unbraid.data.files.convert import cached_table

def blocks():
    yield np.zeros((4, 3, 4), np.uint8)
    os.kill(os.getpid(), signal.SIGKILL)

cached_table("set", [Path(sys.argv[1])], (10, 3, 4), blocks)
"""


def test_killed_conversion_does_not_count_as_complete(store: Path, source: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(source)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert all(name.endswith(".tmp") for name in cached_files(store))
    assert torch.equal(cached_table("set", [source], SHAPE, two_blocks), torch.from_numpy(TABLE))
    assert len(cached_files(store)) == 1


def test_second_conversion_waits_and_uses_the_first_table(store: Path, source: Path) -> None:
    begun, go = threading.Event(), threading.Event()

    def slow() -> Iterator[ByteArray]:
        begun.set()
        assert go.wait(30)
        yield TABLE

    tables: list[torch.Tensor] = []
    first = threading.Thread(target=lambda: tables.append(cached_table("set", [source], SHAPE, slow)))
    second = threading.Thread(target=lambda: tables.append(cached_table("set", [source], SHAPE, fail_if_called)))
    first.start()
    assert begun.wait(30)
    second.start()
    second.join(0.3)
    assert second.is_alive()
    go.set()
    for thread in (first, second):
        thread.join(30)
    assert len(tables) == 2
    assert torch.equal(tables[0], tables[1])
    assert math.prod(tables[0].shape) == TABLE.size
