r"""Hyperbolic space of constant curvature -c, in normal coordinates at the origin, and the wrapped normal distribution.

The normal coordinates of a point are a vector of :math:`R^d`. Its direction is the direction of the geodesic from the
origin to the point, and its length is the distance of the point from the origin. `to_ball` converts normal
coordinates to coordinates in the Poincare ball, which has the radius :math:`1 / \sqrt c`. For c = 0 the space is
Euclidean, and all functions are continuous at c = 0. Functions of :math:`t = x^2` are evaluated by a series for small
t, so their gradients are finite everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

SMALL = 1e-3  # squared arguments below this are evaluated by a series of three terms


def _piecewise(t: Tensor, series: tuple[float, float, float], function: Callable[[Tensor], Tensor]) -> Tensor:
    """Return `function(sqrt(t))`. For small t, use the series with these coefficients of 1, t and t^2 instead."""
    small = t < SMALL
    a, b, c = series
    return torch.where(small, a + t * (b + t * c), function(torch.where(small, 1.0, t).sqrt()))


def sinhc(t: Tensor) -> Tensor:
    r"""Return :math:`\sinh(x) / x` for :math:`t = x^2`."""
    return _piecewise(t, (1, 1 / 6, 1 / 120), lambda x: x.sinh() / x)


def asinhc(t: Tensor) -> Tensor:
    r"""Return :math:`\mathrm{arsinh}(x) / x` for :math:`t = x^2`."""
    return _piecewise(t, (1, -1 / 6, 3 / 40), lambda x: x.asinh() / x)


def tanhc(t: Tensor) -> Tensor:
    r"""Return :math:`\tanh(x) / x` for :math:`t = x^2`."""
    return _piecewise(t, (1, -1 / 3, 2 / 15), lambda x: x.tanh() / x)


def cosh(t: Tensor) -> Tensor:
    r"""Return :math:`\cosh x` for :math:`t = x^2`."""
    return _piecewise(t, (1, 1 / 2, 1 / 24), torch.cosh)


def coshc(t: Tensor) -> Tensor:
    r"""Return :math:`(\cosh(x) - 1) / x^2` for :math:`t = x^2`."""
    return _piecewise(t, (1 / 2, 1 / 24, 1 / 720), lambda x: 0.5 * ((0.5 * x).sinh() / (0.5 * x)).square())


def log_sinhc(t: Tensor) -> Tensor:
    r"""Return :math:`\log(\sinh(x) / x)` for :math:`t = x^2`. It does not overflow for large x."""
    return _piecewise(t, (0, 1 / 6, -1 / 180), lambda x: x + (-(-2 * x).exp()).log1p() - x.log() - math.log(2))


def squared_norm(v: Float[Tensor, "*b d"]) -> Float[Tensor, "*b 1"]:
    """Return the squared length of each vector."""
    return v.square().sum(-1, keepdim=True)


def translate(start: Float[Tensor, "*b d"], v: Float[Tensor, "*b d"], c: float | Tensor) -> Float[Tensor, "*b d"]:
    r"""Return the end of a geodesic that begins at a point in a given direction and has a given length.

    .. math:: z = \exp_\mu(P_{0 \to \mu}\, v)

    The vector v at the origin is parallel transported to the point :math:`\mu` (P), and the exponential map at
    :math:`\mu` follows the geodesic in its direction. In the Poincare ball, the result is the Moebius sum of
    :math:`\mu` and v. It is computed by a Lorentz boost of the hyperboloid. This is accurate even far from the origin,
    unless a long geodesic leads back towards the origin.

    Args:
        start: Normal coordinates (..., d) of the points :math:`\mu`.
        v: Vectors (..., d), whose length is the length of the geodesic.
        c: The absolute value of the curvature, at least 0.

    Returns:
        Normal coordinates (..., d) of the end points.

    >>> translate(torch.tensor([0.5, 0.0]), torch.tensor([1.0, 0.0]), 1.0)  # on a line through the origin, lengths add
    tensor([1.5000, 0.0000])
    """
    m, n = c * squared_norm(start), c * squared_norm(v)
    inner = (start * v).sum(-1, keepdim=True)
    space = sinhc(n) * v + (coshc(m) * c * sinhc(n) * inner + sinhc(m) * cosh(n)) * start
    return asinhc(c * squared_norm(space)) * space


def to_ball(w: Float[Tensor, "*b d"], c: float | Tensor) -> Float[Tensor, "*b d"]:
    r"""Return coordinates in the Poincare ball, :math:`\tanh(\sqrt c\, |w| / 2)\, w / (\sqrt c\, |w|)`.

    For c = 0 they are w / 2.

    >>> to_ball(torch.tensor([2.0, 0.0]), 1.0)[0] == math.tanh(1)
    tensor(True)
    """
    return 0.5 * tanhc(0.25 * c * squared_norm(w)) * w


def log_volume(w: Float[Tensor, "*b d"], c: float | Tensor) -> Float[Tensor, "*b"]:
    r"""Return the logarithm of the volume element in normal coordinates.

    .. math:: (d - 1) \log \frac{\sinh \sqrt c |w|}{\sqrt c |w|}

    If v is normally distributed, then ``translate(start, v, c)`` has a wrapped normal distribution. Its density with
    respect to the volume of the space is the density of v divided by the volume element at v.
    """
    return (w.shape[-1] - 1) * log_sinhc(c * squared_norm(w))[..., 0]
