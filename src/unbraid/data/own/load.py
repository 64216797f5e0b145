"""Load users' own data from a folder of images or a file of arrays."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, urlencode

import numpy as np
import torch

from unbraid.data.dataset import Progress
from unbraid.data.own.arrays import OwnData, assemble_data, from_arrays
from unbraid.data.own.examples import Array, warn_of_dark_images
from unbraid.data.own.images import are_in_numerical_order, check_image_options, files_state, image_files, image_table
from unbraid.data.own.label_table import LabelKinds
from unbraid.data.own.labels import read_labels
from unbraid.data.own.tables import read_h5ad, read_parquet
from unbraid.errors import UserError, unknown_name_message
from unbraid.label_kinds import split_names
from unbraid.runtime.files import resolve_path
from unbraid.runtime.read_errors import READ_ERRORS, read_reason

IMAGES = ("images", "x", "imgs")
FACTORS = ("factors", "labels", "latents_classes", "y")
NAMES = ("factor_names", "names")
SUFFIXES = (".npy", ".npz", ".parquet", ".h5ad")
KIND_OPTIONS = ("continuous", "discrete", "bins")
FOLDER_OPTIONS = ("size", "channels", "labels", *KIND_OPTIONS)
FILE_OPTIONS = ("images", "factors", "names", "layout", *KIND_OPTIONS)
LIST_OPTIONS = ("names", "continuous", "discrete")  # options that may be given several times
NUMBER_OPTIONS = ("size", "channels", "bins")
SURROGATES = 0xD800 >> 11  # the highest bits of numbers that are not characters, but halves of characters in UTF-16


def from_folder(
    path: str | Path,
    *,
    size: int = 64,
    channels: int | None = None,
    labels: str | Path | None = None,
    continuous: str | Sequence[str] | None = None,
    discrete: str | Sequence[str] | None = None,
    bins: int | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> OwnData:
    """Make a dataset from the images in a folder and its subfolders.

    Each image is cropped to its central square and resized with a Lanczos filter. Unless there are only a few small
    files, the decoded images are stored in the cache folder until a file changes.

    Args:
        path: Path of the folder.
        size: Width and height of the images in pixels.
        channels: 1 for grey, 3 for colour. The default is grey if all files are grey, and colour otherwise.
        labels: Source of the labels. This is "csv" (the file labels.csv or factors.csv in the folder), "folders" (the
            names of subfolders), "names" (file names such as shape=2_x=13.png), "none", or the path of a csv file,
            relative to the folder or, if there is no such file, to the working directory. The default is the first of
            "csv", "folders" and "names" that exists, or else "none".
        continuous: Names of continuous factors, as a list or separated by commas; see `from_arrays`.
        discrete: Names of factors whose values are classes, in the same form.
        bins: Number of bins of continuous factors. The default is 10.
        device: Device on which to store the images.
        progress: Called with the finished fraction, from 0 to 1.

    Returns:
        A dataset of images of shape (channels, size, size). The labels of a factor are integers that start at 0. They
        follow the order of its values, which is numerical for numbers and alphabetical for words. The attribute
        `values` of the dataset lists the values. Empty cells and "nan" are missing labels, and are converted to -1.

    Raises:
        UserError: If the folder contains no images, an image cannot be read, or the labels do not match the images.
    """
    check_image_options(size, channels)
    folder = _resolve_path(path)
    if not folder.is_dir():
        raise UserError(f"{folder} must be a folder of images. Got a file instead. Use from_file for arrays.")
    label_source = None if labels is None else str(labels)
    if label_source and label_source.lower().endswith(".csv"):
        in_folder = folder / label_source
        label_source = str(in_folder if in_folder.is_file() else resolve_path(label_source))
    files = image_files(folder)
    kinds = LabelKinds(continuous, discrete, bins)
    given = read_labels(folder, files, label_source, kinds)
    order, successive = given.grid_order(), are_in_numerical_order(files)
    if order is not None:
        successive = successive and np.array_equal(order, np.arange(len(order)))
        files, given = [files[i] for i in order], given.select_rows(order)
    state = files_state(folder, files)
    table = image_table(folder, files, state, size, channels, progress)
    warn_of_dark_images(table, str(folder))
    exact = () if given.exact is None else (given.continuous, given.exact.tobytes())
    source = _digest(state, size, table.shape[1], given.values, given.numbers.tobytes(), *exact)
    options = {"size": None if size == 64 else size, "channels": channels, "labels": label_source, **kinds.options()}
    data = assemble_data(_name_with_options(folder, options), table, given, device, source)
    data.successive = bool(successive)
    return data


def from_file(
    path: str | Path,
    *,
    images: str | None = None,
    factors: str | Path | None = None,
    names: str | Sequence[str] | None = None,
    layout: str | None = None,
    continuous: str | Sequence[str] | None = None,
    discrete: str | Sequence[str] | None = None,
    bins: int | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> OwnData:
    """Make a dataset from the arrays in a .npz or .npy file, or from a table in a .parquet or .h5ad file.

    Python objects in a file are never unpickled.
    The arrays must have shapes and types that `from_arrays` accepts. A .npy file is memory-mapped. In a .parquet file,
    columns of floats form vectors, and the other columns are factors. In an .h5ad file (AnnData), the rows of `X` are
    vectors, and the columns of `obs` are factors.

    Args:
        path: Path of the file.
        images: For a .npz file, the name of the array of examples. The default is images, x or imgs. For a .parquet
            file, the columns of the vectors, separated by commas. For an .h5ad file, the name of a layer.
        factors: For a .npz file, the name of the array of factors. The default is factors, labels, latents_classes or
            y, if one of these exists. For a file STEM.npy, the path of a second .npy file. The default is
            STEM_factors.npy, if it exists. For a .parquet or .h5ad file, the columns of the factors, separated by
            commas.
        names: Names of the factors, as a list or separated by commas. The default is the array factor_names or names of
            a .npz file, if it exists.
        layout: "hw", "hwc" or "chw"; see `from_arrays`.
        continuous: Names of continuous factors, as a list or separated by commas; see `from_arrays`.
        discrete: Names of factors whose values are classes, in the same form.
        bins: Number of bins of continuous factors. The default is 10.
        device: Device on which to store the examples.
        progress: Called once, with 1.0, at the end.

    Returns:
        The dataset; see `from_arrays`.

    Raises:
        UserError: If the file cannot be read, or if its arrays cannot be used.
    """
    file = _resolve_path(path)
    if file.is_dir():
        raise UserError(f"{file} must be a file of arrays. Got a folder instead. Use from_folder for images.")
    if file.suffix == ".npy" and factors is not None:
        factors = resolve_path(factors)
    arrays = _read_arrays(file, images, factors)
    names = split_names(names) if isinstance(names, str) else names
    options: dict[str, object] = {
        "images": images,
        "factors": factors and str(factors),
        "names": None if names is None else tuple(names),
        "layout": layout,
    }
    kinds = LabelKinds(continuous, discrete, bins)
    options |= {key: value for key, value in kinds.options().items() if value is not None}
    if names is None:
        names = arrays.names
    name = _name_with_options(file, options)
    try:
        data = from_arrays(
            arrays.examples,
            arrays.factors,
            names=names,
            name=name,
            layout=layout,
            continuous=continuous,
            discrete=discrete,
            bins=bins,
            device=device,
        )
    except (ValueError, TypeError) as error:
        raise UserError(f"The arrays in {file} cannot be used. {error}") from error
    data.source = _digest([files_state(path.parent, [path.name]) for path in arrays.files], options)
    if progress:
        progress(1.0)
    return data


def load_own(path_and_options: str, device: str | torch.device = "cpu", progress: Progress | None = None) -> OwnData:
    """Load a folder of images, or a .npy, .npz, .parquet or .h5ad file.

    The path may be followed by options, as in photos?size=32&channels=1. Options are the arguments of `from_folder` or
    `from_file`. The name of the dataset is the absolute path followed by the options, so the dataset can be loaded
    again by this name from any working directory.
    """
    path, given = _split_options(path_and_options)
    folder = _resolve_path(path).is_dir()
    known = FOLDER_OPTIONS if folder else FILE_OPTIONS
    options: dict[str, Any] = {}
    for key, values in given.items():
        if key not in known:
            raise UserError(unknown_name_message("option of own data", key, known))
        if len(values) > 1 and key not in LIST_OPTIONS:
            raise UserError(f"The option '{key}' of {path} may occur only once. Got {', '.join(values)}. Remove one.")
        options[key] = tuple(values) if key in LIST_OPTIONS else values[-1]
        if key in NUMBER_OPTIONS:
            if not values[-1].isdecimal():
                raise UserError(f"The '{key}' of {path} must be a whole number. Got {values[-1]!r} instead.")
            options[key] = int(values[-1])
    return (from_folder if folder else from_file)(path, **options, device=device, progress=progress)


def _split_options(text: str) -> tuple[str, dict[str, list[str]]]:
    """Split a path from the options after its last question mark.

    If a file or folder exists whose name is the whole text, the question mark belongs to its name.
    """
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
    """Return the path followed by the options that are not None, in the form that `load_own` accepts."""
    given = {key: value for key, value in options.items() if value is not None}
    return f"{path}?{urlencode(given, doseq=True, quote_via=quote, safe='/')}" if given else str(path)


def _resolve_path(path: str | Path) -> Path:
    """Return the absolute path of a folder or of a file of arrays, or raise a UserError if it does not exist."""
    found = resolve_path(path)
    if str(path) and (found.is_dir() or (found.is_file() and found.suffix in SUFFIXES)):
        return found
    got = f"the file {found.name}" if found.is_file() else "a path that does not exist"
    raise UserError(
        f"{path!s} must be a folder of images, or a file of arrays ({', '.join(SUFFIXES)}). Got {got} instead."
    )


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _read_arrays(file: Path, images: str | None, factors: str | Path | None) -> LoadedArrays:
    """Read a file of arrays or a table."""
    if file.suffix in (".npy", ".npz"):
        return (_read_npz if file.suffix == ".npz" else _read_npy)(file, images, factors)
    read = read_parquet if file.suffix == ".parquet" else read_h5ad
    table = read(file, images, None if factors is None else str(factors))
    return LoadedArrays(table.examples, table.factors, None, [file])


class LoadedArrays(NamedTuple):
    """The arrays of a file.

    Attributes:
        examples: The examples.
        factors: The factors, or None if there are none.
        names: Names of the factors, or None if the file does not contain them.
        files: Paths of the files that the arrays were read from.
    """

    examples: Array
    factors: Array | dict[str, Any] | None
    names: list[str] | None
    files: list[Path]


def _read_npz(file: Path, images: str | None, factors: str | Path | None) -> LoadedArrays:
    # Open the archive with zipfile first, because numpy does not close a damaged file.
    with _convert_read_errors(file), file.open("rb") as stream, zipfile.ZipFile(stream):
        archive = np.load(stream, allow_pickle=False)
        examples, found = _read_array(file, archive, images, IMAGES), _read_array(file, archive, factors, FACTORS)
        if examples is None:
            keys = ", ".join(archive.files) or "none"
            raise UserError(
                f"{file} must have an array {' or '.join(IMAGES)}. Got {keys} instead. To use a "
                "different array, add ?images=NAME to the path, or pass images='NAME' to from_file."
            )
        return LoadedArrays(examples, found, _read_names(file, archive, found), [file])


def _read_npy(file: Path, images: str | None, factors: str | Path | None) -> LoadedArrays:
    if images is not None:
        raise UserError(
            f"The argument 'images' must not be used with a .npy file, which contains a single array without a name. "
            f"Got {images!r} for {file} instead. Omit it."
        )
    factor_file = file.with_name(f"{file.stem}_factors.npy") if factors is None else Path(factors)
    if factors is None and not factor_file.is_file():
        return LoadedArrays(_map_array(file), None, None, [file])
    return LoadedArrays(_map_array(file), _map_array(factor_file), None, [file, factor_file])


def _map_array(file: Path) -> Array:
    """Memory-map a .npy file. The pages are private, so writing to the array does not change the file."""
    with _convert_read_errors(file):
        return _check_array(file, np.lib.format.open_memmap(file, mode="c"))


def _check_array(file: Path, found: Array | bytes) -> Array:
    """Return what numpy has read from a file. Raise a UserError if it is not an array, or has text that is damaged."""
    if isinstance(found, bytes):  # numpy returns the bytes of a member of an archive that is not an array
        raise UserError(f"{file} must contain arrays only. Got other bytes in one of its members. Save it again.")
    if found.dtype.kind == "U":
        characters = np.array(found, found.dtype.newbyteorder("=")).reshape(-1).view(np.uint32)
        if ((characters > sys.maxunicode) | (characters >> 11 == SURROGATES)).any():
            raise UserError(f"The text in {file} must consist of characters. Got other bytes instead. Save it again.")
    return found


@contextlib.contextmanager
def _convert_read_errors(file: Path) -> Iterator[None]:
    """Convert the exceptions that numpy raises for a damaged file to a UserError."""
    try:
        yield
    except UserError:
        raise
    except READ_ERRORS as error:
        raise UserError(
            f"{file} must be a complete {file.suffix} file of numbers. Reading it failed: {read_reason(error)}. Save "
            "it again. Python objects are never unpickled."
        ) from error


def _read_array(file: Path, archive: Any, name: str | Path | None, defaults: Sequence[str]) -> Array | None:
    """Return the array called `name`.

    If `name` is None, return the first array of `defaults` that exists, or None if none of them exists.
    """
    key = str(name) if name is not None else next((key for key in defaults if key in archive.files), None)
    if key is None:
        return None
    if key not in archive.files:
        raise UserError(unknown_name_message(f"array of {file}", key, archive.files))
    return _check_array(file, archive[key])


def _read_names(file: Path, archive: Any, factors: Array | None) -> list[str] | None:
    """Return the names of the factors in an archive.

    Return None unless the archive contains an array of strings with one name per factor.
    """
    for key in NAMES:
        if factors is not None and key in archive.files:
            with contextlib.suppress(ValueError):  # raised by numpy for arrays of Python objects, which are ignored
                found = _check_array(file, archive[key])
                found = found.astype(str) if found.dtype.kind == "S" else found
                if found.dtype.kind == "U" and found.shape == (factors.shape[1:] or (1,)):
                    return list(map(str, found))
    return None
