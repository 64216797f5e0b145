"""PointNet encoder and MLP decoder for meshes that share one topology."""

from __future__ import annotations

import itertools

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.errors import UserError
from unbraid.nets.conv import init_glorot

POINTWISE_WIDTHS, POOLED_WIDTHS, DECODER_WIDTHS = (25, 50, 100, 200), (150, 120, 100), (256, 256)
POINTS_AT_ONCE = 2048  # points processed together, few enough that their features fit in the cache of a core


class PointFeatures(nn.Module):
    """Apply the same layers to every point, then take the maximum of each channel over the points of an example.

    In each example, only one point per channel receives a gradient: a point at which the channel attains its maximum.
    A first pass finds these points without gradients, a few examples at a time. A second pass computes the features of
    these points again, with gradients. Values and gradients equal those of the direct computation, but this method
    takes a fifth of the time and needs memory for only one point per example and channel instead of all points.
    """

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.Sequential(*_dense_layers(widths[:-1]))
        self.last = nn.Linear(widths[-2], widths[-1])

    def forward(self, points: Float[Tensor, "b v 3"]) -> Float[Tensor, "b c"]:
        with torch.no_grad():
            parts = points.split(max(1, POINTS_AT_ONCE // points.shape[1]))
            argmax = torch.cat([self.last(self.layers(part)).argmax(1) for part in parts])
        features: Tensor = self.layers(points.gather(1, argmax[:, :, None].expand(-1, -1, 3)))
        return (features * self.last.weight).sum(2) + self.last.bias


def pointnet(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
    """Build a PointNet encoder and an MLP decoder for meshes.

    The encoder applies the same layers to every vertex and takes the maximum over the vertices. Its result therefore
    does not depend on the order of the vertices. The decoder returns the vertices in the order of the data.

    Deviations from the papers: PointNet uses batch normalisation, but these networks use no normalisation. The code of
    an example therefore does not depend on the rest of its batch, and there are no running statistics. Layer
    normalisation is not used either, because it would remove the distance of a vertex from the origin. Unlike PointNet,
    the encoder does not learn transformations of its input. Fumero et al. do not publish the widths of their layers.
    The widths used here come from an example in the documentation of their code.
    Reference: Qi et al. (2017), arXiv:1612.00593, section 4.2; Fumero et al. (2021), arXiv:2103.01638.

    Args:
        shape: Shape (3 * vertices,) of one example, which lists x, y and z of each vertex in turn.
        latents: Number of latents.

    Returns:
        The encoder, which maps (b, 3 * vertices) to (b, 2 * latents), and the decoder, which maps (b, latents) to
        (b, 3 * vertices).

    Raises:
        UserError: If the shape is not a vector whose length is a multiple of 3.
    """
    if len(shape) != 1 or shape[0] % 3:
        raise UserError(
            f"The net 'pointnet' needs meshes as vectors with 3 numbers per vertex. Got shape {shape} instead. "
            "Use 'locatello' for images and 'mlp' for other vectors."
        )
    to_points = nn.Unflatten(1, (shape[0] // 3, 3))
    pooled_layers = _dense_layers((POINTWISE_WIDTHS[-1], *POOLED_WIDTHS))
    encoder = nn.Sequential(to_points, PointFeatures((3, *POINTWISE_WIDTHS)), nn.ReLU(), *pooled_layers)
    encoder.append(nn.Linear(POOLED_WIDTHS[-1], 2 * latents))
    _init_he(encoder)  # before the decoder is built, because the order of random draws determines the weights
    decoder = nn.Sequential(*_dense_layers((latents, *DECODER_WIDTHS)), nn.Linear(DECODER_WIDTHS[-1], shape[0]))
    return encoder, init_glorot(decoder)


def _dense_layers(widths: tuple[int, ...]) -> list[nn.Module]:
    """Return linear layers of the given widths, each followed by a ReLU."""
    return [layer for a, b in itertools.pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]


def _init_he(net: nn.Module) -> None:
    """Initialise weights from the He uniform distribution and keep PyTorch's default biases.

    With Glorot initialisation, the features of different meshes would be too similar after the layers of the encoder.
    """
    for layer in net.modules():
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
