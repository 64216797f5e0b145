"""Read KITTI Masks from its published file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from unbraid.data.dataset import Progress
from unbraid.data.files.convert import ByteArray, cached_table
from unbraid.data.files.locate import locate_files
from unbraid.data.readers.pickled import read_pickle
from unbraid.data.readers.verify import REMEDY, Array, expect
from unbraid.data.sequences import Sequences
from unbraid.errors import UserError
from unbraid.label_kinds import equal_count_bins

FILE = "kitti_peds_v2.pickle"
NAMES = ("x", "y", "area")
PIXELS = 64
# The number of pairs of successive frames. The authors' notebook data_analysis/data_analysis_both.ipynb prints it.
PAIRS = 82_506
TOLERANCE = 1e-3  # largest difference of published and computed labels in pixels; the published ones are float32
KEYS = ("pedestrians", "pedestrians_latents")


def kitti_masks(
    device: str | torch.device = "cpu",
    root: str | Path | None = None,
    progress: Progress | None = None,
    max_distance: int = 5,
) -> Sequences:
    """Load KITTI Masks: 84,626 masks of pedestrians in 2,120 sequences, with 64x64 pixels.

    The masks are the segmentation masks of pedestrians in videos of KITTI MOTS and MOTSChallenge, resized to a height
    of 64 pixels. Each video was divided into six overlapping square windows, and each sequence shows one pedestrian in
    one window. A pedestrian in the overlap is therefore in several sequences, and masks are cut at the edges of a
    window. Masks of fewer than 30 pixels were left out.

    The three factors are computed from the masks and are continuous. `x` and `y` are the column and the row of the
    centre of mass in pixels, from 0 to 63, where row 0 is at the top. `area` is the number of pixels of the mask. No
    other property of a mask, such as the pose, has a label.

    Methods with `pairs` set to "consecutive" draw a frame and a later frame of the same sequence. The distance of the
    two frames is uniform from 1 to `max_distance`, but the second frame is never later than the last frame of the
    sequence. The default of 5 is that of the authors' code; ``kitti_masks?max_distance=1`` has successive frames only.
    All frames except the last one of each sequence are equally likely to be the first frame of a pair. Methods that
    change factors to draw pairs need a full grid and cannot be trained on these data.

    Args:
        device: Device on which to store the images.
        root: Folder of the published file; see `unbraid.data.load`.
        progress: Called with the finished fraction, from 0 to 1.
        max_distance: Largest distance of the two frames of a pair, in frames.

    Returns:
        Images of shape (1, 64, 64), in which every pixel is 0 or 1, with the factors x, y and area.

    Raises:
        UserError: If the file is missing, damaged or not the published one, or if `max_distance` is below 1.

    Reference: Klindt et al. (2021), arXiv:2007.10930; the videos are those of Voigtlaender et al. (2019),
    arXiv:1902.03604.
    """
    path = locate_files("kitti_masks", root)[FILE]
    return read_kitti_masks(path, max_distance=max_distance, device=device, progress=progress)


def read_kitti_masks(
    path: Path,
    pairs: int = PAIRS,
    max_distance: int = 5,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> Sequences:
    """Read the masks of all sequences and compute their labels. `pairs` is the number of pairs of successive frames."""
    masks, published = read_sequences(path)
    lengths = [len(sequence) for sequence in masks]
    expect(path, "number of pairs of successive frames", pairs, sum(lengths) - len(lengths))
    values = [measure_masks(sequence) for sequence in masks]
    check_labels(path, values, published)
    table = np.concatenate(values)
    labels = np.stack([equal_count_bins(column) for column in table.T], 1)

    def blocks() -> Iterator[ByteArray]:
        for sequence in masks:
            yield 255 * sequence[:, None]

    images = cached_table("kitti_masks", [path], (len(table), 1, PIXELS, PIXELS), blocks, progress).to(device)
    sizes = (labels.max(0) + 1).tolist()
    data = Sequences(
        "kitti_masks", NAMES, sizes, images, torch.from_numpy(labels), torch.from_numpy(table), NAMES,
        lengths=lengths, max_distance=max_distance,
    )  # fmt: skip
    data.binary = True
    return data


def read_sequences(path: Path) -> tuple[list[ByteArray], list[Array]]:
    """Read the masks of each sequence, uint8 of shape (frames, 64, 64), and its published labels, (frames, 3)."""
    content = read_pickle(path)
    if not isinstance(content, dict) or not all(isinstance(content.get(key), list) for key in KEYS):
        raise UserError(f"{path} must contain a dictionary with the lists {' and '.join(KEYS)}. {REMEDY}")
    masks, published = content[KEYS[0]], content[KEYS[1]]
    expect(path, "number of arrays of labels", len(masks), len(published))
    for i, (sequence, labels) in enumerate(zip(masks, published, strict=True)):
        expect(path, f"type of the masks in sequence {i:,}", "bool", _describe_type(sequence))
        expect(path, f"shape of the masks in sequence {i:,}", (PIXELS, PIXELS), sequence.shape[1:])
        expect(path, f"type of the labels in sequence {i:,}", "float32", _describe_type(labels))
        expect(path, f"shape of the labels in sequence {i:,}", (len(sequence), len(NAMES)), labels.shape)
    return [(sequence.view(np.uint8) != 0).view(np.uint8) for sequence in masks], published


def _describe_type(value: object) -> str:
    return str(value.dtype) if isinstance(value, np.ndarray) else type(value).__name__


def measure_masks(masks: ByteArray) -> Array:
    """Return the column and the row of the centre of mass, and the number of pixels, of masks that consist of 0 and 1.

    The result is float64 of shape (frames, 3). The centre of an empty mask is NaN.

    >>> measure_masks(np.array([[[0, 0, 0], [0, 1, 1]]], np.uint8)).tolist()
    [[1.5, 1.0, 2.0]]
    """
    columns, rows = masks.sum(1, dtype=np.float64), masks.sum(2, dtype=np.float64)
    area = rows.sum(1)
    with np.errstate(invalid="ignore"):
        centres = [counts @ np.arange(counts.shape[1]) / area for counts in (columns, rows)]
    return np.stack([*centres, area], 1)


def check_labels(path: Path, computed: Sequence[Array], published: Sequence[Array]) -> None:
    """Raise a UserError if the published labels, whose columns are y, x and area, differ from the computed ones."""
    for i, (ours, theirs) in enumerate(zip(computed, published, strict=True)):
        if not np.allclose(ours, theirs[:, [1, 0, 2]], rtol=0, atol=TOLERANCE):
            raise UserError(
                f"The labels of sequence {i:,} of {path} must be the centres of mass and the areas of its masks. Got "
                f"other numbers instead. {REMEDY}"
            )
