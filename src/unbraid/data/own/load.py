"""Load users' own data from a folder of images or a file of arrays."""

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
from unbraid.data.own.arrays import Array, OwnData, assemble_data, from_arrays
from unbraid.data.own.images import check_image_options, files_state, image_files, image_table
from unbraid.data.own.labels import read_labels
from unbraid.errors import UserError, unknown_name_message

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
    """Make a dataset from the images in a folder and its subfolders.

    Each image is cropped to its central square and scaled by Lanczos. Unless there are only a few files, they are
    decoded once, and the pixels are stored in the cache folder until a file changes.

    Args:
        path: The folder.
        size: Width and height of the images in pixels.
        channels: 1 for grey, 3 for colour. The default is grey if all files are grey, and colour otherwise.
        labels: Where labels come from: "csv" (labels.csv or factors.csv in the folder), "folders", "names" (file names
            such as shape=2_x=13.png), "none", or the path of a csv. The default is the first of these that exists.
        device: Device on which to store the images.
        progress: Called with the finished fraction, from 0 to 1.

    Returns:
        A dataset of images of shape (channels, size, size). The values of a factor are numbered in sorted order,
        numbers by size and words alphabetically; its attribute `values` lists them.

    Raises:
        UserError: If the folder contains no images, an image cannot be read, or the labels do not match the images.
    """
    check_image_options(size, channels)
    folder = _resolve_path(path)
    if not folder.is_dir():
        raise UserError(f"{folder} must be a folder of images. Got a file instead. Use from_file for arrays.")
    label_source = None if labels is None else str(labels)
    if label_source and label_source.lower().endswith(".csv"):
        label_source = str(Path(label_source).expanduser().resolve())
    files = image_files(folder)
    given = read_labels(folder, files, label_source)
    order = given.grid_order()
    if order is not None:
        files, given = [files[i] for i in order], given.take(order)
    state = files_state(folder, files)
    table = image_table(folder, files, state, size, channels, progress)
    source = _digest(state, size, table.shape[1], given.values, given.numbers.tobytes())
    options = {"size": None if size == 64 else size, "channels": channels, "labels": label_source}
    return assemble_data(_name_with_options(folder, options), table, given, device, source)


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
    """Make a dataset from the arrays in a .npz or .npy file. Python objects are never unpickled.

    The arrays must have one of the forms that `from_arrays` takes. A .npy file is memory-mapped.

    Args:
        path: The file.
        images: In a .npz, the name of the array of examples. The default is images, x or imgs.
        factors: In a .npz, the name of the array of factors; the default is factors, labels, latents_classes or y, if
            one of them exists. For STEM.npy, the path of another .npy file; the default is STEM_factors.npy, if it
            exists.
        names: Names of the factors. The default is the array factor_names or names of a .npz, if it exists.
        layout: "hw", "hwc" or "chw"; see `from_arrays`.
        device: Device on which to store the examples.
        progress: Called with 1.0 at the end.

    Returns:
        The dataset; see `from_arrays`.

    Raises:
        UserError: If the file cannot be read, or if its arrays cannot be used.
    """
    file = _resolve_path(path)
    if file.is_dir():
        raise UserError(f"{file} must be a file of arrays. Got a folder instead. Use from_folder for images.")
    if file.suffix == ".npy" and factors is not None:
        factors = Path(factors).expanduser().resolve()
    arrays = (_from_npz if file.suffix == ".npz" else _from_npy)(file, images, factors)
    options = {
        "images": images,
        "factors": factors and str(factors),
        "names": None if names is None else tuple(names),
        "layout": layout,
    }
    if names is None:
        names = arrays.names
    name = _name_with_options(file, options)
    try:
        data = from_arrays(arrays.examples, arrays.factors, names=names, name=name, layout=layout, device=device)
    except (ValueError, TypeError) as error:
        raise UserError(f"The arrays in {file} cannot be used. {error}") from error
    data.source = _digest([files_state(path.parent, [path.name]) for path in arrays.files], options)
    if progress:
        progress(1.0)
    return data


def load_own(path_and_options: str, device: str | torch.device = "cpu", progress: Progress | None = None) -> OwnData:
    """Load a folder of images or a .npy or .npz file from a path with options, such as photos?size=32&channels=1.

    Options are the arguments of `from_folder` and `from_file`. The name of the dataset is the absolute path with the
    options, so that it can be loaded again from any working directory.
    """
    path, given = _split_options(path_and_options)
    folder = _resolve_path(path).is_dir()
    known = ("size", "channels", "labels") if folder else ("images", "factors", "names", "layout")
    options: dict[str, Any] = {}
    for key, values in given.items():
        if key not in known:
            raise UserError(unknown_name_message("option of own data", key, known))
        options[key] = tuple(values) if key == "names" else values[-1]
        if key in ("size", "channels"):
            if not values[-1].isdecimal():
                raise UserError(f"The '{key}' of {path} must be a whole number. Got {values[-1]!r} instead.")
            options[key] = int(values[-1])
    return (from_folder if folder else from_file)(path, **options, device=device, progress=progress)


