"""Decode image files into a table of square uint8 images, and store this table in the cache folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from unbraid.data.dataset import Progress
from unbraid.data.files.convert import Blocks, ByteArray, cached_table
from unbraid.data.resizing import crop_and_resize
from unbraid.errors import UserError
from unbraid.runtime.files import cache_folder, refuse_special_file
from unbraid.runtime.read_errors import READ_ERRORS, read_reason

if TYPE_CHECKING:
    from PIL import Image

T = TypeVar("T")

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
UNREADABLE = (
    ".heic",
    ".heif",
    ".avif",
    ".raw",
    ".dng",
    ".cr2",
    ".cr3",
    ".nef",
    ".arw",
)  # formats of photographs that Pillow may be unable to read
GREY_MODES = ("1", "L", "LA", "La")
ALPHA_MODES = ("LA", "La", "PA", "RGBA", "RGBa")
NUMBERS = re.compile(r"(\d+(?:\.\d+)?)")
MAX_SIZE = 1024  # maximum width and height in pixels
BLOCK_IMAGES = 256  # number of images that are decoded at once
# The table is cached if the number of files, or their total size in bytes, is above its limit.
MAX_UNCACHED_FILES, MAX_UNCACHED_BYTES = 1000, 1 << 22
COLOUR_CHECK_FRACTION = 0.1  # fraction of the reported progress that the check for colours takes


def image_files(folder: Path) -> list[str]:
    """Return the sorted paths of all images in a folder and its subfolders, relative to the folder.

    Hidden files and folders are skipped. If there are no images, a UserError is raised.
    """
    found: list[str] = []
    others: list[str] = []
    for current, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        below = "" if current == str(folder) else Path(current).relative_to(folder).as_posix() + "/"
        for name in files:
            if not name.startswith("."):
                (found if name.lower().endswith(SUFFIXES) else others).append(below + name)
    if not found:
        arrays = sorted(file for file in others if file.endswith((".npy", ".npz")))
        hint = f" To use the arrays in {arrays[0]}, pass that file." if arrays else " Choose a different folder."
        if any(file.lower().endswith(UNREADABLE) for file in others):
            hint = " Convert photographs in other formats, such as .heic, to .jpg or .png first."
        raise UserError(
            f"{folder} must contain images ({', '.join(SUFFIXES)}), directly or in its subfolders. Got {len(others)} "
            f"other files instead.{hint}"
        )
    return sorted(found, key=lambda file: file.split("/"))


def are_in_numerical_order(files: Sequence[str]) -> bool:
    """Return whether files are also in order if the numbers in their paths are compared by size.

    >>> are_in_numerical_order(["2.png", "10.png"]), are_in_numerical_order(["10.png", "2.png"])
    (True, False)
    """
    keys = [[_split_numbers(name) for name in file.split("/")] for file in files]
    return keys == sorted(keys)


def _split_numbers(name: str) -> list[tuple[float, str]]:
    """Return the parts of a name, which are text and numbers in turn, in a form that sorts numbers by size."""
    return [(float(part) if i % 2 else 0.0, part) for i, part in enumerate(NUMBERS.split(name))]


def files_state(folder: Path, files: Sequence[str]) -> tuple[int, str]:
    """Return the total size of files in bytes, and a digest of their order, names, sizes and modification times."""
    total, digest = 0, hashlib.sha256()
    for file in files:
        try:
            found = (folder / file).stat()
        except OSError as error:
            raise UserError(
                f"{folder / file} must be readable. Got an error instead: {error.strerror}. Restore the file or remove "
                "it."
            ) from error
        total += found.st_size
        digest.update(f"{file}\0{found.st_size}\0{found.st_mtime_ns}\0".encode())
    return total, digest.hexdigest()[:16]


def check_image_options(size: int, channels: int | None) -> None:
    """Raise a UserError if the size or the number of channels is not supported."""
    for name, value in (("size", size), ("channels", channels)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, Integral)):
            raise UserError(f"The '{name}' of images must be an integer. Got {value!r} instead.")
    if not 1 <= size <= MAX_SIZE:
        raise UserError(f"The 'size' of images must be 1 to {MAX_SIZE} pixels. Got {size} instead. {supported_sizes()}")
    if channels not in (None, 1, 3):
        raise UserError(f"The 'channels' must be 1 (grey) or 3 (colour). Got {channels} instead.")


def supported_sizes() -> str:
    """Return a sentence about the image sizes that the networks accept."""
    from unbraid.nets.conv import IMAGE_SIDES

    sizes = ", ".join(map(str, IMAGE_SIDES))
    return (
        f"The nets locatello and burgess need square images of {sizes} pixels. The net mlp and your own nets accept "
        "any size."
    )


def image_table(
    folder: Path,
    files: Sequence[str],
    state: tuple[int, str],
    size: int,
    channels: int | None,
    progress: Progress | None = None,
) -> UInt8[Tensor, "n c s s"]:
    """Decode images, crop them to their central squares and resize them.

    The table is stored in the cache folder, unless there are only a few small files. It is computed again when the
    name, size or modification time of a file changes.

    Args:
        folder: Folder of the images.
        files: Paths of the images relative to `folder`, in the order of the rows of the table.
        state: Result of `files_state`.
        size: Width and height of the resized images in pixels.
        channels: 1 for grey, 3 for colour. None means grey if all files are grey, and colour otherwise.
        progress: Called with the finished fraction, from 0 to 1.

    Returns:
        The images, uint8 of shape (n, channels, size, size).
    """
    paths, (total, digest), finished = [folder / file for file in files], state, 0.0
    small = len(paths) <= MAX_UNCACHED_FILES and total <= MAX_UNCACHED_BYTES
    cache_name = None if small else f"own-{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
    if channels is None:
        check_progress = _scale_progress(progress, 0.0, COLOUR_CHECK_FRACTION)
        colours = _load_or_compute_table(
            cache_name, "colour", digest, (len(paths),), partial(_blocks, paths, _is_colour), check_progress
        )
        channels, finished = 3 if colours.any() else 1, COLOUR_CHECK_FRACTION
    shape = (len(paths), channels, size, size)
    blocks = partial(_blocks, paths, partial(_decode_image, size=size, channels=channels))
    return _load_or_compute_table(
        cache_name, f"{size}-{channels}", digest, shape, blocks, _scale_progress(progress, finished, 1.0)
    )


def _load_or_compute_table(
    cache_name: str | None, kind: str, state: str, shape: tuple[int, ...], blocks: Blocks, progress: Progress | None
) -> UInt8[Tensor, "n ..."]:
    """Return a table of images. Read it from the cache, or else compute it with `blocks` and write it there.

    After a new table is written, the cached tables of earlier versions of the files are deleted. If `cache_name` is
    None, the cache is not used.
    """
    if cache_name is None:
        table = torch.from_numpy(np.concatenate(list(blocks())))
        if progress:
            progress(1.0)
        return table
    before = set(cache_folder().glob(f"{cache_name}-{kind}-*.npy"))
    table = cached_table(f"{cache_name}-{kind}-{state}", [], shape, blocks, progress)
    if set(cache_folder().glob(f"{cache_name}-{kind}-*.npy")) - before:
        for outdated in before:
            with contextlib.suppress(OSError):
                outdated.unlink()
    return table


def _scale_progress(progress: Progress | None, low: float, high: float) -> Progress | None:
    """Return a function that rescales a fraction in [0, 1] to [`low`, `high`] and passes it to `progress`."""
    return None if progress is None else lambda done: progress(low + (high - low) * done)


def _blocks(paths: Sequence[Path], work: Callable[[Path], ByteArray]) -> Iterator[ByteArray]:
    """Apply `work` to all files, and yield the results in blocks in the order of `paths`.

    Files are decoded in several threads. This is faster because Pillow releases the global interpreter lock while it
    decodes.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(paths), BLOCK_IMAGES):
            yield np.stack(list(pool.map(work, paths[start : start + BLOCK_IMAGES])))


