"""Image files of any kind as a table of square bytes, decoded once and then mapped from the cache folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from unbraid.data.dataset import Progress
from unbraid.data.files.convert import Blocks, Bytes, converted
from unbraid.errors import UserError
from unbraid.runtime.files import cache_folder

if TYPE_CHECKING:
    from PIL import Image

T = TypeVar("T")

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
GREY = ("1", "L", "LA", "La")
ALPHA = ("LA", "La", "PA", "RGBA", "RGBa")
LARGEST = 1024  # pixels of a side
BLOCK = 256  # images decoded at once
FEW, SMALL = 1000, 1 << 22  # files, and bytes of them together, that are not worth a cache
PROBING = 0.1  # part of the work that is looking for colour


def image_files(folder: Path) -> list[str]:
    """The images below a folder, relative to it, in sorted order; hidden files and folders are passed over."""
    found: list[str] = []
    others: list[str] = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        below = "" if place == str(folder) else Path(place).relative_to(folder).as_posix() + "/"
        for name in files:
            if not name.startswith("."):
                (found if name.lower().endswith(SUFFIXES) else others).append(below + name)
    if not found:
        arrays = sorted(file for file in others if file.endswith((".npy", ".npz")))
        hint = f" For the arrays in {arrays[0]} give that file." if arrays else " Choose another folder."
        raise UserError(
            f"{folder} must hold images ({', '.join(SUFFIXES)}), there or in its subfolders. Got {len(others)} other "
            f"files instead.{hint}"
        )
    return sorted(found, key=lambda file: file.split("/"))


def state_of(folder: Path, files: Sequence[str]) -> tuple[int, str]:
    """The bytes of files together, and a name for their order and state: names, sizes and times of change."""
    total, digest = 0, hashlib.sha256()
    for file in files:
        try:
            found = (folder / file).stat()
        except OSError as error:
            raise UserError(
                f"{folder / file} must be readable. Got: {error.strerror}. Remove it or bring it back."
            ) from error
        total += found.st_size
        digest.update(f"{file}\0{found.st_size}\0{found.st_mtime_ns}\0".encode())
    return total, digest.hexdigest()[:16]


def check_form(size: int, channels: int | None) -> None:
    """Refuse a size or a number of channels that no network could take."""
    if not 1 <= size <= LARGEST:
        raise UserError(f"The 'size' of images must be 1 to {LARGEST} pixels. Got {size} instead. {fitting()}")
    if channels not in (None, 1, 3):
        raise UserError(f"The 'channels' must be 1 (grey) or 3 (colour). Got {channels} instead.")


def fitting() -> str:
    """Which sizes train with which networks."""
    from unbraid.nets.conv import SIZES

    some = ", ".join(map(str, SIZES))
    return f"The nets locatello and burgess take {some} pixels square, mlp and your own modules any size."


def image_table(
    folder: Path,
    files: Sequence[str],
    state: tuple[int, str],
    size: int,
    channels: int | None,
    progress: Progress | None = None,
) -> UInt8[Tensor, "n c s s"]:
    """The files of a folder in the given order, cut and scaled to `size` pixels square; of `channels` or as they are.

    Unless it is small, the table is made once and kept in the cache folder until a file's name, size or time of change
    differs.
    """
    paths, (total, stamp), begun = [folder / file for file in files], state, 0.0
    small = len(paths) <= FEW and total <= SMALL
    place = None if small else f"own-{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
    if channels is None:
        looked = _part(progress, 0.0, PROBING)
        colours = _table(place, "colour", stamp, (len(paths),), partial(_blocks, paths, _is_colour), looked)
        channels, begun = 3 if colours.any() else 1, PROBING
    shape = (len(paths), channels, size, size)
    blocks = partial(_blocks, paths, partial(_square, size=size, channels=channels))
    return _table(place, f"{size}-{channels}", stamp, shape, blocks, _part(progress, begun, 1.0))


def _table(
    place: str | None, kind: str, state: str, shape: tuple[int, ...], blocks: Blocks, progress: Progress | None
) -> UInt8[Tensor, "n ..."]:
    """A table made of a folder in a state; one made of it in an earlier state is removed.

    Without a `place` in the cache folder, for a few small files, it is made each time in a fraction of a second.
    """
    if place is None:
        table = torch.from_numpy(np.concatenate(list(blocks())))
        if progress:
            progress(1.0)
        return table
    before = set(cache_folder().glob(f"{place}-{kind}-*.npy"))
    table = converted(f"{place}-{kind}-{state}", [], shape, blocks, progress)
    if set(cache_folder().glob(f"{place}-{kind}-*.npy")) - before:
        for former in before:
            with contextlib.suppress(OSError):
                former.unlink()
    return table


def _part(progress: Progress | None, low: float, high: float) -> Progress | None:
    return None if progress is None else lambda done: progress(low + (high - low) * done)


def _blocks(paths: Sequence[Path], work: Callable[[Path], Bytes]) -> Iterator[Bytes]:
    """What `work` makes of each file, in order; Pillow decodes outside the interpreter's lock, so threads help."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(paths), BLOCK):
            yield np.stack(list(pool.map(work, paths[start : start + BLOCK])))


def _is_colour(path: Path) -> Bytes:
    return np.array(opened(path, lambda image: not is_grey(image)), np.uint8)


def _square(path: Path, *, size: int, channels: int) -> Bytes:
    return opened(path, lambda image: squared(plain(image, channels), size))


def opened(path: Path, work: Callable[[Image.Image], T]) -> T:
    """What `work` makes of an image file; what Pillow cannot read is refused by name."""
    from PIL import Image

    failures = (OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error, zlib.error)
    try:
        with Image.open(path) as image:
            return work(image)
    except (*failures, Image.DecompressionBombError) as error:
        reason = str(error) or type(error).__name__
        raise UserError(
            f"{path} must be a whole image. Reading it failed: {reason}. Replace the file or move it elsewhere."
        ) from error


def is_grey(image: Image.Image) -> bool:
    """Whether the kind of file, or its palette, has no colours; colour files that look grey count as colour."""
    if image.mode in ("P", "PA"):
        palette = np.array(image.getpalette("RGB")).reshape(-1, 3)
        return bool((palette == palette[:, :1]).all())
    return image.mode in GREY or image.mode.startswith(("I", "F"))


def plain(image: Image.Image, channels: int) -> Image.Image:
    """The first frame, upright, as 8 bit grey or colour; what is transparent becomes black, 16 bit grey is scaled."""
    from PIL import Image, ImageOps

    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith(("I", "F")):
        upright = Image.fromarray(_from_16_bit(np.asarray(upright)))
    elif upright.mode in ALPHA or "transparency" in upright.info:
        ground = Image.new("RGBA", upright.size, "black")
        ground.alpha_composite(upright.convert("RGBA"))
        upright = ground
    return upright.convert("L" if channels == 1 else "RGB")


def _from_16_bit(pixels: np.ndarray) -> Bytes:
    high = 2**16 - 1
    if pixels.dtype.kind == "f" or pixels.min() < 0 or pixels.max() > high:
        raise UserError(f"its pixels are {pixels.dtype} from {pixels.min()} to {pixels.max()}, not 8 or 16 bit")
    return np.rint(pixels * (255 / high)).astype(np.uint8)


def squared(image: Image.Image, size: int) -> Bytes:
    """The middle square of an image at `size` pixels by Lanczos, (c, size, size); one of that size is left as it is."""
    from PIL import Image

    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    box = (left, top, left + side, top + side)
    pixels = np.asarray(image.resize((size, size), Image.Resampling.LANCZOS, box))
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
