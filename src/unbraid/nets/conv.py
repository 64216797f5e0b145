"""Convolutional encoders and decoders for square images.

The networks are those of Locatello et al. (2019), Burgess et al. (2018), Dubois et al. (2019), Fumero et al. (2021) and
Kim & Mnih (2018).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import cast

from torch import nn

from unbraid.accel.layers import Conv, ConvTranspose, Flatten
from unbraid.errors import UserError

IMAGE_SIDES = (16, 32, 64, 128, 256)
FINAL_SIDE = 4  # the last convolution of every encoder returns 4 x 4 pixels


def _count_halvings(shape: tuple[int, ...]) -> int:
    """Return the number of stride-2 layers that reduce the image to 4 x 4 pixels."""
    if len(shape) != 3 or shape[1] != shape[2] or shape[1] not in IMAGE_SIDES or shape[0] not in (1, 3):
        raise UserError(
            f"Convolutional networks need square images with 1 or 3 channels and a side of one of "
            f"{', '.join(map(str, IMAGE_SIDES))} pixels. Got shape {shape} instead. Resize the images, choose net "
            "'mlp', or pass your own pair of modules."
        )
    return (shape[1] // FINAL_SIDE).bit_length() - 1


def _encoder(shape: tuple[int, ...], widths: list[int], kernels: list[int], hidden: list[int], out: int) -> nn.Module:
    """Build convolutions with stride 2, then dense layers with hidden widths `hidden` and `out` outputs."""
    layers: list[nn.Module] = []
    previous = shape[0]
    for width, kernel in zip(widths, kernels, strict=True):
        layers += [Conv(previous, width, kernel), nn.ReLU(inplace=True)]
        previous = width
    layers.append(Flatten())
    return nn.Sequential(*layers, *_dense_layers([previous * FINAL_SIDE**2, *hidden]), nn.Linear(hidden[-1], out))


def _decoder(latents: int, hidden: list[int], widths: list[int]) -> nn.Module:
    """Build dense layers with hidden widths `hidden`, then transposed convolutions.

    The first entry of `widths` is the number of input channels of the first transposed convolution. The other entries
    are the numbers of output channels of the transposed convolutions, in order.
    """
    flat = widths[0] * FINAL_SIDE**2
    layers = [*_dense_layers([latents, *hidden, flat]), nn.Unflatten(1, (widths[0], FINAL_SIDE, FINAL_SIDE))]
    for previous, width in itertools.pairwise(widths):
        layers += [ConvTranspose(previous, width, 4), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers[:-1])


def _dense_layers(widths: list[int]) -> list[nn.Module]:
    """Return linear layers of the given widths, each followed by a ReLU."""
    pairs = itertools.pairwise(widths)
    return [layer for a, b in pairs for layer in (nn.Linear(a, b), nn.ReLU(inplace=True))]


def init_glorot(net: nn.Module) -> nn.Module:
    """Initialise weights from the Glorot uniform distribution and biases with zeros, as in Locatello et al. (2019).

    The network is modified in place and returned.
    """
    for layer in net.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return net


def init_kaiming(net: nn.Module) -> nn.Module:
    r"""Initialise weights from the uniform distribution of He et al. (2015), as in the code of Dubois et al. (2019).

    A weight is drawn from :math:`[-\sqrt{6/n}, \sqrt{6/n}]`, where n is the number of inputs of an output. Biases keep
    the initial values of PyTorch, which are drawn from :math:`[-\sqrt{1/n}, \sqrt{1/n}]`. As in the authors' code, n is
    16 times the number of output channels for a transposed convolution with kernel size 4. The network is modified in
    place and returned.
    Reference: He et al. (2015), arXiv:1502.01852, section 2.2.
    """
    for layer in net.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
    return net


def locatello(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
    """Build the networks of Locatello et al. (2019).

    For images of 64 x 64 pixels, the encoder has four convolutions with kernel sizes 4, 4, 2, 2 and 32, 32, 64, 64
    channels, and one dense layer of 256 units. For other image sizes, both networks have fewer or more convolutions
    with 32 channels.
    Reference: Locatello et al. (2019), arXiv:1811.12359, table 1.

    Args:
        shape: Shape (c, h, w) of one image, with c in {1, 3} and h = w in {16, 32, 64, 128, 256}.
        latents: Number of latents.

    Returns:
        The encoder, which maps (b, c, h, w) to (b, 2 * latents), and the decoder, which maps (b, latents) to
        (b, c, h, w).

    Raises:
        UserError: If the shape is not one of those listed above.

    >>> encoder, decoder = locatello((1, 64, 64), latents=10)
    >>> sum(p.numel() for p in encoder.parameters()), sum(p.numel() for p in decoder.parameters())
    (309204, 381313)
    """
    narrow = _count_halvings(shape) - 2
    encoder = _encoder(shape, [32] * narrow + [64, 64], [4] * narrow + [2, 2], [256], 2 * latents)
    decoder = _decoder(latents, [256], [64, 64] + [32] * narrow + [shape[0]])
    return init_glorot(encoder), init_glorot(decoder)


def burgess(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
    """Build the networks of Burgess et al. (2018).

    For images of 64 x 64 pixels, the encoder has four convolutions with kernel size 4 and 32 channels, and two dense
    layers of 256 units. For other image sizes, it has fewer or more convolutions. The decoder mirrors the encoder.
    Reference: Burgess et al. (2018), arXiv:1804.03599, appendix A.1.

    Args:
        shape: Shape (c, h, w) of one image, with c in {1, 3} and h = w in {16, 32, 64, 128, 256}.
        latents: Number of latents.

    Returns:
        The encoder, which maps (b, c, h, w) to (b, 2 * latents), and the decoder, which maps (b, latents) to
        (b, c, h, w).

    Raises:
        UserError: If the shape is not one of those listed above.
    """
    return _burgess_networks(shape, latents, init_glorot)


def dubois(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
    """Build the networks of Burgess et al. (2018) with the initial weights of Dubois et al. (2019).

    The layers are those of `burgess`. Only the initial weights and biases differ (see `init_kaiming`). They are larger,
    and the biases are not zero.
    Reference: Dubois et al. (2019), https://github.com/YannDubs/disentangling-vae, disvae/utils/initialization.py.

    Args:
        shape: Shape (c, h, w) of one image, with c in {1, 3} and h = w in {16, 32, 64, 128, 256}.
        latents: Number of latents.

    Returns:
        The encoder, which maps (b, c, h, w) to (b, 2 * latents), and the decoder, which maps (b, latents) to
        (b, c, h, w).

    Raises:
        UserError: If the shape is not one of those listed above.

    >>> encoder, _ = dubois((1, 64, 64), latents=10)
    >>> round(float(encoder[0].weight.detach().abs().max()), 2)  # sqrt(6 / 16), because 16 pixels are summed
    0.61
    """
    return _burgess_networks(shape, latents, init_kaiming)


def _burgess_networks(
    shape: tuple[int, ...], latents: int, initialise: Callable[[nn.Module], nn.Module]
) -> tuple[nn.Module, nn.Module]:
    """Build the networks of Burgess et al. (2018). The encoder is initialised before the decoder is built."""
    n = _count_halvings(shape)
    encoder = initialise(_encoder(shape, [32] * n, [4] * n, [256, 256], 2 * latents))
    return encoder, initialise(_decoder(latents, [256, 256], [32] * n + [shape[0]]))


def fumero(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
    """Build the networks that Fumero et al. (2021) train with their method PMP.

    For images of 64 x 64 pixels, the encoder has four convolutions of kernel size 4 with 32, 32, 64, 64 channels, and
    one dense layer of 256 units. The decoder has dense layers of 256, 256 and 1024 units and four transposed
    convolutions of kernel size 4. For other image sizes, both networks have fewer or more convolutions with 32
    channels.

    Deviations: the encoder has 2 outputs per latent instead of one, because methods with a posterior need its log
    variances. PMP uses only the first half of the outputs. Weights are initialised by Glorot's scheme, and biases are
    zero. The authors' code keeps the initial values of PyTorch, which are smaller for weights and not zero for biases.
    Reference: Fumero et al. (2021), arXiv:2103.01638, supplement, table 1.

    Args:
        shape: Shape (c, h, w) of one image, with c in {1, 3} and h = w in {16, 32, 64, 128, 256}.
        latents: Number of latents.

    Returns:
        The encoder, which maps (b, c, h, w) to (b, 2 * latents), and the decoder, which maps (b, latents) to
        (b, c, h, w).

    Raises:
        UserError: If the shape is not one of those listed above.

    >>> encoder, decoder = fumero((3, 64, 64), latents=10)
    >>> [layer.out_features for layer in decoder if isinstance(layer, nn.Linear)]
    [256, 256, 1024]
    """
    n = _count_halvings(shape)
    narrow = [32] * (n - 2)
    encoder = _encoder(shape, [*narrow, 64, 64], [4] * n, [256], 2 * latents)
    decoder = _decoder(latents, [256, 256], [64, 64, *narrow, shape[0]])
    return init_glorot(encoder), init_glorot(decoder)


def kim(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
    """Build the networks with which Kim & Mnih (2018) train FactorVAE on dSprites.

    For images of 64 x 64 pixels, the encoder has four convolutions of kernel size 4 with 32, 32, 64, 64 channels, and
    one dense layer of 128 units without an activation. The decoder has dense layers of 128 and 1024 units and four
    transposed convolutions of kernel size 4. For other image sizes, both networks have fewer or more convolutions with
    32 channels.
    Reference: Kim & Mnih (2018), arXiv:1802.05983, appendix A. The dense layer of the encoder has no activation because
    it has none in the code of Lin et al. (2020), arXiv:1906.06034. The paper does not state initial weights. They are
    those of Glorot's scheme here, and normal with the standard deviation 0.02 in that code.

    Args:
        shape: Shape (c, h, w) of one image, with c in {1, 3} and h = w in {16, 32, 64, 128, 256}.
        latents: Number of latents.

    Returns:
        The encoder, which maps (b, c, h, w) to (b, 2 * latents), and the decoder, which maps (b, latents) to
        (b, c, h, w).

    Raises:
        UserError: If the shape is not one of those listed above.

    >>> encoder, _ = kim((1, 64, 64), latents=10)
    >>> [type(layer).__name__ for layer in encoder[-2:]]
    ['Linear', 'Linear']
    """
    n = _count_halvings(shape)
    narrow = [32] * (n - 2)
    *before, _, last = cast(nn.Sequential, _encoder(shape, [*narrow, 64, 64], [4] * n, [128], 2 * latents))
    encoder = nn.Sequential(*before, last)
    return init_glorot(encoder), init_glorot(_decoder(latents, [128], [64, 64, *narrow, shape[0]]))
