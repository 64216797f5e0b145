"""The networks of VITAE: the presets of its experiments, and the network that decodes an image and then warps it.

VITAE splits the code into an appearance and a perspective. The appearance is decoded into an image, and the perspective
into the parameters of a spatial transformation that warps this image.
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

from unbraid.distributions import LIKELIHOODS, Gaussian, Likelihood
from unbraid.errors import UserError
from unbraid.nets.conv import init_glorot
from unbraid.nets.vae import Pair, PairBuilder, VAENet
from unbraid.spaces.transformers import Transformer

LEAKY_SLOPE = 0.1  # of leaky ReLUs
MIN_VARIANCE = 1e-5  # added to variances
WARP_INIT_SCALE = 0.1  # factor on the initial weights that produce transformations, so that these start near identity


class MeanAndVariance(nn.Module):
    """Two networks of the same kind, one for the means and one for the variances; a softplus keeps variances positive.

    It maps examples (b, ...) to (b, 2 d): the means, then the log variances.
    """

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.mean, self.variance = make(), make()

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
    """Build VITAE's networks for MNIST: fully connected, with 128 and 64 hidden units, and 64 and 64 in the decoder.

    The encoder consists of two such networks, one for the means and one for the variances.
    Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881, supplement, table 1 (`vitae_bodies`: table 3).

    Args:
        shape: Shape of one example; any shape is accepted.
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
    """Build `vitae_mlp` with half the units, because VITAE has two encoders and two decoders.

    Args:
        shape: Shape of one example; any shape is accepted.
        latents: Number of latents.

    Returns:
        The encoder, which maps (b, ...) to (b, 2 * latents), and the decoder, which maps (b, latents) to (b, ...).
    """
    return vitae_mlp(shape, latents, (64, 32), (32, 32))


def vitae_bodies(shape: tuple[int, ...], latents: int) -> Pair:
    """Build VITAE's networks for bodies: `vitae_mlp` with 256 and 128 hidden units, and 128 and 256 in the decoder.

    Args:
        shape: Shape of one example; any shape is accepted.
        latents: Number of latents.

    Returns:
        The encoder, which maps (b, ...) to (b, 2 * latents), and the decoder, which maps (b, latents) to (b, ...).
    """
    return vitae_mlp(shape, latents, (256, 128), (128, 256))


def vitae_bodies_half(shape: tuple[int, ...], latents: int) -> Pair:
    """Build `vitae_bodies` with half the units, because VITAE has two encoders and two decoders.

    Args:
        shape: Shape of one example; any shape is accepted.
        latents: Number of latents.

    Returns:
        The encoder, which maps (b, ...) to (b, 2 * latents), and the decoder, which maps (b, latents) to (b, ...).
    """
    return vitae_mlp(shape, latents, (128, 64), (64, 128))


