"""Any sequence of examples, a torch Dataset for one, read once into memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from unbraid.data.dataset import Progress
from unbraid.data.own.arrays import Array, OwnData, as_numbers, from_arrays, scaled
from unbraid.data.own.images import is_grey, plain
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
    """A torch Dataset, or anything that gives x or (x, y) one after the other, as data in memory.

    x is a Pillow image, an array or a tensor, all of one shape, as `from_arrays` takes it less the first axis. y is a
    whole number, a sequence of them, or a dictionary of them, whose keys then name the factors; None is no label.
    Colour or grey is decided by the first Pillow image. Transforms run once: random ones are frozen as they came.
    """
    first: Array | None = None
    content = bytearray()  # grows in place, where a list of arrays would have to be copied in the end
    labels: list[dict[str, int]] = []
    for i, item in enumerate(_items(dataset, progress)):
        x, y = _pair(item, i)
        example = _example(x, first, i)
        first = example if first is None else first
        content += example.tobytes()
        labels.append(_label(y, labels[0] if labels else None, i))
    if first is None:
        raise UserError("A dataset must give at least one example. Got none instead.")
    if progress:
        progress(1.0)
    table = np.frombuffer(content, first.dtype).reshape(-1, *first.shape)
    factors = np.array([list(label.values()) for label in labels], np.int64) if labels[0] else None
    given = list(labels[0]) if labels[0] and not next(iter(labels[0])).isdigit() else None
    return from_arrays(table, factors, names=names or given, name=name, layout=layout, device=device)


def _items(dataset: Any, progress: Progress | None) -> Iterator[Any]:
    """One example after the other: by number where the dataset has a length, else by iteration."""
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        yield from dataset
        return
    n = len(dataset)
    for i in range(n):
        yield dataset[i]
        if progress:
            progress((i + 1) / n)


def _pair(item: Any, i: int) -> tuple[Any, Any]:
    if not isinstance(item, tuple | list):
        return item, None
    if len(item) not in (1, 2):
        raise UserError(f"A dataset must give x or (x, y). Got {len(item)} things at {i} instead. Wrap the dataset.")
    return item[0], item[1] if len(item) == 2 else None


def _example(x: Any, first: Array | None, i: int) -> Array:
    """One example as an array; floats that are images become bytes at once, which take a quarter of the memory."""
    array = as_numbers(x, f"Example {i}") if isinstance(x, torch.Tensor | np.ndarray) else _picture(x, first, i)
    if array.dtype.kind == "f" and array.ndim > 1:
        array = scaled(array, f"Pixels of example {i}")
    if first is not None and (array.shape != first.shape or array.dtype != first.dtype):
        raise UserError(
            f"All examples must have the form of the first, {first.dtype} {first.shape}. Got {array.dtype} "
            f"{array.shape} at {i} instead. Resize or crop them in the dataset."
        )
    return array


def _picture(x: Any, first: Array | None, i: int) -> Array:
    from PIL import Image

    if not isinstance(x, Image.Image):
        raise UserError(
            f"An example must be a Pillow image, an array or a tensor. Got {type(x).__name__} at {i} instead."
        )
    grey = is_grey(x) if first is None else first.ndim == 2
    return np.array(plain(x, 1 if grey else 3))


def _label(y: Any, first: dict[str, int] | None, i: int) -> dict[str, int]:
    """Whole numbers by name; those without one are called "0", "1" and so on."""
    if isinstance(y, Mapping):
        found = {str(key): _whole(value, i) for key, value in y.items()}
    elif y is None:
        found = {}
    else:
        values = np.atleast_1d(np.asarray(y)) if not isinstance(y, list | tuple) else y
        found = {str(j): _whole(value, i) for j, value in enumerate(values)}
    if first is not None and found.keys() != first.keys():
        raise UserError(
            f"All examples must have the labels of the first, {list(first)}. Got {list(found)} at {i} instead."
        )
    return found if first is None else {key: found[key] for key in first}


def _whole(value: Any, i: int) -> int:
    number = np.asarray(value)
    if number.shape != () or number.dtype.kind not in "bui":
        raise UserError(f"A label must be a whole number, or several. Got {value!r} at {i} instead.")
    return int(number)
