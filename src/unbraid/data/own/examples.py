"""Check examples that are given as arrays, and convert them to the form in which they are stored."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.errors import UserError, warn_user

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

LAYOUTS = ("hw", "hwc", "chw")
CHANNELS = (1, 3)
CHUNK = 1024  # number of images that are checked and scaled at once
DARK = 32  # images whose pixels are all below this byte were probably scaled to a wrong range
DARK_SAMPLE = 1000  # number of images that are searched for a brighter pixel
ROUNDING = 1e-6  # pixels may exceed their range by this much


def numeric_array(values: object, what: str) -> Array:
    """Convert a tensor, an array or nested lists to a numpy array, or raise a UserError if it is not numeric."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = values.float() if values.dtype == torch.bfloat16 else values
    if np.ma.is_masked(values):
        raise UserError(f"{what} must not be masked. Got a masked array instead. Fill its entries, or remove the rows.")
    try:
        array = np.asarray(values)
    except ValueError:
        raise UserError(f"{what} must be a rectangular array. Got rows of unequal length instead.") from None
    except TypeError as error:  # for example, a sparse tensor
        raise UserError(f"{what} must be an array or a dense tensor. Reading them failed: {error}") from error
    if array.dtype.kind not in "buif":
        advice = "Convert words to integers with np.unique(words, return_inverse=True)."
        hint = advice if what == "Factors" else "Convert them to numbers first."
        raise UserError(f"{what} must be real numbers. Got {array.dtype} instead. {hint}")
    return array


def example_table(examples: object, layout: str | None = None) -> Array:
    """Check examples and convert them to bytes (images) or floats (vectors).

    Args:
        examples: Images or vectors in one of the forms that `from_arrays` accepts.
        layout: Order of the axes of one image, or None to infer it.

    Returns:
        Images, uint8 of shape (n, c, h, w), or vectors, float32 of shape (n, d).
    """
    array = numeric_array(examples, "Examples")
    if array.ndim == 0 or 0 in array.shape:
        raise UserError(f"There must be at least one example. Got an array of shape {array.shape} instead.")
    if array.ndim == 2 and layout is None:
        return float_vectors(array)
    return byte_images(channels_first(array, layout))


def network_input(examples: object, shape: tuple[int, ...] | None) -> Float[Tensor, "n ..."]:
    """Check examples and convert them to the form that a network takes.

    Args:
        examples: Images or vectors in one of the forms that `from_arrays` accepts.
        shape: Shape of one example: (c, h, w) for images, (d,) for vectors. None means that any shape is accepted.

    Returns:
        Examples, float32 of shape (n, *shape). The pixels of images are in [0, 1]. Unlike in `from_arrays`, floats are
        not rounded to multiples of 1/255.

    >>> network_input([[[0, 255], [51, 0]]], (1, 2, 2)).tolist()
    [[[[0.0, 1.0], [0.20000000298023224, 0.0]]]]
    """
    if isinstance(examples, Tensor) and examples.is_floating_point():
        array: Array | Tensor = examples.detach()
    else:
        if isinstance(examples, str) or hasattr(examples, "images"):
            got = "a text" if isinstance(examples, str) else "a dataset"
            raise UserError(
                f"Examples must be an array. Got {got} instead. Take them from a dataset, as in "
                "ub.data.load('sprites').images(range(100))."
            )
        array = numeric_array(examples, "Examples")
    if array.ndim == 0 or 0 in array.shape:
        raise UserError(f"There must be at least one example. Got an array of shape {tuple(array.shape)} instead.")
    array = array if shape is None else _match_shape(array, shape)
    if array.ndim == 2:
        return torch.from_numpy(float_vectors(numeric_array(array, "Examples")))
    if isinstance(array, Tensor) or array.dtype.kind == "f":
        check_pixels(array)
        return array.float() if isinstance(array, Tensor) else torch.from_numpy(np.array(array, np.float32, order="C"))
    return torch.from_numpy(byte_images(array)) / 255


def _match_shape(array: Any, shape: tuple[int, ...]) -> Any:
    """Bring the axes of examples into the order (n, *shape), or raise a UserError if this is impossible."""
    given = tuple(array.shape[1:])
    if given == shape:
        return array
    if len(shape) == 3 and given == (*shape[1:], shape[0]):
        return array.permute(0, 3, 1, 2) if isinstance(array, Tensor) else array.transpose(0, 3, 1, 2)
    if len(shape) == 3 and shape[0] == 1 and given == shape[1:]:
        return array[:, None]
    sizes = ", ".join(map(str, shape))
    one = tuple(array.shape) in (shape, (*shape[1:], *shape[:1]), shape[1:])
    remedy = "For a single example, pass x[None]." if one else "Crop, resize or reshape them, as for training."
    raise UserError(f"Examples must have shape (n, {sizes}). Got shape {tuple(array.shape)} instead. {remedy}")


