"""Convolutional pairs for square images: the large study's and Burgess et al.'s."""

from __future__ import annotations

import itertools

from torch import nn

from unbraid.accel.layers import Conv, ConvTranspose, Flatten
from unbraid.errors import UserError

SIZES = (16, 32, 64, 128, 256)
FLOOR = 4  # every encoder ends on 4x4 pixels


def _halvings(shape: tuple[int, ...]) -> int:
    """How many stride-2 layers lead from the image to 4x4 pixels."""
    if len(shape) != 3 or shape[1] != shape[2] or shape[1] not in SIZES or shape[0] not in (1, 3):
        raise UserError(
            f"Convolutional networks take images of 1 or 3 channels and {', '.join(map(str, SIZES))} pixels square. "
            f"Got shape {shape} instead. Resize the images, choose net 'mlp', or bring your own pair of modules."
        )
    return (shape[1] // FLOOR).bit_length() - 1


def _encoder(shape: tuple[int, ...], widths: list[int], kernels: list[int], hidden: list[int], out: int) -> nn.Module:
    layers: list[nn.Module] = []
    previous = shape[0]
    for width, kernel in zip(widths, kernels, strict=True):
        layers += [Conv(previous, width, kernel), nn.ReLU(inplace=True)]
        previous = width
    layers.append(Flatten())
    return nn.Sequential(*layers, *_dense([previous * FLOOR**2, *hidden]), nn.Linear(hidden[-1], out))


def _decoder(latents: int, hidden: list[int], widths: list[int]) -> nn.Module:
    flat = widths[0] * FLOOR**2
    layers = [*_dense([latents, *hidden, flat]), nn.Unflatten(1, (widths[0], FLOOR, FLOOR))]
    for previous, width in itertools.pairwise(widths):
        layers += [ConvTranspose(previous, width, 4), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers[:-1])


def _dense(widths: list[int]) -> list[nn.Module]:
    pairs = itertools.pairwise(widths)
    return [layer for a, b in pairs for layer in (nn.Linear(a, b), nn.ReLU(inplace=True))]


def glorot(net: nn.Module) -> nn.Module:
    """Glorot-uniform weights and zero biases, the initialisation under which the study was run."""
    for layer in net.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return net


def locatello(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
    """The large study's pair: kernels 4, 4, 2, 2 and widths 32, 32, 64, 64 at 64 pixels.

    Other sizes drop or repeat the first layer. Reference: Locatello et al. (2019), arXiv:1811.12359, table 1.
    """
    n = _halvings(shape)
    narrow = n - 2
    encoder = _encoder(shape, [32] * narrow + [64, 64], [4] * narrow + [2, 2], [256], 2 * latents)
    decoder = _decoder(latents, [256], [64, 64] + [32] * narrow + [shape[0]])
    return glorot(encoder), glorot(decoder)


def burgess(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
    """Burgess et al.'s pair: four layers of 32 channels with kernel 4, then two of 256 units; the decoder mirrors it.

    Reference: Burgess et al. (2018), arXiv:1804.03599, appendix A.1.
    """
    n = _halvings(shape)
    encoder = _encoder(shape, [32] * n, [4] * n, [256, 256], 2 * latents)
    return glorot(encoder), glorot(_decoder(latents, [256, 256], [32] * n + [shape[0]]))
