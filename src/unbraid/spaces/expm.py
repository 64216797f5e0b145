"""The exponential of affine generators, in operations that never wait for the device and do not depend on the data."""

from __future__ import annotations

import importlib
import math

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.accel.capture import supports_kernels

SQUARINGS = 5
DEGREE = 12  # of the Taylor polynomial, evaluated in three blocks of four powers


def compose(a: Float[Tensor, "*b 2 3"], b: Float[Tensor, "*b 2 3"]) -> Float[Tensor, "*b 2 3"]:
    """Return the product of 3 x 3 matrices whose last rows are zero and omitted, in full precision on all devices."""
    return torch.addcmul(a[..., :, :1] * b[..., :1, :], a[..., :, 1:2], b[..., 1:, :])


def _block(powers: list[Tensor], first: int) -> Tensor:
    """Return the Taylor terms of degrees `first` to `first` + 3, divided by the power of degree `first` - 1."""
    total = powers[0] / math.factorial(first)
    for i, power in enumerate(powers[1:], 1):
        total = torch.add(total, power, alpha=1 / math.factorial(first + i))
    return total


def expm1(g: Float[Tensor, "*b 2 3"], squarings: int = SQUARINGS) -> Float[Tensor, "*b 2 3"]:
    r"""Return the displacement of an affine flow in a unit of time: the upper two rows of expm(G) - I.

    .. math:: e^G - I = s\Big(\cdots s\Big(\sum_{i=1}^{12} \frac{(G / 2^k)^i}{i!}\Big)\Big), \quad
        s(E) = 2 E + E^2, \quad G = \begin{bmatrix} g \\ 0 \end{bmatrix}

    where s is applied k = `squarings` times. Because the identity is subtracted, the relative error of small maps
    stays small. With the default number of squarings and float64, the relative error is below 1e-14 for norms of g (the
    largest sum of absolute values in a row) up to 10, and below 1e-12 up to 16. Beyond, it grows with the 13th power of
    the norm: it is 1e-9 at 32 and 1e-5 at 64, and no digit is correct beyond 128. Degree and scaling do not depend on
    the values, so that the function can be captured in a CUDA graph and mapped with vmap.
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


def expm1_fast(g: Float[Tensor, "*b 2 3"], squarings: int = SQUARINGS) -> Float[Tensor, "*b 2 3"]:
    """Return `expm1`, computed by a single Triton kernel if g is float32 and the device supports it.

    The gradient is another kernel, which cannot be differentiated again. As tensor operations, `expm1` takes about 50
    kernel launches and its gradient about 150 more.
    """
    if g.dtype == torch.float32 and g.numel() and supports_kernels(g.device):
        result: Tensor = importlib.import_module("unbraid.spaces.expm_gpu").Expm1.apply(g, squarings)
        return result
    return expm1(g, squarings)


def expm(g: Float[Tensor, "*b 2 3"]) -> Float[Tensor, "*b 2 3"]:
    """Return the affine map of a generator: its flow over a unit of time. See `expm1` for the accuracy."""
    return expm1_fast(g) + torch.eye(2, 3, dtype=g.dtype, device=g.device)
