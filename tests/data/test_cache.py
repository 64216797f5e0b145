"""The cache returns complete tables or none, and no failure of the disk stops the program."""

from __future__ import annotations

import errno
import hashlib
import importlib
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from unbraid.data import cache, dsprites
from unbraid.data.rendered.dsprites import FILE, SHA256
from unbraid.noise import mix
from unbraid.runtime.files import cache_folder

TABLE = mix(torch.arange(4096)).view(torch.uint8).view(64, 512)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def digest(table: Tensor) -> str:
    return hashlib.sha256(table.numpy().data).hexdigest()


def test_cache_returns_the_stored_table(store: Path) -> None:
    assert cache.read("table", (64, 512)) is None
    cache.write("table", TABLE)
    restored = cache.read("table", (64, 512))
    assert restored is not None
    assert torch.equal(restored, TABLE)
    assert [file.name for file in store.iterdir()] == ["table"]


def test_cache_decompresses_tables_larger_than_one_piece(store: Path) -> None:
    flat = torch.zeros(3 * cache.OUTPUT_BYTES + 5, 1, dtype=torch.uint8)
    cache.write("table", flat)
    restored = cache.read("table", (len(flat), 1))
    assert restored is not None
    assert torch.equal(restored, flat)


def test_decompression_time_is_linear_in_the_size(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data that compresses badly has unused input after every piece, and zlib copies all of it each time."""
    flat = mix(torch.arange(2 * cache.OUTPUT_BYTES)).view(torch.uint8).view(-1, 1)
    cache.write("table", flat)
    input_sizes: list[int] = []

    class CountingStream:
        """A zlib stream that counts the bytes passed to it."""

        def __init__(self) -> None:
            self.stream = zlib.decompressobj()

        @property
        def unconsumed_tail(self) -> bytes:
            return self.stream.unconsumed_tail

        def decompress(self, rest: bytes, most: int) -> bytes:
            input_sizes.append(len(rest))
            return self.stream.decompress(rest, most)

    monkeypatch.setattr(cache, "zlib", SimpleNamespace(decompressobj=CountingStream, error=zlib.error))
    restored = cache.read("table", (len(flat), 1))
    assert restored is not None
    assert torch.equal(restored, flat)
    assert sum(input_sizes) < 2 * len(flat)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "within the digest": lambda content: content[:20],
    "half": lambda content: content[: len(content) // 2],
    "last byte missing": lambda content: content[:-1],
    "one more byte": lambda content: content + b"\0",
    "bit of the digest": lambda content: bytes([content[0] ^ 1]) + content[1:],
    "bit of the body": lambda content: content[:999] + bytes([content[999] ^ 16]) + content[1000:],
    "other size": lambda content: cache._pack(TABLE[1:]),
    "larger size": lambda content: cache._pack(TABLE.repeat(2, 1)),
    "not compressed": lambda content: hashlib.sha256(b"plain").digest() + b"plain",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_cache_warns_and_returns_none(store: Path, damage: str) -> None:
    cache.write("table", TABLE)
    file = store / "table"
    file.write_bytes(DAMAGE[damage](file.read_bytes()))
    with pytest.warns(RuntimeWarning, match="damaged .* computed again"):
        assert cache.read("table", (64, 512)) is None


def test_full_disk_warns_and_keeps_the_old_file(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write("table", TABLE)

    def raise_no_space(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", raise_no_space)
    with pytest.warns(RuntimeWarning, match=r"No space left.*Set UNBRAID_CACHE"):
        cache.write("table", TABLE + 1)
    restored = cache.read("table", (64, 512))
    assert restored is not None
    assert torch.equal(restored, TABLE)
    assert [file.name for file in store.iterdir()] == ["table"]


def test_unreadable_cache_warns(store: Path) -> None:
    (store / "table").mkdir(parents=True)
    with pytest.warns(RuntimeWarning, match="could not be read"):
        assert cache.read("table", (64, 512)) is None


def test_missing_home_folder_warns_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("UNBRAID_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", raise_no_home)
    with pytest.warns(RuntimeWarning, match="Set UNBRAID_CACHE"):
        cache.write("table", TABLE)


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("UNBRAID_CACHE", "")
    assert cache_folder() == Path("/h/.cache/unbraid")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/unbraid")
    monkeypatch.setenv("UNBRAID_CACHE", "/u")
    assert cache_folder() == Path("/u")


def test_dsprites_is_rendered_once_and_replaces_a_damaged_cache(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.mkdir()
    (store / FILE).write_bytes(b"damaged")
    with pytest.warns(RuntimeWarning, match="damaged") as caught:
        first = dsprites()
    assert len(caught) == 1
    monkeypatch.setattr(importlib.import_module("unbraid.data.rendered.dsprites"), "render", None)
    assert digest(first.table) == digest(dsprites().table) == SHA256


def test_dsprites_loads_without_a_writable_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path / "file" / "below"))
    with pytest.warns(RuntimeWarning, match="could not be written") as caught:
        assert digest(dsprites().table) == SHA256
    assert len(caught) == 1
    assert "\n" not in str(caught[0].message)
