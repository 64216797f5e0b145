"""A layer that generalises a linear layer to hyperbolic space. Its outputs are signed distances to hyperplanes."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.spaces.poincare import asinhc, cosh, sinhc, squared_norm


class Gyroplanes(nn.Module):
    r"""Weighted and signed distances of points to hyperplanes.

    .. math:: f_i(w) = |a_i|\, d(w, H_i), \quad
        d(w, H) = \frac{1}{\sqrt c} \mathrm{arsinh} \Big( \sinh(\sqrt c\, |w|) \cosh(\sqrt c\, b)\, \hat w^T n
        - \cosh(\sqrt c\, |w|) \sinh(\sqrt c\, b) \Big)

    A point is given by its normal coordinates w at the origin (see `poincare`), and :math:`\hat w = w / |w|`. Let p be
    the point of the hyperplane H that is nearest to the origin. H consists of all geodesics through p that are
    orthogonal to the unit vector n. The signed distance of p from the origin, in the direction n, is b. Each hyperplane
    has a row :math:`a_i` of `weight` and an entry :math:`\beta_i` of `bias`, with :math:`n_i = a_i / |a_i|` and
    :math:`b_i = -\beta_i / |a_i|`. For c = 0 the layer is therefore the linear layer :math:`a_i^T w + \beta_i`.

    Args:
        linear: A linear layer with a bias. Its parameters become those of this layer.
        curvature: The absolute value c of the curvature. It is stored as a buffer, because runs that are trained
            together in a stack may have different curvatures.
    """

    curvature: Tensor

    def __init__(self, linear: nn.Linear, curvature: float | Tensor) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.register_buffer("curvature", torch.as_tensor(curvature, dtype=torch.float32))

    def forward(self, w: Float[Tensor, "b d"]) -> Float[Tensor, "b n"]:
        c, length = self.curvature, self.weight.square().sum(1).clamp(min=1e-24).sqrt()
        b, t = self.bias / length, c * squared_norm(w)  # this b is the negative of b in the docstring
        along = sinhc(t) * (w @ self.weight.T) / length
        sine = along * cosh(c * b.square()) + cosh(t) * b * sinhc(c * b.square())
        return length * sine * asinhc(c * sine.square())
