"""Functions that damage files, and checks of the errors that follow."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from unbraid.errors import UserError


def truncate_file(path: Path, part: float = 0.6) -> Path:
    """Cut a file to a part of its length, in place."""
    os.truncate(path, int(part * path.stat().st_size))
    return path


def flip_byte(path: Path, position: float = 0.5) -> Path:
    """Change the byte at a relative position of a file, in place."""
    content = bytearray(path.read_bytes())
    content[int(position * len(content))] ^= 0x55
    path.write_bytes(content)
    return path


def damaged_copies(content: bytes, count: int, start: int = 0) -> Iterator[bytes]:
    """Yield copies with one to eight bytes changed, half of them in the first 400 after `start`; some are truncated."""
    generator = random.Random(count)
    for _ in range(count):
        damaged = bytearray(content)
        for _ in range(generator.choice([1, 1, 2, 8])):
            end = generator.choice([min(start + 400, len(damaged)), len(damaged)])
            damaged[generator.randrange(start, end)] = generator.randrange(256)
        yield bytes(damaged[: generator.randrange(len(damaged))] if generator.random() < 0.1 else damaged)


def count_user_errors(read: Callable[[bytes], object], contents: Iterator[bytes]) -> int:
    """Return for how many contents `read` raises a UserError. Any other exception is a failure.

    The other contents are damaged in a way that the format cannot detect.
    """
    count = 0
    for content in contents:
        try:
            read(content)
        except UserError as error:
            count += 1
            assert "\n" not in str(error)
    return count


def check_user_error(message: str, read: Callable[[], object], store: Path) -> None:
    """Check that `read` raises a UserError with one line and leaves no table in the cache folder `store`."""
    with pytest.raises(UserError, match=message) as caught:
        read()
    assert "\n" not in str(caught.value)
    assert not [path for path in store.glob("*") if not path.name.endswith(".lock")]
