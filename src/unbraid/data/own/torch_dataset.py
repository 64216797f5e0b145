"""Read a torch Dataset, or any other sequence of examples, into memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from unbraid.data.dataset import Progress
from unbraid.data.own.arrays import Array, OwnData, from_arrays, numeric_array, scale_to_bytes
from unbraid.data.own.images import is_grey, to_8_bit
from unbraid.errors import UserError


def from_dataset(
    dataset: Dataset[Any] | Iterable[Any],
    *,
    names: Sequence[str] | None = None,
    name: str = "dataset",
    layout: str | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> OwnData:
    """Make a dataset from a torch Dataset, or from anything that yields x or (x, y).

    All examples are read into memory once. Random transforms are therefore applied only once.

    Args:
        dataset: Yields x or (x, y). x is a Pillow image, an array or a tensor. All x must have the same shape, which
            must be one that `from_arrays` accepts for a single image or vector. If the examples are Pillow images, the
            first one decides whether the data are grey or colour. y is an integer, a sequence of integers, a dictionary
            from the names of factors to integers, or None for no labels.
        names: Names of the factors. The default is the keys of y, if it is a dictionary.
        name: Name of the dataset.
        layout: "hw", "hwc" or "chw"; see `from_arrays`.
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
    labels: list[dict[str, int]] = []
    for i, item in enumerate(_iterate_examples(dataset, progress)):
        x, y = _split_item(item, i)
        example = _example_array(x, first, i)
        first = example if first is None else first
        content += example.tobytes()
        labels.append(_label_values(y, labels[0] if labels else None, i))
    if first is None:
        raise UserError("A dataset must yield at least one example. Got none instead.")
    if progress:
        progress(1.0)
    table = np.frombuffer(content, first.dtype).reshape(-1, *first.shape)
    factors = np.array([list(label.values()) for label in labels], np.int64) if labels[0] else None
    given = list(labels[0]) if labels[0] and not next(iter(labels[0])).isdigit() else None
    return from_arrays(table, factors, names=names or given, name=name, layout=layout, device=device)


def _iterate_examples(dataset: Any, progress: Progress | None) -> Iterator[Any]:
    """Yield the examples, by index if the dataset has a length and by iteration otherwise."""
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
    return np.array(to_8_bit(x, 1 if grey else 3))


def _label_values(y: Any, first: dict[str, int] | None, i: int) -> dict[str, int]:
    """Return the labels of an example by name. Labels without a name are called "0", "1" and so on."""
    if isinstance(y, Mapping):
        found = {str(key): _whole_number(value, i) for key, value in y.items()}
    elif y is None:
        found = {}
    else:
        values = np.atleast_1d(np.asarray(y)) if not isinstance(y, list | tuple) else y
        found = {str(j): _whole_number(value, i) for j, value in enumerate(values)}
    if first is not None and found.keys() != first.keys():
        raise UserError(
            f"All examples must have the same labels as the first, {list(first)}. Got {list(found)} at index {i} "
            "instead."
        )
    return found if first is None else {key: found[key] for key in first}


def _whole_number(value: Any, i: int) -> int:
    number = np.asarray(value)
    if number.shape != () or number.dtype.kind not in "bui":
        raise UserError(f"A label must be an integer or several integers. Got {value!r} at index {i} instead.")
    return int(number)
