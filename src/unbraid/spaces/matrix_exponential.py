"""The exponential of square matrices, with a fixed number of products of matrices.

The exponentials of affine generators, whose last row is zero, are computed faster by `unbraid.spaces.expm`.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

LARGEST_NORM = 1.0  # the Taylor polynomial is accurate for matrices whose norm is at most this
SQUARINGS = 7  # so exponentials are accurate for matrices of a norm of at most 128; float32 overflows for some above 88
POWERS = 4  # the polynomial of degree 15 is a polynomial of degree 3 in the fourth power of the matrix


def matrix_exponential(a: Float[Tensor, "*b m m"]) -> Float[Tensor, "*b m m"]:
    r"""Return the exponentials of square matrices by scaling and squaring.

    .. math:: \exp(A) = \Big(T_{15}\big(2^{-s} A\big)\Big)^{2^s}, \quad T_{15}(X) = \sum_{k=0}^{15} \frac{X^k}{k!}

    s is the smallest number for which the largest absolute row sum of :math:`2^{-s} A` is at most 1. The polynomial
    then has a relative error below 1e-13. s is at most 7, so the result is inaccurate for matrices with row sums above
    128. Each matrix has its own s, but the number of products does not depend on the matrices. The function therefore
    works under `vmap`, in CUDA graphs and in exported networks, unlike `torch.linalg.matrix_exp`.
    Reference: Moler & Van Loan (2003), "Nineteen dubious ways to compute the exponential of a matrix, twenty-five years
    later", SIAM Review 45, method 3.

    >>> matrix_exponential(torch.tensor([[0.0, 2.0], [0.0, 0.0]])).tolist()
    [[1.0, 2.0], [0.0, 1.0]]
    """
    norm = a.detach().abs().sum(-1).amax(-1)[..., None, None]
    squared = [norm > LARGEST_NORM * 2.0**k for k in range(SQUARINGS)]
    scale = torch.ones_like(norm)
    for condition in squared:
        scale = torch.where(condition, 0.5 * scale, scale)
    result = taylor_polynomial(scale * a)
    for condition in squared:
        result = torch.where(condition, result @ result, result)
    return result


def taylor_polynomial(x: Float[Tensor, "*b m m"]) -> Float[Tensor, "*b m m"]:
    """Return the Taylor polynomial of degree 15 of the exponential, with six products of matrices.

    Reference: Paterson & Stockmeyer (1973), "On the number of nonscalar multiplications necessary to evaluate
    polynomials", SIAM Journal on Computing 2.
    """
    square = x @ x
    powers = [torch.eye(x.shape[-1], dtype=x.dtype, device=x.device), x, square, square @ x]
    fourth = square @ square
    result: Tensor | None = None
    for block in reversed(range(POWERS)):
        factors = [1 / math.factorial(POWERS * block + k) for k in range(POWERS)]
        part = sum((factor * power for factor, power in zip(factors, powers, strict=True)), torch.zeros_like(x))
        result = part if result is None else part + fourth @ result
    assert result is not None
    return result
