"""The networks of VITAE: the presets for the experiments of the paper, and the network that warps decoded images.

VITAE divides the latents into two parts, the appearance and the perspective. One decoder maps the appearance to an
image. Another decoder maps the perspective to the parameters of a spatial transformation, which warps this image.
Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.accel.wrapper import NetworkWrapper
from unbraid.distributions import LIKELIHOODS, Gaussian, Likelihood
from unbraid.errors import UserError
from unbraid.nets.conv import init_glorot
from unbraid.nets.vae import Pair, PairBuilder, VAENet, check_plain_decoder
from unbraid.spaces.transformers import Transformer

LEAKY_SLOPE = 0.1  # negative slope of leaky ReLUs
MIN_VARIANCE = 1e-5  # added to variances, so no variance is smaller than this
# The initial weights of the layer that returns the parameters of transformations are multiplied by this number, so the
# transformations start near the identity.
WARP_INIT_SCALE = 0.1


class MeanAndVariance(NetworkWrapper):
    """An encoder that consists of two networks of the same architecture, one for the means and one for the variances.

    A softplus makes the variances positive. The encoder maps examples (b, ...) to (b, 2 d): the means, then the log
    variances.
    """

    def __init__(self, build: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.mean, self.variance = build(), build()

    def forward(self, x: Tensor) -> Float[Tensor, "b twice"]:
        return torch.cat([self.mean(x), (F.softplus(self.variance(x)) + MIN_VARIANCE).log()], 1)


def dense_layers(widths: tuple[int, ...]) -> list[nn.Module]:
    """Return linear layers of the given widths with leaky ReLUs between them."""
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), nn.LeakyReLU(LEAKY_SLOPE)]
    return layers[:-1]


def vitae_mlp(
    shape: tuple[int, ...], latents: int, encoder: tuple[int, int] = (128, 64), decoder: tuple[int, int] = (64, 64)
) -> Pair:
    """Build the fully connected networks of VITAE for MNIST.

    By default, the hidden layers have 128 and 64 units in the encoder, and 64 and 64 units in the decoder. The encoder
    consists of two networks with these hidden layers, one for the means and one for the variances.
    Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881, supplement, table 1.

    Args:
        shape: Shape of one example. Any shape is accepted.
        latents: Number of latents.
        encoder: Widths of the two hidden layers of the encoder.
        decoder: Widths of the two hidden layers of the decoder.

    Returns:
        The encoder, which maps (b, ...) to (b, 2 * latents), and the decoder, which maps (b, latents) to (b, ...).
    """
    size = math.prod(shape)
    inference = MeanAndVariance(lambda: nn.Sequential(nn.Flatten(), *dense_layers((size, *encoder, latents))))
    return init_glorot(inference), init_glorot(
        nn.Sequential(*dense_layers((latents, *decoder, size)), nn.Unflatten(1, shape))
    )


def vitae_mlp_half(shape: tuple[int, ...], latents: int) -> Pair:
    """Build `vitae_mlp` with half the units, to compensate for the two encoders and two decoders of VITAE.

    Args:
        shape: Shape of one example. Any shape is accepted.
        latents: Number of latents.

    Returns:
        The encoder, which maps (b, ...) to (b, 2 * latents), and the decoder, which maps (b, latents) to (b, ...).
    """
    return vitae_mlp(shape, latents, (64, 32), (32, 32))


def vitae_bodies(shape: tuple[int, ...], latents: int) -> Pair:
    """Build the fully connected networks of VITAE for images of bodies.

    They are those of `vitae_mlp`, but the hidden layers have 256 and 128 units in the encoder, and 128 and 256 units in
    the decoder.
    Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881, supplement, table 3.

    Args:
        shape: Shape of one example. Any shape is accepted.
        latents: Number of latents.

    Returns:
        The encoder, which maps (b, ...) to (b, 2 * latents), and the decoder, which maps (b, latents) to (b, ...).
    """
    return vitae_mlp(shape, latents, (256, 128), (128, 256))


def vitae_bodies_half(shape: tuple[int, ...], latents: int) -> Pair:
    """Build `vitae_bodies` with half the units, to compensate for the two encoders and two decoders of VITAE.

    Args:
        shape: Shape of one example. Any shape is accepted.
        latents: Number of latents.

    Returns:
        The encoder, which maps (b, ...) to (b, 2 * latents), and the decoder, which maps (b, latents) to (b, ...).
    """
    return vitae_mlp(shape, latents, (128, 64), (64, 128))


def vitae_conv(shape: tuple[int, ...], latents: int, channels: tuple[int, int, int] = (10, 20, 40)) -> Pair:
    """Build the convolutional networks of VITAE for CelebA.

    The encoder has three convolutions with kernel sizes 5, 5, 3. The decoder has four transposed convolutions with
    kernel sizes 3, 3, 5, 5. All these layers have stride 2. The encoder consists of two networks with these
    convolutions, one for the means and one for the variances. The paper does not specify the size of the input of the
    first transposed convolution. Here this input has half the height and width of the output of the third convolution.
    Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881, supplement, table 4.

    Args:
        shape: Shape (c, h, w) of one image, where h and w are multiples of 16.
        latents: Number of latents.
        channels: Numbers of output channels of the three convolutions.

    Returns:
        The encoder, which maps (b, c, h, w) to (b, 2 * latents), and the decoder, which maps (b, latents) to
        (b, c, h, w).

    Raises:
        UserError: If the shape is not that of an image whose height and width are multiples of 16.
    """
    if len(shape) != 3 or shape[1] % 16 or shape[2] % 16:
        raise UserError(
            f"The net 'vitae_conv' needs images whose height and width are multiples of 16. Got shape {shape} instead. "
            "Resize the images, or choose net 'vitae_mlp'."
        )
    first, second, third = channels
    down = ((shape[0], first, 5), (first, second, 5), (second, third, 3))
    up = ((third, third, 3), (third, second, 3), (second, first, 5), (first, shape[0], 5))
    encoder_end, decoder_start = (third, shape[1] // 8, shape[2] // 8), (third, shape[1] // 16, shape[2] // 16)

    def encoder() -> nn.Module:
        convs = [f for a, b, k in down for f in (nn.Conv2d(a, b, k, 2, k // 2), nn.LeakyReLU(LEAKY_SLOPE))]
        return nn.Sequential(*convs, nn.Flatten(), nn.Linear(math.prod(encoder_end), latents))

    dense = [
        nn.Linear(latents, math.prod(decoder_start)), nn.LeakyReLU(LEAKY_SLOPE), nn.Unflatten(1, decoder_start),
    ]  # fmt: skip
    transposed = [f for a, b, k in up for f in (nn.ConvTranspose2d(a, b, k, 2, k // 2, 1), nn.LeakyReLU(LEAKY_SLOPE))]
    return init_glorot(MeanAndVariance(encoder)), init_glorot(nn.Sequential(*dense, *transposed[:-1]))


def vitae_conv_half(shape: tuple[int, ...], latents: int) -> Pair:
    """Build `vitae_conv` with half the channels, to compensate for the two encoders and two decoders of VITAE.

    Args:
        shape: Shape (c, h, w) of one image, where h and w are multiples of 16.
        latents: Number of latents.

    Returns:
        The encoder, which maps (b, c, h, w) to (b, 2 * latents), and the decoder, which maps (b, latents) to
        (b, c, h, w).

    Raises:
        UserError: If the shape is not that of an image whose height and width are multiples of 16.
    """
    return vitae_conv(shape, latents, (5, 10, 20))


def vitae_celeba(shape: tuple[int, ...], latents: int) -> Pair:
    """Build `vitae_conv` with a sigmoid after the last layer of the decoder, as the paper does for CelebA.

    The decoder returns means in (0, 1). It is for the likelihoods "normal" and "gaussian", because a Bernoulli
    likelihood applies a sigmoid itself.
    Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881, supplement, table 4.

    Args:
        shape: Shape (c, h, w) of one image, where h and w are multiples of 16.
        latents: Number of latents.

    Returns:
        The encoder, which maps (b, c, h, w) to (b, 2 * latents), and the decoder, which maps (b, latents) to
        (b, c, h, w).

    Raises:
        UserError: If the shape is not that of an image whose height and width are multiples of 16.

    >>> decoder = vitae_celeba((3, 128, 128), latents=2)[1]
    >>> bool((decoder(torch.zeros(1, 2)) == 0.5).all())  # with zero biases
    True
    """
    return _with_sigmoid(vitae_conv(shape, latents))


def vitae_celeba_half(shape: tuple[int, ...], latents: int) -> Pair:
    """Build `vitae_celeba` with half the channels, to compensate for the two encoders and two decoders of VITAE.

    Args:
        shape: Shape (c, h, w) of one image, where h and w are multiples of 16.
        latents: Number of latents.

    Returns:
        The encoder, which maps (b, c, h, w) to (b, 2 * latents), and the decoder, which maps (b, latents) to
        (b, c, h, w).

    Raises:
        UserError: If the shape is not that of an image whose height and width are multiples of 16.
    """
    return _with_sigmoid(vitae_conv_half(shape, latents))


def _with_sigmoid(pair: Pair) -> Pair:
    """Return the pair with a sigmoid after the last layer of the decoder."""
    encoder, decoder = pair
    return encoder, nn.Sequential(*decoder.children(), nn.Sigmoid())


class VitaeEncoder(NetworkWrapper):
    """The encoder of the appearance and the encoder of the perspective, applied to the same images.

    It maps images (b, c, h, w) to (b, 2 d): the means of all latents, then their log variances.
    """

    def __init__(self, appearance: nn.Module, perspective: nn.Module) -> None:
        super().__init__()
        self.appearance, self.perspective = appearance, perspective

    def forward(self, x: Tensor) -> Float[Tensor, "b twice"]:
        means_and_logvars = zip(self.appearance(x).chunk(2, 1), self.perspective(x).chunk(2, 1), strict=True)
        return torch.cat([part for both in means_and_logvars for part in both], 1)


class VitaeDecoder(NetworkWrapper):
    """A decoder that maps the appearance to an image, and warps this image by a transformation.

    The perspective determines the transformation.

    The first `split` latents are the appearance, and the remaining latents are the perspective. The output (b, c, h, w)
    has the form that the likelihood expects, for example logits.
    """

    def __init__(
        self,
        appearance: nn.Module,
        perspective: nn.Module,
        transformer: Transformer,
        likelihood: Likelihood,
        split: int,
    ) -> None:
        super().__init__()
        self.appearance, self.perspective = appearance, perspective
        self.transformer, self.likelihood, self.split = transformer, likelihood, split

    def decode_appearance(self, z: Float[Tensor, "b a"]) -> Float[Tensor, "b c h w"]:
        """Return the mean images (b, c, h, w) of appearances z, before they are warped."""
        return self.likelihood.mean(self.appearance(z))

    def forward(self, z: Float[Tensor, "b d"]) -> Float[Tensor, "b c h w"]:
        image, gamma = self.decode_appearance(z[:, : self.split]), self.perspective(z[:, self.split :])
        return self.likelihood.output(self.transformer.forward(image, gamma))


class VitaeNet(VAENet):
    """A VAE whose latents are the appearance followed by the perspective.

    If `conditional` is true, the appearance is inferred from the image after the inferred transformation is undone.
    """

    encoder: VitaeEncoder
    decoder: VitaeDecoder

    def __init__(self, encoder: VitaeEncoder, decoder: VitaeDecoder, likelihood: str, conditional: bool) -> None:
        super().__init__(encoder, decoder, likelihood)
        self.conditional = conditional

    def encode_perspective(self, x: Tensor) -> Gaussian:
        """Return the posterior q(z_P|x) of the perspective."""
        return Gaussian(*self.encoder.perspective(x).chunk(2, 1))

    def encode_appearance(self, x: Tensor, z: Float[Tensor, "b p"]) -> Gaussian:
        """Return the posterior of the appearance, which is q(z_A|x, z_P) if `conditional`, and q(z_A|x) otherwise."""
        image = self.decoder.transformer.backward(x, self.decoder.perspective(z)) if self.conditional else x
        return Gaussian(*self.encoder.appearance(image).chunk(2, 1))

    def encode(self, x: Tensor) -> Gaussian:
        """Return the posterior of all latents, where the appearance is inferred given the mean of the perspective."""
        perspective = self.encode_perspective(x)
        appearance = self.encode_appearance(x, perspective.mean)
        return join_posteriors(appearance, perspective)


def join_posteriors(appearance: Gaussian, perspective: Gaussian) -> Gaussian:
    """Return the joint posterior of appearance and perspective, in this order."""
    return Gaussian(
        torch.cat([appearance.mean, perspective.mean], 1), torch.cat([appearance.logvar, perspective.logvar], 1)
    )


def build_vitae_net(
    builder: PairBuilder,
    shape: tuple[int, ...],
    latents: tuple[int, int],
    transformer: Transformer,
    likelihood: str,
    conditional: bool,
    perspective_hidden: tuple[int, int] = (32, 32),
) -> VitaeNet:
    """Build the network of VITAE.

    `latents` gives the number of latents of the appearance and of the perspective. `builder` builds both encoders and
    the decoder of the appearance. The decoder of the perspective returns the parameters of a transformation. It is a
    network with two hidden layers, whose widths are `perspective_hidden`. Initially, the transformation is close to the
    identity.

    Raises:
        UserError: If the decoder of the builder computes the likelihood itself, because its images are warped.
    """
    (appearance_encoder, appearance_decoder), (perspective_encoder, _) = (builder(shape, n) for n in latents)
    check_plain_decoder(appearance_decoder, "The images of the decoder of VITAE are warped")
    widths = (latents[1], *perspective_hidden, transformer.dim)
    perspective_decoder = init_glorot(nn.Sequential(*dense_layers(widths)))
    last = [layer for layer in perspective_decoder.modules() if isinstance(layer, nn.Linear)][-1]
    with torch.no_grad():
        last.weight.mul_(WARP_INIT_SCALE)
    encoder = VitaeEncoder(appearance_encoder, perspective_encoder)
    decoder = VitaeDecoder(
        appearance_decoder, perspective_decoder, transformer, LIKELIHOODS[likelihood], split=latents[0]
    )
    return VitaeNet(encoder, decoder, likelihood, conditional)
