"""A picture of how two-dimensional codes represent a periodic factor. Each code is coloured by the factor value."""

from __future__ import annotations

import colorsys
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from unbraid.errors import UserError

MARGIN = 0.08  # width of the margin, as a fraction of the picture's side
RADIUS = 4  # radius of a point, in pixels
OVERSAMPLING = 3  # the picture is drawn this many times larger and then reduced, which smooths the edges
GREY = (200, 200, 200)


def wheel_colours(values: Any) -> list[tuple[int, int, int]]:
    """Return one RGB colour per value. From the smallest to the largest value, hues go around the colour wheel."""
    _, rank = np.unique(np.asarray(values), return_inverse=True)
    hues = rank / (rank.max() + 1)
    colours = [colorsys.hsv_to_rgb(float(hue), 0.85, 0.9) for hue in hues]
    return [(round(255 * r), round(255 * g), round(255 * b)) for r, g, b in colours]


def draw_circle(code: Any, values: Any, *, size: int = 360) -> Image.Image:
    """Draw two-dimensional codes as points that are coloured by the values of one factor.

    The unit circle is drawn in grey. If the codes represent the factor as a circle, the picture shows a colour wheel.
    If the representation is discontinuous, neighbouring points have very different colours at the discontinuity.

    Args:
        code: Codes of shape (n, 2).
        values: The value of the factor for each example, of shape (n,).
        size: The side of the picture in pixels.

    Returns:
        The picture.

    Raises:
        UserError: If the codes are not finite numbers of shape (n, 2), or if there is not one value per example.

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