def _is_colour(path: Path) -> ByteArray:
    return np.array(open_image(path, lambda image: not is_grey(image)), np.uint8)


def _decode_image(path: Path, *, size: int, channels: int) -> ByteArray:
    return open_image(path, lambda image: crop_and_resize(to_8_bit(image, channels), size))


def open_image(path: Path, work: Callable[[Image.Image], T]) -> T:
    """Open an image file, apply `work` to the image, and return the result.

    Raise a UserError if Pillow cannot read the file, or if it is a pipe or a device.
    """
    from PIL import Image

    refuse_special_file(path)
    try:
        with Image.open(path) as image:
            return work(image)
    except (*READ_ERRORS, Image.DecompressionBombError) as error:
        raise UserError(
            f"{path} must be a complete image. Reading it failed: {read_reason(error)}. Replace or remove the file."
        ) from error


def is_grey(image: Image.Image) -> bool:
    """Return whether an image has a grey format, or a palette without colours.

    An image in a colour format does not count as grey, even if all its pixels are grey.
    """
    if image.mode in ("P", "PA"):
        palette = np.array(image.getpalette("RGB")).reshape(-1, 3)
        return bool((palette == palette[:, :1]).all())
    return image.mode in GREY_MODES or image.mode.startswith(("I", "F"))


def to_8_bit(image: Image.Image, channels: int) -> Image.Image:
    """Convert the first frame of an image to 8-bit grey or colour, and rotate it upright according to its EXIF data.

    Transparent pixels become black, and 16-bit grey values are scaled to 8 bits.
    """
    from PIL import Image, ImageOps

    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith(("I", "F")):
        upright = Image.fromarray(_scale_16_bit(np.asarray(upright)))
    elif upright.mode in ALPHA_MODES or "transparency" in upright.info:
        background = Image.new("RGBA", upright.size, "black")
        background.alpha_composite(upright.convert("RGBA"))
        upright = background
    return upright.convert("L" if channels == 1 else "RGB")


def _scale_16_bit(pixels: np.ndarray) -> ByteArray:
    high = 2**16 - 1
    if pixels.dtype.kind == "f" or pixels.min() < 0 or pixels.max() > high:
        raise ValueError(f"its pixels are {pixels.dtype} from {pixels.min()} to {pixels.max()}, not 8-bit or 16-bit")
    return np.rint(pixels * (255 / high)).astype(np.uint8)
