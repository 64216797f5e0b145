"""Return a dataset that is given by name, as an object or as arrays, and show the progress of loading it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from unbraid.data import load
from unbraid.data.dataset import FactorData
from unbraid.data.own.arrays import OwnData, from_arrays
from unbraid.data.own.images import is_grey, to_8_bit
from unbraid.data.own.load import FACTORS, IMAGES
from unbraid.data.own.tables import anndata_table, huggingface_examples, is_anndata, is_huggingface_dataset
from unbraid.data.own.torch_dataset import from_dataset
from unbraid.errors import UserError
from unbraid.runtime.progress import progress

# A name or a path, a dataset, an array or a list of examples, a pair (examples, factors), or a torch dataset.
DataLike: TypeAlias = str | os.PathLike[str] | FactorData | Any


def load_data(
    data: DataLike,
    device: str | torch.device = "cpu",
    quiet: bool = False,
    root: str | Path | None = None,
) -> FactorData:
    """Return `data` as a dataset on `device`. Names and paths are loaded, and arrays and torch datasets are converted.

    Progress is shown if loading takes more than two seconds.

    Args:
        data: A dataset, a name or path that `unbraid.data.load` accepts, an array of examples, a list of images, a pair
            of examples and factors (see `from_arrays`), or a torch dataset (see `from_dataset`).
        device: Device on which to store the examples.
        quiet: Whether to hide the progress.
        root: Folder of the published files; see `unbraid.data.load`.

    Returns:
        The dataset.

    Raises:
        UserError: If the dataset cannot be loaded or converted.
    """
    if not isinstance(data, str | os.PathLike):
        return (data if isinstance(data, FactorData) else convert_data(data)).to(device)
    name = os.fspath(data)
    with ExitStack() as stack:
        show_percent = None if quiet else stack.enter_context(progress(f"preparing {name}", 100))
        show_fraction = None if show_percent is None else (lambda fraction: show_percent(100 * fraction))
        return load(name, device=device, progress=show_fraction, root=root)


def convert_data(data: Any) -> OwnData:
    """Make a dataset from examples in memory.

    The examples may be an array, a list of images, a pair (examples, factors), a mapping with the keys of a .npz file
    (see `from_file`), a torch or Hugging Face dataset, or AnnData.

    >>> import numpy as np
    >>> convert_data((np.zeros((3, 8, 8)), ["a", "b", "b"]))
    arrays: 3 examples of shape (1, 8, 8), factors label 2 (not a full grid)
    """
    if is_huggingface_dataset(data):
        return from_dataset(huggingface_examples(data))
    if is_anndata(data):
        return from_arrays(*anndata_table(data))
    if isinstance(data, DataLoader):
        raise UserError("The data must be a dataset. Got a DataLoader instead. Pass its dataset: loader.dataset.")
    if isinstance(data, Dataset):
        return from_dataset(data)
    if isinstance(data, Mapping) and (images := [name for name in IMAGES if name in data]):
        factors = [name for name in FACTORS if name in data]
        return from_arrays(data[images[0]], data[factors[0]] if factors else None)
    if isinstance(data, tuple | list) and len(data) == 2 and _is_array(data[0]) and not _are_two_images(data):
        return from_arrays(data[0], data[1])
    if _is_array(data):
        return from_arrays(data)
    if isinstance(data, list | tuple) and data and all(_is_image(one) for one in data):
        return from_arrays(_stack_images(data))
    raise UserError(
        "The data must be the name of a dataset, the path of your own data, an array of images or vectors, a list of "
        "images, a pair (images, factors), a torch or Hugging Face dataset, or AnnData. "
        f"Got {type(data).__name__} instead. "
        "See ub.data.from_arrays."
    )


def _are_two_images(data: Any) -> bool:
    """Return whether a list of two arrays consists of two images, and is not a pair of examples and factors."""
    return isinstance(data, list) and _is_array(data[1]) and tuple(data[0].shape) == tuple(data[1].shape)


def _is_image(value: Any) -> bool:
    """Return whether a value can be one image or vector: an array, a tensor or a Pillow image."""
    return _is_array(value) or hasattr(value, "__array_interface__")


def _stack_images(images: Sequence[Any]) -> Any:
    """Return a list of images as one array. Raise a UserError if their sizes differ."""
    if all(hasattr(image, "getbands") for image in images):
        channels = 1 if all(map(is_grey, images)) else 3
        images = [to_8_bit(image, channels) for image in images]
    arrays = [np.asarray(image.detach().cpu() if isinstance(image, torch.Tensor) else image) for image in images]
    shapes = list(dict.fromkeys(array.shape for array in arrays))
    if len(shapes) > 1:
        raise UserError(
            f"All images of a list must have the same shape. Got {shapes[0]} and {shapes[1]}. Resize them, or save "
            "them in a folder and pass its path with ?size=64, which resizes them."
        )
    return np.stack(arrays)


def _is_array(value: Any) -> bool:
    """Return whether a value is an array, a tensor or a data frame."""
    return hasattr(value, "shape") and hasattr(value, "__array__")
