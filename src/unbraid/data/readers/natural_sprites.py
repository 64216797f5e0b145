"""Read the measured transitions of Natural Sprites from their published file, and draw the sprites."""

from __future__ import annotations

import csv
import itertools
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from unbraid.data.dataset import Progress
from unbraid.data.files.convert import ByteArray, cached_table
from unbraid.data.files.locate import locate_files
from unbraid.data.readers.verify import REMEDY, convert_read_errors, expect
from unbraid.data.rendered.spriteworld import ANGLES, PIXELS, SHAPES, Renderer
from unbraid.data.sequences import GridWithTransitions, Sequences
from unbraid.errors import UserError, unknown_name_message
from unbraid.label_kinds import equal_count_bins
from unbraid.noise import Noise

FILE = "downscale_keepaspect.csv"
NAMES = ("x", "y", "scale", "angle", "shape")
MEASURED = NAMES[:3]  # the factors that are measured in videos
SIZES = (32, 32, 6, ANGLES, len(SHAPES))  # sizes of the grid of the discrete variant
VARIANTS = ("continuous", "discrete")
GRID_NAME = "natural_sprites?variant=discrete"
WINDOWS = 3  # number of windows into which a video is divided
OUTLIERS = 0.1  # share of the areas that count as outliers, half of them at each end
# The number of transitions. The authors' notebook data_analysis/data_analysis_both.ipynb prints it.
PAIRS = 234_652
BLOCK_ROWS = 1024
NOT_JSON = str.maketrans({"(": "[", ")": "]"})

Transitions = Float[np.ndarray, "m 2 3"]


def natural_sprites(
    device: str | torch.device = "cpu",
    root: str | Path | None = None,
    progress: Progress | None = None,
    variant: str = "continuous",
) -> Sequences | GridWithTransitions:
    """Load Natural Sprites: white sprites on black that move as objects in videos do, with 64x64 pixels.

    The published file has the positions and areas of objects in the videos of YouTube-VIS, measured from segmentation
    masks of 64x64 pixels. A transition consists of the measurements in two successive frames. The file has 234,652
    transitions. As in the authors' code, a transition is left out if the area before or after it is among the smallest
    or largest 5 %. Each image shows a sprite at a measured position with a measured area.

    The factors are:

    - `x` and `y`, the position of the centre as a fraction of the side of the image, from 0 to 1. `y` increases
      upwards, so that the images are upside down compared with the videos.
    - `scale`, the square root of the area as a fraction of the image. Every shape has an area of `scale` squared.
    - `angle`, one of 40 orientations that are 9 degrees apart. The square, the star and the spokes look the same after
      10 steps. The triangle looks the same after a full turn only.
    - `shape`: square, triangle, star with four points, or spokes.

    By default, x, y and scale are continuous. Each transition is a sequence of two images, with the same orientation
    and shape. ``natural_sprites?variant=discrete`` sorts x, y and area into 32, 32 and 6 bins of equal width and draws
    sprites at the centres of the bins. The images are then a full grid of 32 x 32 x 6 x 40 x 4 combinations.

    Methods with `pairs` set to "consecutive" draw a transition, with the same probability for each. On the grid, they
    also draw an orientation and a shape for each pair.

    Deviations: the authors draw an orientation and a shape each time that a transition is used. In the continuous
    variant, they are drawn once for each transition here, always in the same way, so that there are finitely many
    images. The authors' images have three equal colour channels. Here they have one.

    Args:
        device: Device on which to store the images.
        root: Folder of the published file; see `unbraid.data.load`.
        progress: Called with the finished fraction, from 0 to 1.
        variant: "continuous" or "discrete".

    Returns:
        Images of shape (1, 64, 64), with the factors x, y, scale, angle and shape.

    Raises:
        UserError: If the file is missing, damaged or not the published one, or if `variant` is unknown.

    Reference: Klindt et al. (2021), arXiv:2007.10930; the videos are those of Yang, Fan and Xu (2019),
    arXiv:1905.04804.
    """
    if variant not in VARIANTS:
        raise UserError(unknown_name_message("variant of natural_sprites", variant, VARIANTS))
    path = locate_files("natural_sprites", root)[FILE]
    read = read_natural_sprites if variant == "continuous" else read_natural_grid
    return read(path, device=device, progress=progress)


def read_natural_sprites(
    path: Path, pairs: int = PAIRS, device: str | torch.device = "cpu", progress: Progress | None = None
) -> Sequences:
    """Read the transitions, and draw the sprites before and after each transition."""
    transitions = leave_out_outliers(read_transitions(path, pairs))
    m = len(transitions)
    noise = Noise.from_seed(torch.tensor(0), torch.tensor(0))
    constant = noise.integers(torch.tensor(SIZES[3:]), m, 2).numpy().repeat(2, axis=0)
    measured = to_fractions(transitions.reshape(2 * m, 3))
    values = np.concatenate([measured, constant], 1)
    labels = np.concatenate([np.stack([equal_count_bins(column) for column in measured.T], 1), constant], 1)
    images = draw_images("natural_sprites", path, values, 2 * m, progress).to(device)
    sizes = (*(labels[:, :3].max(0) + 1).tolist(), *SIZES[3:])
    data = Sequences(
        "natural_sprites", NAMES, sizes, images, torch.from_numpy(labels), torch.from_numpy(values), MEASURED,
        lengths=torch.full((m,), 2),
    )  # fmt: skip
    data.grid_name = GRID_NAME
    data.categorical, data.cyclic = ("shape",), {"angle": ANGLES}
    return data


