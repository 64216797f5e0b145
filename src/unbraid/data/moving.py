"""Images rotated and shifted, each by a fixed random amount that is known."""

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

MOVE_BINS = 10  # number of values of each label that is made from a movement
CHUNK = 2_000  # images warped at once
MOVES = ("turn", "right", "down")


class MovedImages(Labelled):
    """Labelled images with the movement of each image.

    The columns of `moves` are the rotation in degrees anticlockwise, and the shifts to the right and down as fractions
    of the side.
    """

    moves: Float[Tensor, "n 3"]

    def select_rows(self, part: slice) -> Labelled:
        """Return the images, labels and movements in `part`."""
        chosen = super().select_rows(part)
        assert isinstance(chosen, MovedImages)
        chosen.moves = self.moves[part]
        return chosen


def move_images(data: Labelled, degrees: float, share: float, seed: int = 0) -> MovedImages:
    """Rotate each image by up to `degrees` either way and shift it by up to `share` of its side, uniformly.

    A movement depends only on the seed and the position of the image in the data. Images are resampled bilinearly, and
    the border is filled with black. After the existing labels come three new ones, `turn`, `right` and `down`: the
    movements in 10 equal bins each.
    """
    if not (0 <= degrees <= 180 and 0 <= share < 1) or len(data.shape) != 3:
        raise UserError(
            "Images can be rotated by 0 to 180 degrees and shifted by 0 to 99 % of their side. "
            f"Got {degrees:g} degrees and {100 * share:g} % for {data.name} of shape {data.shape} instead."
        )
    noise = Noise.from_seed(torch.tensor(seed), torch.tensor(0))
    reach = torch.tensor([degrees, share, share])
    moves = (2 * noise.uniform(len(data.table), 3) - 1) * reach
    chunks = zip(data.table.cpu().split(CHUNK), moves.split(CHUNK), strict=True)
    table = torch.cat([warp_images(images, part) for images, part in chunks]).to(data.device)
    labels = torch.cat([data.labels.cpu(), bin_moves(moves, reach)], 1)
    names, sizes = [*data.names, *MOVES], [*data.sizes, *[MOVE_BINS] * len(MOVES)]
    result = MovedImages(data.name, names, sizes, table, labels)
    result.moves = moves
    return result


def bin_moves(moves: Float[Tensor, "n 3"], reach: Float[Tensor, " 3"]) -> Int[Tensor, "n 3"]:
    """Return the bin of each number, for equal bins from -reach to reach."""
    share = 0.5 * (moves / reach.clamp(min=1e-9) + 1)
    return (share * MOVE_BINS).long().clamp(0, MOVE_BINS - 1)


def warp_images(images: Tensor, moves: Float[Tensor, "n 3"]) -> Tensor:
    """Return uint8 images (n, c, h, w) rotated about their centre and then shifted."""
    angle, shift = moves[:, 0] * math.pi / 180, 2 * moves[:, 1:]
    cos, sin = angle.cos(), angle.sin()
    back = torch.stack([torch.stack([cos, -sin], 1), torch.stack([sin, cos], 1)], 1)
    matrix = torch.cat([back, -(back @ shift[:, :, None])], 2)
    h, w = images.shape[-2:]
    points = transform_points(to_unit_square(matrix), pixel_centres(h, w)).unflatten(1, (h, w))
    return warp_image(images / 255, points).mul(255).round().clamp(0, 255).byte()