def float_vectors(array: Array) -> Array:
    if array.dtype.kind != "f":
        raise UserError(
            f"Vectors (n, d) must be floats. Got {array.dtype} instead. Reshape flattened images to (n, h, w), or "
            "convert vectors with .astype('float32')."
        )
    with np.errstate(over="ignore"):
        vectors = np.array(array, np.float32, order="C")
    if not np.isfinite(vectors).all():
        row = int(np.argwhere(~np.isfinite(vectors))[0, 0])
        raise UserError(f"Vectors must be finite in float32. Got {array[row]} in row {row} instead. Remove such rows.")
    return vectors


def channels_first(array: Array, layout: str | None) -> Array:
    """Return images in any layout as a view of shape (n, c, h, w)."""
    layout = layout or _guess_layout(array.shape)
    if layout not in LAYOUTS or len(layout) != array.ndim - 1:
        raise UserError(
            f"The 'layout' must be one of {', '.join(LAYOUTS)}, with one letter for each axis after the first. "
            f"Got {layout!r} for shape {array.shape} instead."
        )
    images = array[:, None] if layout == "hw" else array.transpose(0, 3, 1, 2) if layout == "hwc" else array
    if images.shape[1] not in CHANNELS:
        raise UserError(f"Images must have 1 or 3 channels. Got {images.shape[1]} in layout {layout!r} instead.")
    return images


def _guess_layout(shape: tuple[int, ...]) -> str:
    """Infer the layout of images of `shape`, or raise a UserError if it is ambiguous."""
    if len(shape) == 3 and shape[2] not in CHANNELS:
        return "hw"
    if len(shape) == 4 and (shape[1] in CHANNELS) != (shape[3] in CHANNELS):
        return "chw" if shape[1] in CHANNELS else "hwc"
    if len(shape) == 3:
        remedy = f"For a single image, pass images[None]. For images that are {shape[2]} wide, pass layout='hw'."
    elif len(shape) == 4 and shape[1] in CHANNELS:
        remedy = "Both axis 1 and axis 3 could be channels. Pass layout='chw' or layout='hwc'."
    else:
        remedy = "Reshape them, for example volumes to vectors of shape (n, d)."
    if len(shape) == 4 and 4 in (shape[1], shape[3]):
        remedy = "Remove an alpha channel, for example with images[..., :3]."
    raise UserError(
        "Images must have shape (n, h, w), (n, h, w, c) or (n, c, h, w) with c = 1 or 3, and vectors must have shape "
        f"(n, d). Got shape {shape} instead. {remedy}"
    )


def byte_images(images: Array) -> Array:
    """Convert images (n, c, h, w) of any numeric type to a contiguous uint8 array.

    Floats from 0 to 1 are multiplied by 255. Integers do not change, unless all of them are 0 or 1. In that case, they
    are multiplied by 255 as well.
    """
    if images.dtype == np.uint8:
        table = np.require(images, requirements=["C", "W"])
    else:
        table = np.empty(images.shape, np.uint8)
        for start in range(0, len(images), CHUNK):
            table[start : start + CHUNK] = scale_to_bytes(images[start : start + CHUNK])
    return table * np.uint8(255) if images.dtype.kind != "f" and table.max() <= 1 else table


def scale_to_bytes(images: Array, what: str = "Pixels") -> Array:
    """Convert pixels to uint8. Floats from 0 to 1 are multiplied by 255, and integers from 0 to 255 do not change."""
    check_pixels(images, what)
    return (np.rint(images.astype(np.float32) * 255) if images.dtype.kind == "f" else images).astype(np.uint8)


def check_pixels(images: Array | Tensor, what: str = "Pixels") -> None:
    """Raise a UserError unless float pixels are in 0..1 and integer pixels are in 0..255."""
    kind = str(images.dtype).removeprefix("torch.")
    high = 1 if "float" in kind else 255
    low, top = float(images.min()), float(images.max())
    if not (low >= -ROUNDING and top <= high + ROUNDING):
        raise UserError(
            f"{what} of type {kind} must be in 0..{high}. Got {low:g} to {top:g} instead. "
            "Remove a normalisation, divide by 255, or convert to uint8."
        )


def warn_of_dark_images(table: Array | Tensor, name: str) -> None:
    """Warn the user if all images of a table are almost, but not completely, black.

    Examples are 12-bit values in 16-bit files, masks with the classes 0, 1 and 2 as pixels, and floats that were
    divided by 255 twice. Only some of the images of a large table are searched.
    """
    if table.ndim != 4:
        return
    brightest = int(table[:: max(1, len(table) // DARK_SAMPLE)].max())
    if 0 < brightest < DARK:
        warn_user(
            f"The brightest pixel of {name} is {brightest} of 255, so the images are almost black and have few grey "
            "levels. Scale their pixels to the whole range, which is 0 to 255 for bytes, 0 to 65,535 for 16-bit files "
            "and 0 to 1 for floats."
        )
