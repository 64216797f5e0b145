"""A picture of a periodic factor: points of a two-dimensional code, coloured by the value of the factor."""

from __future__ import annotations

import colorsys
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from unbraid.errors import UserError

MARGIN = 0.08  # as a share of the picture's side
RADIUS = 4  # of a point, in pixels
OVERSAMPLING = 3  # factor by which a picture is drawn larger and then reduced, for smooth edges
GREY = (200, 200, 200)


def wheel_colours(values: Any) -> list[tuple[int, int, int]]:
    """Return one RGB colour per value, in order around the colour wheel, so that the last is close to the first."""
    _, rank = np.unique(np.asarray(values), return_inverse=True)
    share = rank / (rank.max() + 1)
    colours = [colorsys.hsv_to_rgb(float(h), 0.85, 0.9) for h in share]
    return [(round(255 * r), round(255 * g), round(255 * b)) for r, g, b in colours]


def draw_circle(code: Any, values: Any, *, size: int = 360) -> Image.Image:
    """Draw codes in the plane, coloured by the values of one factor, with the unit circle in grey.

    A factor that is encoded as a circle shows as a wheel of colours. A jump of colour between neighbours shows where
    the encoding is torn.

    Args:
        code: Codes of shape (n, 2).
        values: The value of the factor for each code, of shape (n,).
        size: The side of the picture in pixels.

    Returns:
        The picture.

    Raises:
        UserError: If the codes are not finite numbers of shape (n, 2), or if there is not one value per code.

    >>> import numpy as np
    >>> turn = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    >>> draw_circle(np.stack([np.cos(turn), np.sin(turn)], 1), np.arange(12)).size
    (360, 360)
    """
    points = np.asarray(code, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 2 or len(points) == 0 or not np.isfinite(points).all():
        raise UserError(f"The 'code' must be finite numbers of shape (n, 2), n > 0. Got shape {points.shape} instead.")
    if np.shape(values) != (len(points),):
        raise UserError(f"The 'values' must have shape ({len(points)},). Got shape {np.shape(values)} instead.")
    side = size * OVERSAMPLING
    extent = max(1.0, float(np.abs(points).max()))
    scale = side * (0.5 - MARGIN) / extent
    canvas = Image.new("RGB", (side, side), "white")
    draw = ImageDraw.Draw(canvas)
    draw.ellipse(_bounding_box(side / 2, side / 2, scale), outline=GREY, width=OVERSAMPLING)
    for (x, y), colour in zip(points, wheel_colours(values), strict=True):
        draw.ellipse(_bounding_box(side / 2 + scale * x, side / 2 - scale * y, RADIUS * OVERSAMPLING), fill=colour)
    return canvas.resize((size, size), Image.Resampling.LANCZOS)


def _bounding_box(x: float, y: float, radius: float) -> tuple[float, float, float, float]:
    return x - radius, y - radius, x + radius, y + radius
