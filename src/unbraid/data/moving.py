"""Rotate and shift each image of a dataset by fixed random amounts. The amounts become labels."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unbraid.data.in_memory import Labelled
from unbraid.errors import UserError
from unbraid.noise import Noise
from unbraid.spaces.affine import transform_points
from unbraid.spaces.transformers import to_unit_square
from unbraid.spaces.warp import pixel_centres, warp_image

MOVE_BINS = 10  # number of values of each of the new labels
CHUNK = 2_000  # number of images that are warped at once
MOVES = ("turn", "right", "down")


class MovedImages(Labelled):
    """Labelled images, each of which was rotated and shifted.

    Attributes:
        moves: The movement of each image. The columns are the anticlockwise rotation in degrees, and the shifts to the
            right and down as fractions of the side of the image.
    """

    moves: Float[Tensor, "n 3"]

    def select_rows(self, part: slice) -> Labelled:
        """Return the images, labels and movements in `part`."""
        chosen = super().select_rows(part)
        assert isinstance(chosen, MovedImages)
        chosen.moves = self.moves[part]
        return chosen


def move_images(data: Labelled, max_degrees: float, max_shift: float, seed: int = 0) -> MovedImages:
    """Rotate and shift each image by a random amount.

    A movement depends only on the random seed and the index of the image. Images are resampled bilinearly, and the
    border is filled with black.

    Args:
        data: Labelled images.
        max_degrees: Each rotation is uniform between minus and plus this angle in degrees.
        max_shift: Each shift is uniform between minus and plus this fraction of the side.
        seed: Random seed.

    Returns:
        The moved images. Their labels are those of `data`, followed by `turn`, `right` and `down`. These three are the
        bins of the rotation and of the two shifts. Each of the three has 10 bins of equal width.

    Raises:
        UserError: If a limit is out of range, or if the data are not images.
    """
    if not (0 <= max_degrees <= 180 and 0 <= max_shift < 1) or len(data.shape) != 3:
        raise UserError(
            "Images can be rotated by 0 to 180 degrees and shifted by 0 to 99 % of their side. "
            f"Got {max_degrees:g} degrees and {100 * max_shift:g} % for {data.name} of shape {data.shape} instead."
        )
    noise = Noise.from_seed(torch.tensor(seed), torch.tensor(0))
    limits = torch.tensor([max_degrees, max_shift, max_shift])
    moves = (2 * noise.uniform(len(data.table), 3) - 1) * limits
    chunks = zip(data.table.cpu().split(CHUNK), moves.split(CHUNK), strict=True)
    table = torch.cat([warp_images(images, part) for images, part in chunks]).to(data.device)
    labels = torch.cat([data.labels.cpu(), bin_moves(moves, limits)], 1)
    names, sizes = [*data.names, *MOVES], [*data.sizes, *[MOVE_BINS] * len(MOVES)]
    result = MovedImages(data.name, names, sizes, table, labels)
    result.moves = moves
    return result


def bin_moves(moves: Float[Tensor, "n 3"], limits: Float[Tensor, " 3"]) -> Int[Tensor, "n 3"]:
    """Return the bin of each movement, from 0 to 9. In each column, equal bins cover the range -limit to limit."""
    fraction = 0.5 * (moves / limits.clamp(min=1e-9) + 1)
    return (fraction * MOVE_BINS).long().clamp(0, MOVE_BINS - 1)


def warp_images(images: Tensor, moves: Float[Tensor, "n 3"]) -> Tensor:
    """Rotate uint8 images (n, c, h, w) about their centres, and then shift them."""
    angle, shift = moves[:, 0] * math.pi / 180, 2 * moves[:, 1:]
    cos, sin = angle.cos(), angle.sin()
    inverse_rotation = torch.stack([torch.stack([cos, -sin], 1), torch.stack([sin, cos], 1)], 1)
    matrix = torch.cat([inverse_rotation, -(inverse_rotation @ shift[:, :, None])], 2)
    h, w = images.shape[-2:]
    points = transform_points(to_unit_square(matrix), pixel_centres(h, w)).unflatten(1, (h, w))
    return warp_image(images / 255, points).mul(255).round().clamp(0, 255).byte()