def _split_options(text: str) -> tuple[str, dict[str, list[str]]]:
    """Split off the options after the last question mark, unless a file or folder with the full name exists."""
    path, mark, options = text.rpartition("?")
    if not mark or os.path.lexists(text):
        return text, {}
    try:
        return path, parse_qs(options, strict_parsing=True)
    except ValueError:
        raise UserError(
            f"The text after the ? in {text} must be options such as size=32&channels=1. Got {options!r} instead."
        ) from None


def _name_with_options(path: Path, options: dict[str, Any]) -> str:
    """Return the path with those options that are not None, in the form that `load_own` takes."""
    given = {key: value for key, value in options.items() if value is not None}
    return f"{path}?{urlencode(given, doseq=True, quote_via=quote, safe='/')}" if given else str(path)


def _resolve_path(path: str | Path) -> Path:
    """Return the absolute path of a folder or of a file of arrays; raise a UserError if there is none."""
    found = Path(path).expanduser().resolve()
    if str(path) and (found.is_dir() or (found.is_file() and found.suffix in SUFFIXES)):
        return found
    got = f"the file {found.name}" if found.is_file() else "a path that does not exist"
    raise UserError(
        f"{path!s} must be a folder of images, or a file of arrays ({' or '.join(SUFFIXES)}). Got {got} instead."
    )


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


class LoadedArrays(NamedTuple):
    """Examples, factors and their names if there are any, and the paths of the files that contain them."""

    examples: Array
    factors: Array | None
    names: list[str] | None
    files: list[Path]


def _from_npz(file: Path, images: str | None, factors: str | Path | None) -> LoadedArrays:
    # zipfile opens the archive first, because numpy does not close a broken one.
    with _convert_read_errors(file), file.open("rb") as stream, zipfile.ZipFile(stream):
        archive = np.load(stream, allow_pickle=False)
        examples, found = _read_array(file, archive, images, IMAGES), _read_array(file, archive, factors, FACTORS)
        if examples is None:
            keys = ", ".join(archive.files) or "none"
            raise UserError(f"{file} must have an array {' or '.join(IMAGES)}. Got {keys}. Pass images='NAME'.")
        return LoadedArrays(examples, found, _read_names(archive, found), [file])


def _from_npy(file: Path, images: str | None, factors: str | Path | None) -> LoadedArrays:
    if images is not None:
        raise UserError(f"Only arrays in a .npz have names. Got images={images!r} for {file}. Leave out images.")
    beside = file.with_name(f"{file.stem}_factors.npy") if factors is None else Path(factors)
    if factors is None and not beside.is_file():
        return LoadedArrays(_map_array(file), None, None, [file])
    return LoadedArrays(_map_array(file), _map_array(beside), None, [file, beside])


def _map_array(file: Path) -> Array:
    """Memory-map a .npy with private pages: torch may write to them, and the file does not change."""
    with _convert_read_errors(file):
        return np.lib.format.open_memmap(file, mode="c")


@contextlib.contextmanager
def _convert_read_errors(file: Path) -> Iterator[None]:
    """Turn errors that numpy raises on a damaged file into a UserError."""
    try:
        yield
    except UserError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(
            f"{file} must be a complete {file.suffix} file of numbers. Reading it failed: {error} Save it again; "
            "Python objects are never unpickled."
        ) from error


def _read_array(file: Path, archive: Any, name: str | Path | None, defaults: Sequence[str]) -> Array | None:
    """Return the array called `name`, or if that is None the first of `defaults` that exists, or None."""
    key = str(name) if name is not None else next((key for key in defaults if key in archive.files), None)
    if key is None:
        return None
    if key not in archive.files:
        raise UserError(unknown_name_message(f"array of {file}", key, archive.files))
    found: Array = archive[key]
    return found


def _read_names(archive: Any, factors: Array | None) -> list[str] | None:
    """Return the names of the factors in an archive, if they are strings and there is one per factor."""
    for key in NAMES:
        if factors is not None and key in archive.files:
            with contextlib.suppress(ValueError):  # arrays that would have to be unpickled are ignored
                found = archive[key]
                if found.dtype.kind == "U" and found.shape == factors.shape[1:]:
                    return list(map(str, found))
    return None
