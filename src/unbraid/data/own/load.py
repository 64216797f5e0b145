"""Users' own data: a folder of images, files of arrays, arrays in memory, a torch Dataset."""

from __future__ import annotations

import contextlib
import hashlib
import os
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, urlencode

import numpy as np
import torch

from unbraid.data.dataset import Progress
from unbraid.data.own.arrays import Array, OwnData, assembled, from_arrays
from unbraid.data.own.images import check_form, image_files, image_table, state_of
from unbraid.data.own.labels import labels_of
from unbraid.data.own.torch_dataset import from_dataset
from unbraid.errors import UserError, unknown

IMAGES = ("images", "x", "imgs")
FACTORS = ("factors", "labels", "latents_classes", "y")
NAMES = ("factor_names", "names")
SUFFIXES = (".npy", ".npz")


def from_folder(
    path: str | Path,
    *,
    size: int = 64,
    channels: int | None = None,
    labels: str | Path | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> OwnData:
    """The images below a folder as data: cut to their middle square, scaled to `size` pixels by Lanczos.

    Grey if all files are, else colour, unless `channels` is 1 or 3. Labels come from `labels.csv` or `factors.csv` in
    the folder, else from subfolders, else from file names such as shape=2_x=13.png, else there are none; `labels` is
    "csv", "folders", "names", "none" or the path of a csv to choose. Numbers are numbered by size, words by letter,
    and `values` tells which is which. Unless they are few, files are decoded once and the pixels kept in the cache
    folder until a file changes.
    """
    check_form(size, channels)
    folder = _existing(path)
    if not folder.is_dir():
        raise UserError(f"{folder} must be a folder of images. Got a file instead. For arrays use from_file.")
    chosen = None if labels is None else str(labels)
    if chosen and chosen.lower().endswith(".csv"):
        chosen = str(Path(chosen).expanduser().resolve())
    files = image_files(folder)
    found = labels_of(folder, files, chosen)
    order = found.order()
    if order is not None:
        files, found = [files[i] for i in order], found.at(order)
    state = state_of(folder, files)
    table = image_table(folder, files, state, size, channels, progress)
    source = _digest(state, size, table.shape[1], found.values, found.numbers.tobytes())
    options = {"size": None if size == 64 else size, "channels": channels, "labels": chosen}
    return assembled(_named(folder, options), table, found, device, source)


def from_file(
    path: str | Path,
    *,
    images: str | None = None,
    factors: str | Path | None = None,
    names: Sequence[str] | None = None,
    layout: str | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> OwnData:
    """Arrays in a .npz or .npy file as data, in the forms that `from_arrays` takes; nothing is ever unpickled.

    In a .npz the examples are the array `images`, else images, x or imgs; the factors are the array `factors`, else
    factors, labels, latents_classes or y, else none; an array factor_names or names names them unless `names` does.
    Beside STEM.npy the factors are the file `factors`, else STEM_factors.npy, else none. The .npy is mapped, not read.
    """
    file = _existing(path)
    if file.is_dir():
        raise UserError(f"{file} must be a file of arrays. Got a folder instead. For images use from_folder.")
    if file.suffix == ".npy" and factors is not None:
        factors = Path(factors).expanduser().resolve()
    examples, found, words, files = (_from_npz if file.suffix == ".npz" else _from_npy)(file, images, factors)
    asked = None if names is None else tuple(names)
    options = {"images": images, "factors": factors and str(factors), "names": asked, "layout": layout}
    try:
        given = names if names is not None else words
        data = from_arrays(examples, found, names=given, name=_named(file, options), layout=layout, device=device)
    except (ValueError, TypeError) as error:
        raise UserError(f"The arrays in {file} cannot be used. {error}") from error
    data.source = _digest([state_of(path.parent, [path.name]) for path in files], options)
    if progress:
        progress(1.0)
    return data


def load_own(where: str, device: str | torch.device = "cpu", progress: Progress | None = None) -> OwnData:
    """What a path means as data: a folder of images or a .npy or .npz file, with options as in photos?size=32.

    Options are those of `from_folder` and `from_file`, parted by &. The name of the result is the whole path with its
    options, so that it is found again from anywhere.
    """
    path, asked = _cut(where)
    folder = _existing(path).is_dir()
    known = ("size", "channels", "labels") if folder else ("images", "factors", "names", "layout")
    options: dict[str, Any] = {}
    for key, values in asked.items():
        if key not in known:
            raise UserError(unknown("option of own data", key, known))
        options[key] = tuple(values) if key == "names" else values[-1]
        if key in ("size", "channels"):
            if not values[-1].isdecimal():
                raise UserError(f"The '{key}' of {path} must be a whole number. Got {values[-1]!r} instead.")
            options[key] = int(values[-1])
    return (from_folder if folder else from_file)(path, **options, device=device, progress=progress)


def _cut(where: str) -> tuple[str, dict[str, list[str]]]:
    """The path and the options after its last question mark, unless that is part of the name of something there."""
    path, mark, asked = where.rpartition("?")
    if not mark or os.path.lexists(where):
        return where, {}
    try:
        return path, parse_qs(asked, strict_parsing=True)
    except ValueError:
        raise UserError(
            f"What follows the ? of {where} must be options such as size=32&channels=1. Got {asked!r} instead."
        ) from None


def _named(path: Path, options: dict[str, Any]) -> str:
    """The path, with the options that were given, as `load_own` takes it."""
    given = {key: value for key, value in options.items() if value is not None}
    return f"{path}?{urlencode(given, doseq=True, quote_via=quote, safe='/')}" if given else str(path)


def _existing(path: str | Path) -> Path:
    """A folder or a file of arrays, told by its whole path."""
    found = Path(path).expanduser().resolve()
    if str(path) and (found.is_dir() or (found.is_file() and found.suffix in SUFFIXES)):
        return found
    got = f"a file {found.name}" if found.is_file() else "nothing there"
    raise UserError(
        f"{path!s} must be a folder of images, or a file of arrays ({' or '.join(SUFFIXES)}). Got {got} instead."
    )


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


class Arrays(NamedTuple):
    """What files hold: examples, factors and their names if there are any; and which files those are."""

    examples: Array
    factors: Array | None
    names: list[str] | None
    files: list[Path]


def _from_npz(file: Path, images: str | None, factors: str | Path | None) -> Arrays:
    with _reading(file), file.open("rb") as stream, zipfile.ZipFile(stream):  # numpy leaves a broken archive open
        archive = np.load(stream, allow_pickle=False)
        examples, found = _member(file, archive, images, IMAGES), _member(file, archive, factors, FACTORS)
        if examples is None:
            keys = ", ".join(archive.files) or "none"
            raise UserError(f"{file} must have an array {' or '.join(IMAGES)}. Got {keys}. Say which: images='NAME'.")
        return Arrays(examples, found, _names(archive, found), [file])


def _from_npy(file: Path, images: str | None, factors: str | Path | None) -> Arrays:
    if images is not None:
        raise UserError(f"An array is chosen by name in a .npz. Got images={images!r} for {file}. Leave it out.")
    beside = file.with_name(f"{file.stem}_factors.npy") if factors is None else Path(factors)
    if factors is None and not beside.is_file():
        return Arrays(_mapped(file), None, None, [file])
    return Arrays(_mapped(file), _mapped(beside), None, [file, beside])


def _mapped(file: Path) -> Array:
    """The array in a .npy; in private pages, so that torch may have them writable and the file stays as it is."""
    with _reading(file):
        return np.lib.format.open_memmap(file, mode="c")


@contextlib.contextmanager
def _reading(file: Path) -> Iterator[None]:
    """What goes wrong in a file as a refusal."""
    try:
        yield
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(
            f"{file} must be a whole {file.suffix} file of plain numbers. Reading it failed: {error} Save it again; "
            "Python objects are never unpickled."
        ) from error


def _member(file: Path, archive: Any, asked: str | Path | None, usual: Sequence[str]) -> Array | None:
    """The array asked for, or the first of the usual ones that is there."""
    key = str(asked) if asked is not None else next((key for key in usual if key in archive.files), None)
    if key is None:
        return None
    if key not in archive.files:
        raise UserError(unknown(f"array of {file}", key, archive.files))
    found: Array = archive[key]
    return found


def _names(archive: Any, factors: Array | None) -> list[str] | None:
    """The names kept in an archive, where they are plain words and as many as the factors."""
    for key in NAMES:
        if factors is not None and key in archive.files:
            with contextlib.suppress(ValueError):  # what would have to be unpickled is passed over
                found = archive[key]
                if found.dtype.kind == "U" and found.shape == factors.shape[1:]:
                    return list(map(str, found))
    return None


__all__ = ["OwnData", "from_arrays", "from_dataset", "from_file", "from_folder", "load_own"]
