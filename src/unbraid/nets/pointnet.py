"""A pair for meshes of one topology: points seen in no order, decoded in theirs."""

from __future__ import annotations

import itertools

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.errors import UserError
from unbraid.nets.conv import glorot

POINTWISE, POOLED, DECODED = (25, 50, 100, 200), (150, 120, 100), (256, 256)
AT_ONCE = 2048  # points whose features fit in a core's cache


class PointFeatures(nn.Module):
    """The same layers for every point, then the largest value of every channel over the points of an example.

    A gradient reaches only the points that hold a maximum, at most one a channel. They are found without gradients, a
    few examples at a time, and only they are computed again: values and gradients of the plain way in a fifth of the
    time, and memory for (examples, channels) points instead of all.
    """

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.Sequential(*_dense(widths[:-1]))
        self.last = nn.Linear(widths[-2], widths[-1])

    def forward(self, points: Float[Tensor, "b v 3"]) -> Float[Tensor, "b c"]:
        with torch.no_grad():
            few = points.split(max(1, AT_ONCE // points.shape[1]))
            largest = torch.cat([self.last(self.layers(part)).argmax(1) for part in few])
        chosen: Tensor = self.layers(points.gather(1, largest[:, :, None].expand(-1, -1, 3)))
        return (chosen * self.last.weight).sum(2) + self.last.bias


def pointnet(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
    """PointNet and an MLP, for meshes given as (3 * vertices,): x, y, z of one vertex after the other.

    The encoder takes every vertex through the same layers and keeps the maximum over vertices, so that their order does
    not matter; the decoder gives them in the order of the data. Deviations: nothing is normalised, where PointNet
    normalises over the batch: an example does not depend on its neighbours, and no run keeps statistics. (Normalising
    over channels instead takes from a vertex its distance from the origin.) No learned transforms of the input. Widths
    are those of an example in the documentation of product manifold projection's public code; the paper's own table is
    not published.
    Reference: Qi et al. (2017), arXiv:1612.00593, section 4.2; Fumero et al. (2021), arXiv:2103.01638.
    """
    if len(shape) != 1 or shape[0] % 3:
        raise UserError(
            f"The net 'pointnet' takes meshes as vectors of 3 numbers a vertex. Got shape {shape} instead. "
            "Use 'locatello' for images and 'mlp' for other vectors."
        )
    points, pooled = nn.Unflatten(1, (shape[0] // 3, 3)), _dense((POINTWISE[-1], *POOLED))
    encoder = nn.Sequential(points, PointFeatures((3, *POINTWISE)), nn.ReLU(), *pooled)
    encoder.append(nn.Linear(POOLED[-1], 2 * latents))
    return _he(encoder), glorot(nn.Sequential(*_dense((latents, *DECODED)), nn.Linear(DECODED[-1], shape[0])))


def _dense(widths: tuple[int, ...]) -> list[nn.Module]:
    return [layer for a, b in itertools.pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]


def _he(net: nn.Module) -> nn.Module:
    """He-uniform weights, PyTorch's own biases: Glorot's weights leave meshes too much alike after so many layers."""
    for layer in net.modules():
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
    return net
