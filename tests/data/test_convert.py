"""A conversion happens once, is whole or absent, and its table is mapped rather than read."""

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

from support.formats import pixels
from unbraid.data.files import convert
from unbraid.data.files.convert import Bytes, converted
from unbraid.errors import UserError

SHAPE = (10, 3, 4)
TABLE = pixels(*SHAPE)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(b"published")
    return path


def halves() -> Iterator[Bytes]:
    yield TABLE[:4]
    yield TABLE[4:]


def never() -> Iterator[Bytes]:
    raise AssertionError("converted a second time")


def kept(store: Path) -> list[str]:
    return sorted(path.name for path in store.iterdir() if not path.name.endswith(".lock"))


def test_the_table_is_made_once_and_progress_told(store: Path, source: Path) -> None:
    told: list[float] = []
    table = converted("set", [source], SHAPE, halves, told.append)
    assert torch.equal(table, torch.from_numpy(TABLE))
    assert told == [0.4, 1.0, 1.0]
    assert torch.equal(converted("set", [source], SHAPE, never), table)
    assert len(kept(store)) == 1


def test_the_table_is_an_npy_that_numpy_reads(store: Path, source: Path) -> None:
    converted("set", [source], SHAPE, halves)
    assert np.array_equal(np.load(store / kept(store)[0]), TABLE)


def test_writing_to_the_table_leaves_the_file(store: Path, source: Path) -> None:
    converted("set", [source], SHAPE, halves).zero_()
    assert torch.equal(converted("set", [source], SHAPE, never), torch.from_numpy(TABLE))


def test_a_table_larger_than_the_memory_is_mapped(store: Path) -> None:
    """Sparse: four times the memory on the disk's books, and none of it read."""
    rows = 4 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4096
    store.mkdir()
    with (store / "large.npy").open("wb") as file:
        npy.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": (rows, 4096)})
        file.truncate(file.tell() + rows * 4096)
    table = convert._mapped(store / "large.npy", (rows, 4096))
    assert table.shape == (rows, 4096)
    assert not table[rows - 1].any()


CHANGES: dict[str, Callable[[Path], object]] = {
    "longer": lambda path: path.write_bytes(b"published again"),
    "newer": lambda path: os.utime(path, ns=(0, 0)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_source_is_converted_anew_and_its_former_table_removed(
    store: Path, source: Path, change: str
) -> None:
    converted("set", [source], SHAPE, halves)
    before = kept(store)
    CHANGES[change](source)
    table = converted("set", [source], SHAPE, lambda: iter([255 - TABLE]))
    assert torch.equal(table, torch.from_numpy(255 - TABLE))
    assert len(kept(store)) == 1
    assert kept(store) != before


def test_another_place_has_a_table_of_its_own(store: Path, source: Path) -> None:
    converted("set", [source], SHAPE, halves)
    copy = Path(shutil.copy2(source, source.with_name("copy")))
    converted("set", [copy], SHAPE, lambda: iter([255 - TABLE]))
    assert torch.equal(converted("set", [source], SHAPE, never), torch.from_numpy(TABLE))


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut": lambda content: content[:-1],
    "a byte more": lambda content: content + b"\0",
    "no header": lambda content: bytes(len(content)),
    "other shape": lambda content: content.replace(b"(10, 3, 4)", b"(10, 4, 3)"),
    "other type": lambda content: content.replace(b"|u1", b"|i1"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_table_is_made_again(store: Path, source: Path, damage: str) -> None:
    converted("set", [source], SHAPE, halves)
    file = store / kept(store)[0]
    file.write_bytes(DAMAGE[damage](file.read_bytes()))
    assert torch.equal(converted("set", [source], SHAPE, halves), torch.from_numpy(TABLE))


def failing() -> Iterator[Bytes]:
    yield TABLE[:4]
    raise UserError("damaged")


BROKEN: dict[str, tuple[Callable[[], Iterator[Bytes]], str]] = {
    "source refused": (failing, "damaged"),
    "too few rows": (lambda: iter([TABLE[:9]]), "10 rows together. Got 9"),
    "too many rows": (lambda: iter([TABLE, TABLE]), "10 rows together. Got 20"),
    "other rows": (lambda: iter([TABLE[:, 1:]]), r"Got uint8 \(10, 2, 4\)"),
    "not bytes": (lambda: iter([TABLE.astype(np.int16)]), r"Got int16"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_conversion_leaves_nothing(store: Path, source: Path, case: str) -> None:
    blocks, message = BROKEN[case]
    with pytest.raises((UserError, ValueError), match=message):
        converted("set", [source], SHAPE, blocks)
    assert kept(store) == []


def test_a_full_disk_leaves_nothing(store: Path, source: Path) -> None:
    """A limit on the size of files fails the same writes as a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, before[1]))
    try:
        with pytest.raises(UserError, match=r"Could not write in .*cache: .*set UNBRAID_CACHE"):
            converted("set", [source], (1 << 13, 1), lambda: iter([np.zeros((1 << 13, 1), np.uint8)]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert kept(store) == []


def test_a_table_that_cannot_fit_is_refused_before_reading(store: Path, source: Path) -> None:
    rows = shutil.disk_usage(source.parent).total + 1
    with pytest.raises(UserError, match=r"must have [\d,]+ MB free .* Got [\d,]+ MB instead.*UNBRAID_CACHE"):
        converted("set", [source], (rows, 1), never)


def test_a_folder_that_cannot_be_made_is_refused(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNBRAID_CACHE", str(source / "below"))
    with pytest.raises(UserError, match="Could not create the folder"):
        converted("set", [source], SHAPE, never)


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from unbraid.data.convert import converted

def blocks():
    yield np.zeros((4, 3, 4), np.uint8)
    os.kill(os.getpid(), signal.SIGKILL)

converted("set", [Path(sys.argv[1])], (10, 3, 4), blocks)
"""


def test_a_killed_conversion_is_not_taken_for_complete(store: Path, source: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(source)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert all(name.endswith(".tmp") for name in kept(store))
    assert torch.equal(converted("set", [source], SHAPE, halves), torch.from_numpy(TABLE))
    assert len(kept(store)) == 1


def test_the_second_waits_for_the_first_and_takes_its_table(store: Path, source: Path) -> None:
    begun, go = threading.Event(), threading.Event()

    def slow() -> Iterator[Bytes]:
        begun.set()
        assert go.wait(30)
        yield TABLE

    tables: list[torch.Tensor] = []
    first = threading.Thread(target=lambda: tables.append(converted("set", [source], SHAPE, slow)))
    second = threading.Thread(target=lambda: tables.append(converted("set", [source], SHAPE, never)))
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
