"""Draw white sprites on black, as the renderer of Spriteworld does.

Coordinates are fractions of the side of the image. x increases to the right, and y increases upwards. A sprite is drawn
on a canvas that has five times the width and height of the image, which is then reduced with a Lanczos filter.
Reference: Watters et al. (2019), github.com/google-deepmind/spriteworld.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw

PIXELS, OVERSAMPLING = 64, 5
MARGIN = 6  # pixels around a sprite that are computed as well; twice the radius of the Lanczos filter
ANGLES = 40  # number of orientations, which divide a full turn
SHAPES = ("square", "triangle", "star_4", "spoke_4")

Points = Float[np.ndarray, "n 2"]


def directions(count: int, start: float) -> Points:
    """Return `count` unit vectors that divide a full turn. The first has the angle `start` in degrees."""
    angles = math.radians(start) + 2 * math.pi / count * np.arange(count)
    return np.stack([np.cos(angles), np.sin(angles)], 1)


def outline(shape: str) -> Points:
    r"""Return the vertices of a shape of area 1 whose centre is the origin.

    "star_4" is a star with four points, whose outer radius is twice its inner radius. "spoke_4" is a square with side
    :math:`\sqrt 2` and a bar of length 1 on each side, before it is scaled to area 1.
    """
    corners, sides = directions(4, 45), directions(4, 90)
    points = {
        "square": corners,
        "triangle": directions(3, 90),
        "star_4": np.stack([corners, 2 * sides], 1).reshape(-1, 2),
        "spoke_4": np.stack([corners + np.roll(sides, 1, 0), corners, corners + sides], 1).reshape(-1, 2),
    }[shape]
    return points / math.sqrt(polygon_area(points))


def polygon_area(points: Points) -> float:
    """Return the area of a polygon whose vertices are in anticlockwise order.

    >>> polygon_area(np.array([[0.0, 0], [2, 0], [2, 3], [0, 3]]))
    6.0
    """
    following = np.roll(points, -1, 0)
    return float((points[:, 0] * following[:, 1] - following[:, 0] * points[:, 1]).sum() / 2)


class Renderer:
    """Draws one sprite at a time on the same canvas."""

    def __init__(self) -> None:
        side = PIXELS * OVERSAMPLING
        self.canvas = Image.new("L", (side, side))
        self.pen: Any = ImageDraw.Draw(self.canvas)
        turns = [np.array([[c, s], [-s, c]]) for c, s in directions(ANGLES, 0)]
        self.outlines = [[outline(shape) @ turn for shape in SHAPES] for turn in turns]

    def draw(self, x: float, y: float, scale: float, angle: int, shape: int) -> UInt8[np.ndarray, "64 64"]:
        """Draw a sprite.

        Args:
            x: Horizontal position of the centre, from 0 (left) to 1.
            y: Vertical position of the centre, from 0 (bottom) to 1.
            scale: The square root of the area of the sprite.
            angle: Number of anticlockwise turns by 9 degrees.
            shape: Index of the shape in `SHAPES`.

        Returns:
            The image, with pixels from 0 to 255.
        """
        points = scale * self.outlines[angle][shape] + (x, y)
        image = np.zeros((PIXELS, PIXELS), np.uint8)
        low = np.clip(np.floor(PIXELS * points.min(0)) - MARGIN, 0, PIXELS).astype(int)
        high = np.clip(np.ceil(PIXELS * points.max(0)) + MARGIN, 0, PIXELS).astype(int)
        if (low < high).all():
            self.pen.polygon([tuple(point) for point in (PIXELS * OVERSAMPLING * points).tolist()], fill=255)
            box = tuple((OVERSAMPLING * np.concatenate([low, high])).tolist())
            size = tuple((high - low).tolist())
            part = self.canvas.resize(size, Image.Resampling.LANCZOS, box=box)
            image[low[1] : high[1], low[0] : high[0]] = np.asarray(part)
            self.pen.rectangle(box, fill=0)
        return image[::-1]