def read_natural_grid(
    path: Path,
    pairs: int = PAIRS,
    sizes: tuple[int, ...] = SIZES,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> GridWithTransitions:
    """Read the transitions, sort them into bins, and draw the sprites of all combinations of factors."""
    transitions = leave_out_outliers(read_transitions(path, pairs))
    binned = [bin_values(transitions[..., j], sizes[j]) for j in range(3)]
    centres, bins = [centres for centres, _ in binned], np.stack([index for _, index in binned], 2)
    x, y, area = centres
    grid = itertools.product(x / PIXELS, y / PIXELS, np.sqrt(area) / PIXELS, *map(range, sizes[3:]))
    images = draw_images("natural_sprites-grid", path, grid, math.prod(sizes), progress).to(device)
    data = GridWithTransitions(GRID_NAME, NAMES, sizes, images, torch.from_numpy(bins))
    data.categorical, data.cyclic = ("shape",), {"angle": ANGLES}
    return data


def read_transitions(path: Path, pairs: int = PAIRS) -> Transitions:
    """Read all transitions of the file.

    Each row is an object, and each column from the third on is a frame. A cell is empty if the object is not visible.
    Otherwise it is a list with an entry for each of three windows of the video, which is None or (y, x, area). A
    transition consists of the entries of one window in two successive frames.

    Returns:
        The columns x, y and area, in pixels, before and after each of the m transitions.
    """
    found = []
    with convert_read_errors(path, "csv"), path.open(encoding="ascii", newline="") as file:
        rows = csv.reader(file)
        expect(path, "beginning of the first row", "id,cat_id,t_0", ",".join(next(rows, [])[:3]))
        for number, row in enumerate(rows, 2):
            frames = [read_cell(path, number, cell) for cell in row[2:]]
            for before, after in itertools.pairwise(frames):
                found += [pair for pair in zip(before, after, strict=True) if None not in pair]
    expect(path, "number of transitions", pairs, len(found))
    return np.array(found, np.float64).reshape(len(found), 2, 3)[..., [1, 0, 2]]


def read_cell(path: Path, row: int, cell: str) -> list[list[float] | None]:
    """Read the entries of a cell, which are None or lists of three numbers. An empty cell has only entries None."""
    if not cell:
        return [None] * WINDOWS
    entries: Any = json.loads(cell.translate(NOT_JSON).replace("None", "null"))
    if not isinstance(entries, list) or len(entries) != WINDOWS or not all(map(is_measurement, entries)):
        raise UserError(
            f"The cells of row {row:,} of {path} must be empty or have {WINDOWS} entries None or (y, x, area), with "
            f"positions from 0 to {PIXELS} and areas from 1 to {PIXELS**2}. Got {cell[:60]!r} instead. {REMEDY}"
        )
    return entries


def is_measurement(entry: object) -> bool:
    """Return whether an entry is None or has the form [y, x, area], with numbers that are in range."""
    if entry is None:
        return True
    if not isinstance(entry, list) or [type(value) for value in entry] not in ([float, float, int], [float] * 3):
        return False
    y, x, area = entry
    return bool(0 <= y <= PIXELS and 0 <= x <= PIXELS and 1 <= area <= PIXELS**2)


def leave_out_outliers(transitions: Transitions, share: float = OUTLIERS) -> Float[np.ndarray, "kept 2 3"]:
    """Return the transitions whose areas are no outliers.

    An area is an outlier if it is below the quantile `share / 2` or above the quantile `1 - share / 2`. The quantiles
    of the areas before the transitions and of those after them are computed separately.
    """
    areas = transitions[..., 2]
    low, high = np.quantile(areas, [share / 2, 1 - share / 2], axis=0)
    kept: Float[np.ndarray, "kept 2 3"] = transitions[((areas >= low) & (areas <= high)).all(1)]
    return kept


def to_fractions(measurements: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3"]:
    """Convert x, y and area from pixels to x, y and scale as fractions of the side of the image.

    >>> to_fractions(np.array([[16.0, 48.0, 1024.0]])).tolist()
    [[0.25, 0.75, 0.5]]
    """
    x, y, area = measurements.T / PIXELS
    return np.stack([x, y, np.sqrt(area / PIXELS)], 1)


def bin_values(
    values: Float[np.ndarray, " *shape"], bins: int
) -> tuple[Float[np.ndarray, " bins"], Int[np.ndarray, " *shape"]]:
    """Divide the range of the values into bins of equal width.

    Returns:
        The centres of the bins, and the index of the bin with the nearest centre for each value. If two centres are
        equally near, the lower one is chosen.

    >>> centres, index = bin_values(np.array([0.0, 2.9, 3.0, 4.0]), 2)
    >>> centres.tolist(), index.tolist()
    ([1.0, 3.0], [0, 1, 1, 1])
    """
    edges = np.linspace(values.min(), values.max(), bins + 1)
    centres = (edges[:-1] + edges[1:]) / 2
    return centres, np.abs(values[..., None] - centres).argmin(-1)


def draw_images(
    name: str, path: Path, sprites: Iterable[Iterable[Any]], count: int, progress: Progress | None
) -> torch.Tensor:
    """Return images of sprites, given by x, y, scale, angle and shape, uint8 of shape (count, 1, 64, 64).

    They are drawn when the file is used for the first time, and stored in the cache folder.
    """

    def blocks() -> Iterator[ByteArray]:
        renderer, rows = Renderer(), iter(sprites)
        while part := list(itertools.islice(rows, BLOCK_ROWS)):
            images = [renderer.draw(x, y, scale, int(angle), int(shape)) for x, y, scale, angle, shape in part]
            yield np.stack(images)[:, None]

    return cached_table(name, [path], (count, 1, PIXELS, PIXELS), blocks, progress)
