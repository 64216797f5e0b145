"""The matrix exponential of affine generators.

A generator is the 2 x 3 matrix g of an affine velocity field, v(p) = g (x, y, 1). The sequence of operations does not
depend on the values, and no operation makes the CPU wait for the device.
"""

from __future__ import annotations

import importlib
import math

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.accel.capture import supports_kernels

SQUARINGS = 5  # default number of squarings
DEGREE = 12  # degree of the Taylor polynomial, which is evaluated in three blocks of four powers


def compose(a: Float[Tensor, "*b 2 3"], b: Float[Tensor, "*b 2 3"]) -> Float[Tensor, "*b 2 3"]:
    """Multiply 3 x 3 matrices in full precision on every device. Their last rows are zero and are omitted."""
    return torch.addcmul(a[..., :, :1] * b[..., :1, :], a[..., :, 1:2], b[..., 1:, :])


def _taylor_block(powers: list[Tensor], first: int) -> Tensor:
    """Return the sum of the Taylor terms of degrees `first` to `first` + 3, without their common power `first` - 1.

    `powers` are the first four powers of the matrix.
    """
    total = powers[0] / math.factorial(first)
    for i, power in enumerate(powers[1:], 1):
        total = torch.add(total, power, alpha=1 / math.factorial(first + i))
    return total


def expm1(g: Float[Tensor, "*b 2 3"], squarings: int = SQUARINGS) -> Float[Tensor, "*b 2 3"]:
    r"""Return the displacement of an affine flow in one unit of time, which is the upper two rows of expm(G) - I.

    .. math:: e^G - I = s\Big(\cdots s\Big(\sum_{i=1}^{12} \frac{(G / 2^k)^i}{i!}\Big)\Big), \quad
        s(E) = 2 E + E^2, \quad G = \begin{bmatrix} g \\ 0 \end{bmatrix}

    where s is applied k = `squarings` times. The identity is never added, so the relative error stays small even if
    g is small. The relative error depends on the norm of g, which is the largest sum of absolute values in a row. With
    the default number of squarings and float64, the error is below 1e-14 for norms up to 10 and below 1e-12 for norms
    up to 16. For larger norms, the error grows with the 13th power of the norm. It is 1e-9 for norm 32 and 1e-5 for
    norm 64, and no digit is correct for norms above 128. The degree and the number of squarings do not depend on the
    values, so the function can be captured in a CUDA graph and mapped with vmap.
    Reference: Moler & Van Loan (2003), "Nineteen dubious ways to compute the exponential of a matrix, twenty-five
    years later", methods 1 and 3.
    """
    x = g / 2**squarings
    x2 = compose(x, x)
    x3, x4 = compose(x2, x), compose(x2, x2)
    powers = [x, x2, x3, x4]
    total = _taylor_block(powers, DEGREE - 3)
    for first in range(DEGREE - 7, 0, -4):
        total = _taylor_block(powers, first) + compose(x4, total)
    for _ in range(squarings):
        total = 2 * total + compose(total, total)
    return total


def expm1_fast(g: Float[Tensor, "*b 2 3"], squarings: int = SQUARINGS) -> Float[Tensor, "*b 2 3"]:
    """Return the result of `expm1`, computed by a single Triton kernel if g is float32 and the device supports it.

    A second kernel computes the gradient, which cannot be differentiated again. With tensor operations instead, `expm1`
    takes about 50 kernel launches and its gradient takes about 150 more.
    """
    if g.dtype == torch.float32 and g.numel() and supports_kernels(g.device):
        result: Tensor = importlib.import_module("unbraid.spaces.expm_gpu").Expm1.apply(g, squarings)
        return result
    return expm1(g, squarings)


def expm(g: Float[Tensor, "*b 2 3"]) -> Float[Tensor, "*b 2 3"]:
    """Return the affine maps that follow generators for one unit of time. See `expm1` for the accuracy."""
    return expm1_fast(g) + torch.eye(2, 3, dtype=g.dtype, device=g.device)
