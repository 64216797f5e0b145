"""Independent component analysis (FastICA) and principal component analysis of a sample in memory."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.errors import warn_user
from unbraid.noise import Noise

MAX_ITERATIONS = 1_000
FULL_STEPS = 100  # number of iterations with full steps; later iterations make half steps
# FastICA stops when 1 - |cosine| between successive directions is below this number. Subspace iteration stops when the
# relative changes of the variances are below it.
TOLERANCE = 1e-6
SMALLEST_SHARE = 1e-9  # directions whose variance is below this fraction of the largest variance count as constant
EXTRA_DIRECTIONS = 10  # number of additional directions, with which the requested components converge faster


class AffineCodes(NamedTuple):
    """An invertible affine map from d latents to d codes.

    Attributes:
        mean: The latents whose codes are 0, of shape (d,).
        matrix: The matrix of the map, of shape (d, d). The codes of latents z are ``(z - mean) @ matrix.T``.
        inverse: The inverse of `matrix`. The latents of codes c are ``mean + c @ inverse.T``.
    """

    mean: Tensor
    matrix: Tensor
    inverse: Tensor


def fast_ica(z: Float[Tensor, "n d"], noise: Noise) -> AffineCodes:
    """Find independent components by FastICA, in float64.

    The components have mean 0 and variance 1 over the sample. They are sorted by how much of the variance of the
    latents they explain, in descending order. Their signs are chosen so that their third moments are not negative.
    The map must be invertible, so the directions in which the sample does not vary are appended as unscaled codes.

    Reference: Hyvarinen (1999), "Fast and robust fixed-point algorithms for independent component analysis", IEEE
    Transactions on Neural Networks 10, with the contrast function log cosh and symmetric orthogonalisation.

    Args:
        z: The latents of a sample of n examples.
        noise: Source of the random rotation from which the iteration starts.

    Returns:
        The map from latents to components. A RuntimeWarning is issued if the iteration did not converge.
    """
    z = z.double()
    mean = z.mean(0)
    values, vectors = torch.linalg.eigh((z - mean).T @ (z - mean) / len(z))
    varies = values > SMALLEST_SHARE * values.max()
    scales, basis = values[varies].sqrt(), vectors[:, varies]
    white = (z - mean) @ basis / scales
    rotation = unmixing_rotation(white, noise)
    inverse = basis * scales @ rotation.T
    order = inverse.square().sum(0).argsort(descending=True)
    rotation = rotation[order] * torch.where((white @ rotation[order].T).pow(3).sum(0) < 0, -1.0, 1.0)[:, None]
    still = vectors[:, ~varies]
    matrix = torch.cat([rotation @ (basis / scales).T, still.T])
    return AffineCodes(mean, matrix, torch.cat([basis * scales @ rotation.T, still], 1))


def unmixing_rotation(white: Float[Tensor, "n d"], noise: Noise) -> Float[Tensor, "d d"]:
    r"""Return the rotation whose rows w are the directions of independent components of whitened data x.

    Each iteration replaces all rows by :math:`E[x \tanh(w^T x)] - E[1 - \tanh^2(w^T x)]\, w` and then makes them
    orthonormal. Later iterations move the rows only half of the way, because full steps may alternate between two
    rotations.
    """
    d = white.shape[1]
    rotation = orthonormal(noise.normal(d, d).to(white))
    for iteration in range(MAX_ITERATIONS):
        outputs = (white @ rotation.T).tanh()
        moved = orthonormal(outputs.T @ white / len(white) - (1 - outputs.square()).mean(0)[:, None] * rotation)
        cosines = (moved * rotation).sum(1)
        if bool((cosines.abs() > 1 - TOLERANCE).all()):
            return moved
        half = orthonormal(moved * cosines.sign()[:, None] + rotation)
        rotation = moved if iteration < FULL_STEPS else half
    warn_user(
        f"FastICA did not converge in {MAX_ITERATIONS:,} iterations. The latents may have several components that are "
        "close to normal distributions, which no ICA can separate."
    )
    return rotation


def orthonormal(matrix: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """Return the orthogonal matrix that is nearest to a matrix."""
    u, _, v = torch.linalg.svd(matrix)
    nearest: Tensor = u @ v
    return nearest


def principal_components(x: Float[Tensor, "n m"], count: int, noise: Noise) -> Float[Tensor, "m count"]:
    """Return the first principal components of centred data as unit vectors, computed by subspace iteration.

    In each component, the entry with the largest absolute value is positive.
    """
    width = min(count + EXTRA_DIRECTIONS, *x.shape)
    basis = torch.linalg.qr(noise.normal(x.shape[1], width).to(x))[0]
    values = torch.zeros(width).to(x)
    for _ in range(MAX_ITERATIONS):
        basis, triangle = torch.linalg.qr(x.T @ (x @ basis))
        before, values = values, triangle.diagonal().abs()
        if torch.allclose(before[:count], values[:count], rtol=TOLERANCE, atol=TOLERANCE * float(values.max())):
            break
    rows = torch.linalg.svd(x @ basis, full_matrices=False)[2][:count]
    components = basis @ rows.T
    largest = components.gather(0, components.abs().argmax(0, keepdim=True))
    oriented: Tensor = components * torch.where(largest < 0, -1.0, 1.0)
    return oriented
