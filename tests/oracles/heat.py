"""Exact heat kernels (of half the Laplacian) as series, and their KL divergence from uniform by quadrature."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import eval_gegenbauer

Array = NDArray[np.float64]
POINTS = 20_000  # points of the quadrature over an angle
SMALL = 1e-300


def divergence(density: Array, weight: Array) -> float:
    """Return the sum of weight * p log p, where p is the density relative to the uniform distribution."""
    p = np.maximum(density, SMALL)
    return float((weight * p * np.log(p)).sum())


def midpoints(low: float, high: float) -> Array:
    return low + (high - low) * (np.arange(POINTS) + 0.5) / POINTS


def circle(angle: Array, t: float) -> Array:
    """Return 1 + 2 sum_k exp(-k^2 t / 2) cos(k angle)."""
    total = np.ones_like(angle)
    for k in range(1, terms(t)):
        total += 2 * math.exp(-k * k * t / 2) * np.cos(k * angle)
    return total


def sphere(d: int, angle: Array, t: float, every: int = 1) -> Array:
    """Return the sum over degrees l of exp(-l (l + d - 1) t / 2) times the zonal harmonic.

    For d = 2 the zonal harmonics are Legendre polynomials.
    """
    total = np.zeros_like(angle)
    for degree in range(0, terms(t), every):
        zonal = (2 * degree + d - 1) / (d - 1) * eval_gegenbauer(degree, (d - 1) / 2, np.cos(angle))
        total += math.exp(-degree * (degree + d - 1) * t / 2) * zonal
    return total


def terms(t: float) -> int:
    """Return the number of terms after which exp(-l^2 t / 2) is negligible."""
    return int(math.sqrt(90 / t)) + 3


def circle_kl(t: float) -> float:
    angle = midpoints(-math.pi, math.pi)
    return divergence(circle(angle, t), np.full(POINTS, 1 / POINTS))


def sphere_kl(d: int, t: float, every: int = 1) -> float:
    """Return the divergence on the d-sphere, d > 1. With `every` = 2 only even degrees count: the projective space."""
    angle = midpoints(0, math.pi)
    area = np.sin(angle) ** (d - 1)
    return divergence(sphere(d, angle, t, every), area / area.sum())


def rotations_kl(t: float) -> float:
    """Return the divergence on SO(3) with the metric of R^9.

    The characters (2l + 1) sin((l + 1/2) a) / sin(a / 2) decay by exp(-l (l + 1) t / 4).
    """
    angle = midpoints(0, math.pi)
    total = np.zeros_like(angle)
    for degree in range(terms(t / 2)):
        character = np.sin((degree + 0.5) * angle) / np.sin(angle / 2)
        total += (2 * degree + 1) * math.exp(-degree * (degree + 1) * t / 4) * character
    haar = 1 - np.cos(angle)
    return divergence(total, haar / haar.sum())
