"""The exponential of affine generators, in operations that neither wait for a device nor depend on the data."""

from __future__ import annotations

import importlib
import math

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.accel.capture import kernels_on

SQUARINGS = 5
DEGREE = 12  # of the Taylor polynomial, in three blocks of four powers


def compose(a: Float[Tensor, "*b 2 3"], b: Float[Tensor, "*b 2 3"]) -> Float[Tensor, "*b 2 3"]:
    """The product of two 3 x 3 matrices whose last rows are zero, without those rows, in full precision everywhere."""
    return torch.addcmul(a[..., :, :1] * b[..., :1, :], a[..., :, 1:2], b[..., 1:, :])


def _block(powers: list[Tensor], first: int) -> Tensor:
    """The terms of degrees `first` to `first` + 3, divided by the power of degree `first` - 1."""
    total = powers[0] / math.factorial(first)
    for i, power in enumerate(powers[1:], 1):
        total = torch.add(total, power, alpha=1 / math.factorial(first + i))
    return total


def expm1(g: Float[Tensor, "*b 2 3"], squarings: int = SQUARINGS) -> Float[Tensor, "*b 2 3"]:
    r"""What an affine flow adds to a point in a unit of time: the upper two rows of expm(G) - I.

    .. math:: e^G - I = s\Big(\cdots s\Big(\sum_{i=1}^{12} \frac{(G / 2^k)^i}{i!}\Big)\Big), \quad
        s(E) = 2 E + E^2, \quad G = \begin{bmatrix} g \\ 0 \end{bmatrix}

    where s is applied k = `squarings` times. Taking the identity away keeps small maps exact to their own size. In
    float64, by default, the relative error is below 1e-14 for norms of g (the greatest sum of a row's magnitudes) up
    to 10 and 1e-12 up to 16; then it grows with the 13th power of the norm, to 1e-9 at 32, 1e-5 at 64, and no digits
    are right beyond 128. Degree and scaling do not depend on the numbers, so that it can be captured and mapped.
    Reference: Moler & Van Loan (2003), "Nineteen dubious ways to compute the exponential of a matrix, twenty-five
    years later", methods 1 and 3.
    """
    x = g / 2**squarings
    x2 = compose(x, x)
    x3, x4 = compose(x2, x), compose(x2, x2)
    powers = [x, x2, x3, x4]
    total = _block(powers, DEGREE - 3)
    for first in range(DEGREE - 7, 0, -4):
        total = _block(powers, first) + compose(x4, total)
    for _ in range(squarings):
        total = 2 * total + compose(total, total)
    return total


def launched(g: Float[Tensor, "*b 2 3"], squarings: int = SQUARINGS) -> Float[Tensor, "*b 2 3"]:
    """`expm1`, as one kernel of float32 where a device has it, whose gradient is another and has none itself.

    In tensor operations it is about fifty launches, and some hundred and fifty more for the gradient.
    """
    if g.dtype == torch.float32 and g.numel() and kernels_on(g.device):
        found: Tensor = importlib.import_module("unbraid.spaces.cpab_gpu").Expm1.apply(g, squarings)
        return found
    return expm1(g, squarings)


def expm(g: Float[Tensor, "*b 2 3"]) -> Float[Tensor, "*b 2 3"]:
    """The affine map that a generator flows to in a unit of time; see `expm1` for its range."""
    return launched(g) + torch.eye(2, 3, dtype=g.dtype, device=g.device)
