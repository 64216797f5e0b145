"""Pictures of a periodic factor."""

from __future__ import annotations

import colorsys
from typing import Any

import numpy as np
import pytest

from unbraid.pictures.circle import draw_circle, wheel_colours

ANGLES = np.linspace(0, 2 * np.pi, 24, endpoint=False)
POINTS_ON_CIRCLE = np.stack([np.cos(ANGLES), np.sin(ANGLES)], 1)


def hue(pixel: Any) -> float:
    return colorsys.rgb_to_hsv(*(channel / 255 for channel in pixel))[0]


def test_colours_follow_the_circle() -> None:
    """The pixel at each point has the hue of its value. Hues increase anticlockwise, starting on the right."""
    picture = np.asarray(draw_circle(POINTS_ON_CIRCLE, np.arange(24), size=300))
    for k, (x, y) in enumerate(POINTS_ON_CIRCLE):
        row, column = round(150 - 0.42 * 300 * y), round(150 + 0.42 * 300 * x)
        difference = abs(hue(picture[row, column]) - k / 24)
        assert min(difference, 1 - difference) < 0.02, k


def test_points_outside_the_circle_are_visible() -> None:
    picture = np.asarray(draw_circle([[3.0, 0.0], [0.0, -3.0]], [0, 1], size=200))
    assert hue(picture[100, 184]) == pytest.approx(0, abs=0.02)
    assert hue(picture[184, 100]) == pytest.approx(0.5, abs=0.02)
    assert (picture[0] == 255).all()
    assert picture.shape == (200, 200, 3)


def test_colours_depend_on_the_order_of_values() -> None:
    assert wheel_colours([0, 1, 2]) == wheel_colours([-5.0, 0.1, 100.0])
    assert len(set(wheel_colours(np.arange(24)))) == 24
    assert len(set(wheel_colours([7, 7, 7]))) == 1


@pytest.mark.parametrize("code", [np.zeros((3, 3)), np.zeros(3), np.zeros((0, 2)), [[np.nan, 0.0]]])
def test_invalid_codes_raise(code: Any) -> None:
    with pytest.raises(ValueError, match=r"shape \(n, 2\)"):
        draw_circle(code, [0])


def test_wrong_number_of_values_raises() -> None:
    with pytest.raises(ValueError, match=r"shape \(24,\)"):
        draw_circle(POINTS_ON_CIRCLE, np.arange(23))
