"""The law of D_LSBD."""

from __future__ import annotations

import math

import numpy as np

from laws.base import UNIT, Fact, Law
from support.known_codes import GRID, Array, factor_grid, noise

PLANE = factor_grid(7, 6)
SAWTOOTH = np.arange(12)


def circle_codes(factors: Array, sizes: tuple[int, ...], frequency: int = 1) -> Array:
    """Return the cosine and the sine of the angle of each factor."""
    angles = frequency * 2 * np.pi * factors / np.array(sizes)
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1)


def rotated_codes() -> Array:
    """Return two circles after an orthogonal transformation of all latents."""
    basis = np.linalg.qr(noise(4, 4, seed=5))[0]
    return np.asarray(circle_codes(PLANE, (7, 6)) @ basis)


def by_loops(codes: Array, factors: Array) -> float:
    """Compute D_LSBD on a full grid: subtract means, find main directions, rotate back, and measure the dispersion."""
    scores = []
    for j in range(factors.shape[1]):
        centred = np.empty_like(codes)
        for i, row in enumerate(factors):
            line = [k for k, other in enumerate(factors) if all(other[m] == row[m] for m in range(len(row)) if m != j)]
            centred[i] = codes[i] - sum(codes[k] for k in line) / len(line)
        variances, directions = np.linalg.eigh(centred.T @ centred / (len(codes) - 1))
        points = centred @ directions[:, -2:] / np.sqrt(2 * variances[-2:])
        size = factors[:, j].max() + 1
        best = math.inf
        for frequency in range(-10, 11):
            back = []
            for point, value in zip(points, factors[:, j], strict=True):
                angle = -frequency * 2 * math.pi * value / size
                matrix = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
                back.append(np.array(matrix) @ point)
            centre = sum(back) / len(back)
            best = min(best, sum(float(((b - centre) ** 2).sum()) for b in back) / len(back))
        scores.append(best)
    return sum(scores) / len(scores)


def line_score(size: int) -> float:
    """Return the score of a latent that is linear in one factor, from the sum of a geometric series.

    The Fourier coefficient of 0, 1, ..., m - 1 at frequency 1 has the absolute value 1 / (2 sin(pi / m)), the variance
    is (m^2 - 1) / 12, and the score uses the unbiased variance.
    """
    return (1 - (1 / (2 * math.sin(math.pi / size))) ** 2 / ((size**2 - 1) / 12)) * (size - 1) / size


LAWS: dict[str, Law] = {
    "d_lsbd": Law(
        ranges={"d_lsbd": UNIT, **{f"d_lsbd_factor_{j}": UNIT for j in range(3)}},
        tolerances={"rows": 1e-9, "codes": 1e-9, "factors": 1e-9, "affine": 1e-9},
        oracle=by_loops,
        oracle_tolerance=1e-9,
        facts=(
            Fact(lambda: circle_codes(PLANE, (7, 6)), lambda: PLANE, 0, 1e-12, "one circle per factor"),
            Fact(lambda: circle_codes(PLANE, (7, 6), 2), lambda: PLANE, 0, 1e-12, "circles of frequency 2"),
            Fact(rotated_codes, lambda: PLANE, 0, 1e-12, "circles that are not aligned with the latents"),
            Fact(
                lambda: 3 * circle_codes(PLANE, (7, 6)) * [1, 5, 0.1, 5] + 7,
                lambda: PLANE,
                0,
                1e-12,
                "ellipses, whose axes are the main directions",
            ),
            Fact(lambda: SAWTOOTH[:, None], lambda: SAWTOOTH[:, None], line_score(12), 1e-12, "a line of 12 values"),
            Fact(lambda: np.full((120, 3), 0.3), lambda: GRID, 1, 0, "constants"),
            Fact(lambda: noise(42 * 50, 8), lambda: np.repeat(PLANE, 50, axis=0), 1, 0.01, "noise"),
        ),
        changes=dict.fromkeys(
            ("d_lsbd", *(f"d_lsbd_factor_{j}" for j in range(3))), "the plane of largest variance depends on the scales"
        ),
    )
}
