"""CelebA from its published files."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import TypeAlias, cast

import numpy as np
import torch

from unbraid.data.dataset import Progress
from unbraid.data.files.archives import safe_members
from unbraid.data.files.convert import Bytes, converted
from unbraid.data.files.locate import locate
from unbraid.data.in_memory import Labelled
from unbraid.data.readers.pictures import square
from unbraid.data.readers.verify import REMEDY, Array, Stream, expect, reading
from unbraid.errors import UserError

ROWS, ATTRIBUTES = 202_599, 40
TAKEN = (178, 218)
LARGEST = 1 << 24  # bytes of a picture
STEP = 256
MARKS = {"-1": 0, "1": 1}

Opener: TypeAlias = Callable[[str], Stream]


def celeba(
    device: str | torch.device = "cpu", root: str | Path | None = None, progress: Progress | None = None, size: int = 64
) -> Labelled:
    """CelebA: 202,599 aligned faces with 40 yes-or-no attributes as factors.

    The middle 178x178 of each 178x218 picture, at size x size by Lanczos.
    Reference: Liu et al. (2015), arXiv:1411.7766.
    """
    files = locate("celeba", root)
    attributes = files.pop("list_attr_celeba.txt")
    (images,) = files.values()
    return read_celeba(images, attributes, size, device=device, progress=progress)


def read_celeba(
    images: Path,
    attributes: Path,
    size: int = 64,
    rows: int = ROWS,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> Labelled:
    """The pictures, a folder or a zip, in the order of the list of attributes."""
    if size < 1:
        raise UserError(f"The 'size' of celeba must be at least 1. Got {size} instead.")
    names, files, labels = read_attributes(attributes, rows)

    def blocks() -> Iterator[Bytes]:
        with _opener(images) as opened:
            for start in range(0, rows, STEP):
                yield np.stack([_picture(images, opened, name, size) for name in files[start : start + STEP]])

    table = converted(f"celeba-{size}", [images, attributes], (rows, 3, size, size), blocks, progress)
    return Labelled("celeba", names, [2] * ATTRIBUTES, table.to(device), torch.from_numpy(labels))


def read_attributes(path: Path, rows: int = ROWS) -> tuple[list[str], list[str], Array]:
    """Names of attributes, names of files, and labels 0 or 1, int64 (rows, 40).

    The text has the number of rows, the 40 names, then a row a picture: the name of its file and 40 times 1 or -1.
    """
    files, marks = list[str](), bytearray()
    with reading(path, "text"), path.open(encoding="utf-8", errors="replace") as lines:
        expect(path, "first line", str(rows), lines.readline().strip()[:40])
        names = lines.readline().split()
        expect(path, "number of attributes", ATTRIBUTES, len(names))
        for number, line in enumerate(lines, 3):
            name, *words = line.split() or [""]
            if len(words) != ATTRIBUTES or not MARKS.keys() >= set(words):
                raise UserError(f"Line {number} of {path} must be a name and {ATTRIBUTES} times 1 or -1. {REMEDY}")
            files.append(name)
            marks += bytes(map(MARKS.__getitem__, words))
    expect(path, "number of rows", rows, len(files))
    expect(path, "number of distinct file names", rows, len(set(files)))
    return names, files, np.frombuffer(marks, np.uint8).reshape(rows, ATTRIBUTES).astype(np.int64)


def _picture(place: Path, opened: Opener, name: str, size: int) -> Bytes:
    with opened(name) as file:
        return square(place / name, file, TAKEN, size)


@contextlib.contextmanager
def _opener(place: Path) -> Iterator[Opener]:
    """What opens a picture by its name in a folder or in a zip; nothing is unpacked."""
    if place.is_dir():
        yield lambda name: _from_folder(place, name)
        return
    with reading(place, "zip"), zipfile.ZipFile(place) as archive:
        members = (info for info in safe_members(archive, place) if isinstance(info, zipfile.ZipInfo))
        inside = {PurePosixPath(info.filename).name: info for info in members}
        yield lambda name: _from_zip(place, archive, inside, name)


def _from_folder(place: Path, name: str) -> Stream:
    if Path(name).name != name or not (place / name).is_file():
        raise _missing(place, name)
    return (place / name).open("rb")


def _from_zip(place: Path, archive: zipfile.ZipFile, inside: dict[str, zipfile.ZipInfo], name: str) -> Stream:
    if name not in inside:
        raise _missing(place, name)
    if inside[name].file_size > LARGEST:
        raise UserError(f"{place / name} must have at most {LARGEST:,} bytes. Got {inside[name].file_size:,}. {REMEDY}")
    return cast(Stream, archive.open(inside[name]))


def _missing(place: Path, name: str) -> UserError:
    return UserError(f"{place} must have the picture {name} of the list of attributes. It has not. {REMEDY}")
