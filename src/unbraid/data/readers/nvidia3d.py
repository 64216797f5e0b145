"""Read Isaac3D and Falcor3D from their published files with 128x128 pixels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from unbraid.data.dataset import Progress
from unbraid.data.files.convert import ByteArray, cached_table
from unbraid.data.files.locate import locate_files
from unbraid.data.in_memory import ByteImages
from unbraid.data.readers.npz import read_header
from unbraid.data.readers.pictures import file_opener, read_picture
from unbraid.data.readers.verify import (
    REMEDY,
    Array,
    Stream,
    convert_read_errors,
    expect,
    expect_end,
    expect_numbers,
    read_exactly,
)
from unbraid.errors import UserError

SOURCE_PIXELS, PIXELS = 128, 64
BLOCK_ROWS = 256


@dataclass(frozen=True)
class Format:
    """The files and the factors of a dataset.

    Attributes:
        name: The name of the dataset.
        labels: The name of the file of labels.
        names: The names of the factors. The last factor varies fastest.
        sizes: The number of values of each factor.
        categorical: The names of the factors whose values have no order.
    """

    name: str
    labels: str
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    categorical: tuple[str, ...] = ()


ISAAC3D = Format(
    "isaac3d",
    "labels.npy",
    ("object_shape", "robot_x", "robot_y", "camera_height", "object_scale", "lighting_intensity", "lighting_y",
     "object_color", "wall_color"),
    (3, 8, 5, 4, 4, 4, 6, 4, 4),
    ("object_shape",),
)  # fmt: skip
FALCOR3D = Format(
    "falcor3d",
    "train-rec.labels",
    ("lighting_intensity", "lighting_x", "lighting_y", "lighting_z", "camera_x", "camera_y", "camera_z"),
    (5, 6, 6, 6, 6, 6, 6),
)


def isaac3d(
    device: str | torch.device = "cpu", root: str | Path | None = None, progress: Progress | None = None
) -> ByteImages:
    """Load Isaac3D: 737,280 images 64x64x3 of a robot arm in a kitchen, with nine factors.

    The published images with 128x128 pixels are resized with a Lanczos filter. The labels are checked: they must match
    the full grid of factors. The authors' description lists the factors in an order that does not fit their numbers of
    values. The order used here does fit. It is also used by the code of the paper on latent quantisation
    (arXiv:2305.18378).
    Reference: Nie et al. (2020), arXiv:2003.03461.
    """
    return read_nvidia3d(ISAAC3D, locate_files("isaac3d", root), device=device, progress=progress)


def falcor3d(
    device: str | torch.device = "cpu", root: str | Path | None = None, progress: Progress | None = None
) -> ByteImages:
    """Load Falcor3D: 233,280 images 64x64x3 of a living room, with seven factors of light and camera.

    The published images with 128x128 pixels are resized with a Lanczos filter. The labels are checked: they must match
    the full grid of factors.
    Reference: Nie et al. (2020), arXiv:2003.03461.
    """
    return read_nvidia3d(FALCOR3D, locate_files("falcor3d", root), device=device, progress=progress)


def read_nvidia3d(
    form: Format,
    files: Mapping[str, Path],
    sizes: tuple[int, ...] | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> ByteImages:
    """Read the pictures 000000.png, 000001.png and so on, and the file of labels.

    Args:
        form: The files and the factors of the dataset.
        files: A dictionary from names to paths. It contains either one zip archive with pictures and labels, or the
            folder of pictures and the file of labels.
        sizes: The number of values of each factor. The default is `form.sizes`, as in the published files.
        device: Device on which to store the images.
        progress: Called with the finished fraction, from 0 to 1.

    Returns:
        The dataset, with images of 64x64 pixels.

    Raises:
        UserError: If a file is damaged, or if the labels do not match the grid of factors.
    """
    grid = form.sizes if sizes is None else sizes
    by_name = {Path(name).name: path for name, path in files.items()}
    pictures = next(path for name, path in by_name.items() if name != form.labels)
    labels = by_name.get(form.labels)

    def blocks() -> Iterator[ByteArray]:
        with ExitStack() as stack:
            open_file = stack.enter_context(file_opener(pictures))
            stream = labels.open("rb") if labels else open_file(form.labels)
            check_labels(labels or pictures / form.labels, stack.enter_context(stream), grid)
            for start in range(0, math.prod(grid), BLOCK_ROWS):
                names = [f"{i:06d}.png" for i in range(start, min(start + BLOCK_ROWS, math.prod(grid)))]
                expected = (SOURCE_PIXELS, SOURCE_PIXELS)
                yield np.stack([read_picture(pictures, open_file, name, expected, PIXELS) for name in names])

    shape = (3, PIXELS, PIXELS)
    table = cached_table(form.name, list(files.values()), (math.prod(grid), *shape), blocks, progress)
    data = ByteImages(form.name, form.names, grid, shape, table.to(device))
    data.categorical = form.categorical
    return data


def check_labels(path: Path, stream: Stream, sizes: tuple[int, ...]) -> None:
    """Raise a UserError unless the labels match the grid of factors.

    Column j of the labels must depend only on factor j, and must have a different number for each value of the factor.
    """
    shape = (math.prod(sizes), len(sizes))
    with convert_read_errors(path, "npy"):
        found = read_header(path, "labels", stream)
        expect(path, "shape", shape, found.shape)
        expect_numbers(path, "labels", "f", found.dtype)
        content = read_exactly(found.stream, math.prod(shape) * found.dtype.itemsize)
        expect_end(found.stream)
    labels: Array = np.frombuffer(content, found.dtype).reshape(*sizes, len(sizes))
    for j, size in enumerate(sizes):
        by_value = np.moveaxis(labels[..., j], j, 0).reshape(size, -1)
        if len(np.unique(by_value[:, 0])) < size or not (by_value == by_value[:, :1]).all():
            raise UserError(
                f"Column {j} of the labels in {path} must have a different number for each of the {size} values of a "
                f"factor, in the order of the pictures. Got a different order instead. {REMEDY}"
            )
