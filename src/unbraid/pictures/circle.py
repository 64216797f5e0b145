"""A picture of a factor wrapped on a circle: points of a two-dimensional code, coloured by the factor's value."""

from __future__ import annotations

import colorsys
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from unbraid.errors import UserError

MARGIN = 0.08  # of the picture's side
RADIUS = 4  # of a point, in pixels, before smoothing
FINER = 3  # how much larger a picture is drawn than shown, so that its edges are smooth
GREY = (200, 200, 200)


def hues(values: Any) -> list[tuple[int, int, int]]:
    """Colours around the wheel: the values in order, and the last beside the first, as of a periodic factor."""
    _, rank = np.unique(np.asarray(values), return_inverse=True)
    share = rank / (rank.max() + 1)
    colours = [colorsys.hsv_to_rgb(float(h), 0.85, 0.9) for h in share]
    return [(round(255 * r), round(255 * g), round(255 * b)) for r, g, b in colours]


def draw_circle(code: Any, values: Any, *, size: int = 360) -> Image.Image:
    """Draw codes (n, 2) in the plane, coloured by values (n,) of one factor, with the unit circle in grey.

    A factor that goes round shows as a wheel of colours; one that is torn shows a jump of colour between neighbours.

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
    side = size * FINER
    reach = max(1.0, float(np.abs(points).max()))
    scale = side * (0.5 - MARGIN) / reach
    canvas = Image.new("RGB", (side, side), "white")
    draw = ImageDraw.Draw(canvas)
    draw.ellipse(_box(side / 2, side / 2, scale), outline=GREY, width=FINER)
    for (x, y), colour in zip(points, hues(values), strict=True):
        draw.ellipse(_box(side / 2 + scale * x, side / 2 - scale * y, RADIUS * FINER), fill=colour)
    return canvas.resize((size, size), Image.Resampling.LANCZOS)


def _box(x: float, y: float, radius: float) -> tuple[float, float, float, float]:
    return x - radius, y - radius, x + radius, y + radius
