"""Images turned and shifted, each by fixed random amounts that are known."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unbraid.data.in_memory import Labelled
from unbraid.errors import UserError
from unbraid.noise import Noise
from unbraid.spaces.affine import transform
from unbraid.spaces.transformers import centred
from unbraid.spaces.warp import pixel_centres, warp

BINS = 10  # values of each label that a movement becomes
CHUNK = 2_000  # images warped at once
MOVES = ("turn", "right", "down")


class Moved(Labelled):
    """Labelled images with `moves`: degrees anticlockwise, and shifts to the right and down as shares of the side."""

    moves: Float[Tensor, "n 3"]

    def rows(self, part: slice) -> Labelled:
        chosen = super().rows(part)
        assert isinstance(chosen, Moved)
        chosen.moves = self.moves[part]
        return chosen


def moved(data: Labelled, degrees: float, share: float, seed: int = 0) -> Moved:
    """Every image turned by up to `degrees` either way and shifted by up to `share` of its side, uniformly.

    Movements are functions of the seed and the image's place, bilinear, with black coming in; they become labels of 10
    equal bins each (`turn`, `right`, `down`), after the labels there are.
    """
    if not (0 <= degrees <= 180 and 0 <= share < 1) or len(data.shape) != 3:
        raise UserError(
            "Images can be turned by 0 to 180 degrees and shifted by 0 to 99 % of their side. "
            f"Got {degrees:g} degrees and {100 * share:g} % for {data.name} of shape {data.shape} instead."
        )
    noise = Noise.of(torch.tensor(seed), torch.tensor(0))
    reach = torch.tensor([degrees, share, share])
    moves = (2 * noise.uniform(len(data.table), 3) - 1) * reach
    table = torch.cat([turned(*part) for part in zip(data.table.cpu().split(CHUNK), moves.split(CHUNK), strict=True)])
    labels = torch.cat([data.labels.cpu(), binned(moves, reach)], 1)
    made = Moved(data.name, [*data.names, *MOVES], [*data.sizes, *[BINS] * len(MOVES)], table.to(data.device), labels)
    made.moves = moves
    return made


def binned(moves: Float[Tensor, "n 3"], reach: Float[Tensor, " 3"]) -> Int[Tensor, "n 3"]:
    """Numbers from -reach to reach in equal bins."""
    share = 0.5 * (moves / reach.clamp(min=1e-9) + 1)
    return (share * BINS).long().clamp(0, BINS - 1)


def turned(images: Tensor, moves: Float[Tensor, "n 3"]) -> Tensor:
    """Uint8 images (n, c, h, w) turned about their centre and then shifted."""
    angle, shift = moves[:, 0] * math.pi / 180, 2 * moves[:, 1:]
    cos, sin = angle.cos(), angle.sin()
    back = torch.stack([torch.stack([cos, -sin], 1), torch.stack([sin, cos], 1)], 1)
    matrix = torch.cat([back, -(back @ shift[:, :, None])], 2)
    h, w = images.shape[-2:]
    points = transform(centred(matrix), pixel_centres(h, w)).unflatten(1, (h, w))
    return warp(images / 255, points).mul(255).round().clamp(0, 255).byte()
