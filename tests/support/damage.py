"""Ways to spoil a file, and what must come of it."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from unbraid.errors import UserError


def cut(path: Path, part: float = 0.6) -> Path:
    os.truncate(path, int(part * path.stat().st_size))
    return path


def flipped(path: Path, place: float = 0.5) -> Path:
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 0x55
    path.write_bytes(content)
    return path


def mutants(content: bytes, count: int, start: int = 0) -> Iterator[bytes]:
    """Copies with one to eight bytes changed, half of them in the first 400 after `start`, and some cut short."""
    dice = random.Random(count)
    for _ in range(count):
        spoiled = bytearray(content)
        for _ in range(dice.choice([1, 1, 2, 8])):
            end = dice.choice([min(start + 400, len(spoiled)), len(spoiled)])
            spoiled[dice.randrange(start, end)] = dice.randrange(256)
        yield bytes(spoiled[: dice.randrange(len(spoiled))] if dice.random() < 0.1 else spoiled)


def refusals(read: Callable[[bytes], object], contents: Iterator[bytes]) -> int:
    """How many are refused; what passes has lost nothing that the format can tell, and any other error is a fault."""
    count = 0
    for content in contents:
        try:
            read(content)
        except UserError as refusal:
            count += 1
            assert "\n" not in str(refusal)
    return count


def refused(message: str, read: Callable[[], object], store: Path) -> None:
    """Refused with that message in one line, and no table left in the cache folder `store`."""
    with pytest.raises(UserError, match=message) as caught:
        read()
    assert "\n" not in str(caught.value)
    assert not [path for path in store.glob("*") if not path.name.endswith(".lock")]
