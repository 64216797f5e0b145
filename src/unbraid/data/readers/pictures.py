"""Open pictures and other files by name in a folder or in a zip archive."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, TypeAlias, cast

from unbraid.data.files.archives import safe_members
from unbraid.data.files.convert import ByteArray
from unbraid.data.readers.verify import REMEDY, Stream, convert_read_errors, expect
from unbraid.data.resizing import crop_and_resize
from unbraid.errors import UserError

# Maximum size of a file in a zip archive. The largest known file, the labels of Isaac3D, has 53 MB.
MAX_FILE_BYTES = 1 << 27

Opener: TypeAlias = Callable[[str], Stream]


@contextlib.contextmanager
def file_opener(source: Path) -> Iterator[Opener]:
    """Yield a function that opens a file of `source` by its name.

    Args:
        source: A folder or a zip archive. Files in subfolders of an archive are found by their name alone. Subfolders
            of a folder are not searched.

    Raises:
        UserError: If the archive is damaged. The yielded function raises a UserError if it does not find the file.
    """
    if source.is_dir():
        yield lambda name: _open_in_folder(source, name)
        return
    with convert_read_errors(source, "zip"), zipfile.ZipFile(source) as archive:
        members = (info for info in safe_members(archive, source) if isinstance(info, zipfile.ZipInfo))
        inside = {PurePosixPath(info.filename).name: info for info in members}
        yield lambda name: _open_in_zip(source, archive, inside, name)


def read_picture(
    source: Path, open_file: Opener, name: str, expected: tuple[int, int], size: int, crop: int | None = None
) -> ByteArray:
    """Read a picture, and return its resized central square, uint8 of shape (3, size, size).

    Args:
        source: Folder or archive, for error messages.
        open_file: Function that opens a file by its name, such as the one that `file_opener` yields.
        name: Name of the picture.
        expected: Width and height that the picture must have.
        size: Width and height of the result.
        crop: Width and height of the central square. By default it is as large as the picture allows.

    Returns:
        The resized central square.

    Raises:
        UserError: If the picture is missing or damaged, or does not have the expected width and height.
    """
    from PIL import Image

    path = source / name
    with open_file(name) as file, convert_read_errors(path, "picture"), Image.open(cast(IO[bytes], file)) as picture:
        expect(path, "width and height", expected, picture.size)
        image = picture.convert("RGB")
        if crop is not None:
            left, top = (image.width - crop) // 2, (image.height - crop) // 2
            image = image.crop((left, top, left + crop, top + crop))
        return crop_and_resize(image, size)


def _open_in_folder(source: Path, name: str) -> Stream:
    if Path(name).name != name or not (source / name).is_file():
        raise _missing_error(source, name)
    return (source / name).open("rb")


def _open_in_zip(source: Path, archive: zipfile.ZipFile, inside: dict[str, zipfile.ZipInfo], name: str) -> Stream:
    if name not in inside:
        raise _missing_error(source, name)
    if inside[name].file_size > MAX_FILE_BYTES:
        raise UserError(
            f"{source / name} must have at most {MAX_FILE_BYTES:,} bytes. Got {inside[name].file_size:,} instead. "
            f"{REMEDY}"
        )
    return cast(Stream, archive.open(inside[name]))


def _missing_error(source: Path, name: str) -> UserError:
    return UserError(f"{source} must contain the file {name}. It is missing. {REMEDY}")
