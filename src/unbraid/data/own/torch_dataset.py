"""Read a torch Dataset, or any other sequence of examples, into memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from unbraid.data.dataset import Progress
from unbraid.data.own.arrays import OwnData, from_arrays
from unbraid.data.own.examples import Array, numeric_array, scale_to_bytes
from unbraid.data.own.images import is_grey, to_8_bit
from unbraid.data.own.label_table import default_names
from unbraid.errors import UserError, warn_user


def from_dataset(
    dataset: Dataset[Any] | Iterable[Any],
    *,
    names: str | Sequence[str] | None = None,
    name: str = "dataset",
    layout: str | None = None,
    continuous: str | Sequence[str] | None = None,
    discrete: str | Sequence[str] | None = None,
    bins: int | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> OwnData:
    """Make a dataset from a torch Dataset, or from anything that yields x or (x, y).

    All examples are read into memory once. Random transforms are therefore applied only once.

    Args:
        dataset: Yields x or (x, y). x is a Pillow image, an array or a tensor. All x must have the same shape, which
            must be one that `from_arrays` accepts for a single image or vector. If the examples are Pillow images, the
            first one decides whether the data are grey or colour. y is a number or a word, a sequence of numbers or
            words, a dictionary that maps the names of factors to numbers or words, or None for no labels. NaN or None
            among several labels is a missing label.
        names: Names of the factors. The default is the keys of y, if it is a dictionary. Otherwise it is "factor0",
            "factor1" and so on, or "label" for a single factor.
        name: Name of the dataset.
        layout: "hw", "hwc" or "chw"; see `from_arrays`.
        continuous: Names of continuous factors, as a list or separated by commas; see `from_arrays`.
        discrete: Names of factors whose values are classes, in the same form.
        bins: Number of bins of continuous factors. The default is 10.
        device: Device on which to store the examples.
        progress: Called with the finished fraction, from 0 to 1.

    Returns:
        The dataset; see `from_arrays`.

    Raises:
        UserError: If there are no examples, or if an example or its labels do not have the same type and shape as
            those of the first example.

    >>> from_dataset([(torch.zeros(1, 8, 8), label) for label in range(3)])
    dataset: 3 examples of shape (1, 8, 8), factors label 3
    """
    first: Array | None = None
    content = bytearray()  # a bytearray grows in place, whereas a list of arrays would have to be copied at the end
    labels: list[dict[str, int | float | str]] = []
    named = False  # whether the labels have names
    for i, item in enumerate(_iterate_examples(dataset, progress)):
        x, y = _split_item(item, i)
        example = _example_array(x, first, i)
        first, named = (example, isinstance(y, Mapping)) if first is None else (first, named)
        content += example.tobytes()
        labels.append(_label_values(y, labels[0] if labels else None, i))
    if first is None:
        raise UserError("A dataset must yield at least one example. Got none instead.")
    if progress:
        progress(1.0)
    table = np.frombuffer(content, first.dtype).reshape(-1, *first.shape)
    given = list(labels[0]) if labels[0] and named else None
    factors = _label_columns(labels, given) if labels[0] else None
    return from_arrays(
        table,
        factors,
        names=names or given,
        name=name,
        layout=layout,
        continuous=continuous,
        discrete=discrete,
        bins=bins,
        device=device,
    )


def _iterate_examples(dataset: Any, progress: Progress | None) -> Iterator[Any]:
    """Yield the examples, by index if the dataset has a length and by iteration otherwise."""
    if isinstance(dataset, Mapping):
        raise UserError(
            f"A dataset must yield x or (x, y). Got a {type(dataset).__name__} instead. Pass its values, or use "
            "from_arrays for a dictionary of arrays."
        )
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        yield from dataset
        return
    n = len(dataset)
    for i in range(n):
        yield dataset[i]
        if progress:
            progress((i + 1) / n)


def _split_item(item: Any, i: int) -> tuple[Any, Any]:
    if not isinstance(item, tuple | list):
        return item, None
    if len(item) not in (1, 2):
        raise UserError(
            f"A dataset must yield x or (x, y). Got {len(item)} values at index {i} instead. Wrap the dataset in one "
            "that yields (x, y)."
        )
    return item[0], item[1] if len(item) == 2 else None


def _example_array(x: Any, first: Array | None, i: int) -> Array:
    """Convert one example to an array. Float images are converted to uint8, which takes a quarter of the memory."""
    array = numeric_array(x, f"Example {i}") if isinstance(x, torch.Tensor | np.ndarray) else _image_array(x, first, i)
    if array.dtype.kind == "f" and array.ndim > 1:
        array = scale_to_bytes(array, f"Pixels of example {i}")
    if first is not None and (array.shape != first.shape or array.dtype != first.dtype):
        raise UserError(
            f"All examples must have the type and shape of the first, {first.dtype} {first.shape}. Got {array.dtype} "
            f"{array.shape} at index {i} instead. Resize or crop the examples in the dataset."
        )
    return array


def _image_array(x: Any, first: Array | None, i: int) -> Array:
    from PIL import Image

    if not isinstance(x, Image.Image):
        raise UserError(
            f"An example must be a Pillow image, an array or a tensor. Got {type(x).__name__} at index {i} instead."
        )
    grey = is_grey(x) if first is None else first.ndim == 2
    if grey and not is_grey(x):
        warn_user(
            "The first image of the dataset is grey, so its images in colour are converted to grey. To keep their "
            "colours, convert all images in the dataset with image.convert('RGB')."
        )
    return np.array(to_8_bit(x, 1 if grey else 3))


def _label_columns(labels: list[dict[str, int | float | str]], given: list[str] | None) -> Any:
    """Return the labels of all examples as an array (n, k), or as a dictionary of columns if some labels are words.

    `given` are the names of the factors, or None if they have no names.
    """
    if any(isinstance(value, str) for label in labels for value in label.values()):
        names = default_names(len(labels[0])) if given is None else given
        keys = dict(zip(names, labels[0], strict=True))
        return {name: np.array([label[key] for label in labels], dtype=object) for name, key in keys.items()}
    return np.array([list(label.values()) for label in labels])


def _label_values(y: Any, first: dict[str, int | float | str] | None, i: int) -> dict[str, int | float | str]:
    """Return the labels of an example by name. Labels without a name are called "0", "1" and so on."""
    if isinstance(y, Mapping):
        found = {str(key): _number_or_word(value, i) for key, value in y.items()}
    elif y is None:
        found = {}
    else:
        values = y if isinstance(y, list | tuple) else [y] if isinstance(y, str) else np.atleast_1d(np.asarray(y))
        found = {str(j): _number_or_word(value, i) for j, value in enumerate(values)}
    if first is not None and found.keys() != first.keys():
        raise UserError(
            f"All examples must have the same labels as the first, {list(first)}. Got {list(found)} at index {i} "
            "instead."
        )
    return found if first is None else {key: found[key] for key in first}


def _number_or_word(value: Any, i: int) -> int | float | str:
    """Return a label as a number or a word. None becomes NaN, which is a missing label."""
    if isinstance(value, str):
        return str(value)
    number = np.asarray(math.nan if value is None else value)
    if number.shape != () or number.dtype.kind not in "buif":
        raise UserError(f"A label must be a number or a word, or several of them. Got {value!r} at index {i} instead.")
    return float(number) if number.dtype.kind == "f" else int(number)