def vitae_conv(shape: tuple[int, ...], latents: int, channels: tuple[int, int, int] = (10, 20, 40)) -> Pair:
    """Build VITAE's networks for CelebA: three convolutions in the encoder, four transposed ones in the decoder.

    The kernels are 5, 5, 3 and 3, 3, 5, 5, all with stride 2. The encoder consists of two such networks, one for the
    means and one for the variances. The first transposed convolution starts from a dense layer with half the height
    and width of the third convolution's output, which the paper's table does not specify.
    Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881, supplement, table 4.

    Args:
        shape: Shape (c, h, w) of one image; h and w must be multiples of 16.
        latents: Number of latents.
        channels: Channels of the three convolutions.

    Returns:
        The encoder, which maps (b, c, h, w) to (b, 2 * latents), and the decoder, which maps (b, latents) to
        (b, c, h, w).

    Raises:
        UserError: If the shape is not that of images whose sides are multiples of 16.
    """
    if len(shape) != 3 or shape[1] % 16 or shape[2] % 16:
        raise UserError(
            f"The net 'vitae_conv' needs images whose sides are multiples of 16. Got shape {shape}. Resize the images, "
            "or choose net 'vitae_mlp'."
        )
    first, second, third = channels
    down = ((shape[0], first, 5), (first, second, 5), (second, third, 3))
    up = ((third, third, 3), (third, second, 3), (second, first, 5), (first, shape[0], 5))
    small, tiny = (third, shape[1] // 8, shape[2] // 8), (third, shape[1] // 16, shape[2] // 16)

    def encoder() -> nn.Module:
        convs = [f for a, b, k in down for f in (nn.Conv2d(a, b, k, 2, k // 2), nn.LeakyReLU(LEAKY_SLOPE))]
        return nn.Sequential(*convs, nn.Flatten(), nn.Linear(math.prod(small), latents))

    start = [nn.Linear(latents, math.prod(tiny)), nn.LeakyReLU(LEAKY_SLOPE), nn.Unflatten(1, tiny)]
    ups = [f for a, b, k in up for f in (nn.ConvTranspose2d(a, b, k, 2, k // 2, 1), nn.LeakyReLU(LEAKY_SLOPE))]
    return init_glorot(MeanAndVariance(encoder)), init_glorot(nn.Sequential(*start, *ups[:-1]))


def vitae_conv_half(shape: tuple[int, ...], latents: int) -> Pair:
    """Build `vitae_conv` with half the channels, because VITAE has two encoders and two decoders.

    Args:
        shape: Shape (c, h, w) of one image; h and w must be multiples of 16.
        latents: Number of latents.

    Returns:
        The encoder, which maps (b, c, h, w) to (b, 2 * latents), and the decoder, which maps (b, latents) to
        (b, c, h, w).

    Raises:
        UserError: If the shape is not that of images whose sides are multiples of 16.
    """
    return vitae_conv(shape, latents, (5, 10, 20))


class VitaeEncoder(nn.Module):
    """The encoders of the appearance and of the perspective.

    When called, it applies both to the same images (b, c, h, w) and returns the means of all latents, then their log
    variances, (b, 2 d).
    """

    def __init__(self, appearance: nn.Module, perspective: nn.Module) -> None:
        super().__init__()
        self.appearance, self.perspective = appearance, perspective

    def forward(self, x: Tensor) -> Float[Tensor, "b twice"]:
        halves = zip(self.appearance(x).chunk(2, 1), self.perspective(x).chunk(2, 1), strict=True)
        return torch.cat([part for half in halves for part in half], 1)


class VitaeDecoder(nn.Module):
    """Decode the appearance into an image, and warp this image with the transformation decoded from the perspective.

    The output (b, c, h, w) has the form that the likelihood expects, for example logits. The first `split` latents are
    the appearance, the rest the perspective.
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
        """Return the mean image of an appearance code before it is warped."""
        return self.likelihood.mean(self.appearance(z))

    def forward(self, z: Float[Tensor, "b d"]) -> Float[Tensor, "b c h w"]:
        image, gamma = self.decode_appearance(z[:, : self.split]), self.perspective(z[:, self.split :])
        return self.likelihood.output(self.transformer.forward(image, gamma))


class VitaeNet(VAENet):
    """A VAE whose code is the appearance followed by the perspective.

    If `conditional`, the appearance is inferred from the image under the inverse of the inferred transformation.
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
        """Return the posterior of the appearance: q(z_A|x, z_P) if `conditional`, else q(z_A|x)."""
        image = self.decoder.transformer.backward(x, self.decoder.perspective(z)) if self.conditional else x
        return Gaussian(*self.encoder.appearance(image).chunk(2, 1))

    def encode(self, x: Tensor) -> Gaussian:
        """Return the joint posterior, with the appearance inferred at the mean of the perspective."""
        perspective = self.encode_perspective(x)
        appearance = self.encode_appearance(x, perspective.mean)
        return join_posteriors(appearance, perspective)


def join_posteriors(appearance: Gaussian, perspective: Gaussian) -> Gaussian:
    """Return one posterior over both parts of the code, appearance first."""
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
) -> VitaeNet:
    """Build VITAE's network; `latents` are the numbers of latents of the appearance and of the perspective.

    `builder` makes the encoders of both and the decoder of the appearance. The decoder of the perspective is a small
    network that returns the parameters of a transformation, initially close to the identity.
    """
    (appearance_encoder, appearance_decoder), (perspective_encoder, _) = (builder(shape, n) for n in latents)
    perspective_decoder = init_glorot(nn.Sequential(*dense_layers((latents[1], 32, 32, transformer.dim))))
    last = [layer for layer in perspective_decoder.modules() if isinstance(layer, nn.Linear)][-1]
    with torch.no_grad():
        last.weight.mul_(WARP_INIT_SCALE)
    encoder = VitaeEncoder(appearance_encoder, perspective_encoder)
    decoder = VitaeDecoder(
        appearance_decoder, perspective_decoder, transformer, LIKELIHOODS[likelihood], split=latents[0]
    )
    return VitaeNet(encoder, decoder, likelihood, conditional)
