"""The networks of VITAE's experiments, and the net of two inferences and two generators that warps what one makes."""

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
from unbraid.nets.conv import glorot
from unbraid.nets.vae import Pair, VAENet
from unbraid.spaces.transformers import Transformer

SLOPE = 0.1  # of leaky ReLUs
LEAST = 1e-5  # added to variances
STILL = 0.1  # how much smaller than usual the first transformations are


class MeanAndVariance(nn.Module):
    """Two networks side by side, for the means and for the variances, which a softplus keeps above 0."""

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.mean, self.variance = make(), make()

    def forward(self, x: Tensor) -> Float[Tensor, "b twice"]:
        return torch.cat([self.mean(x), (F.softplus(self.variance(x)) + LEAST).log()], 1)


def dense(widths: tuple[int, ...]) -> list[nn.Module]:
    """Linear layers with leaky ReLUs between them."""
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), nn.LeakyReLU(SLOPE)]
    return layers[:-1]


def vitae_mlp(
    shape: tuple[int, ...], latents: int, encoder: tuple[int, int] = (128, 64), decoder: tuple[int, int] = (64, 64)
) -> Pair:
    """Fully connected, 128 and 64 units to mean and variance each, 64 and 64 back: VITAE's MNIST networks.

    Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881, supplement, table 1 (`vitae_bodies`: table 3).
    """
    size = math.prod(shape)
    made = MeanAndVariance(lambda: nn.Sequential(nn.Flatten(), *dense((size, *encoder, latents))))
    return glorot(made), glorot(nn.Sequential(*dense((latents, *decoder, size)), nn.Unflatten(1, shape)))


def vitae_mlp_half(shape: tuple[int, ...], latents: int) -> Pair:
    """Half the units of `vitae_mlp`, for VITAE's two encoders and decoders."""
    return vitae_mlp(shape, latents, (64, 32), (32, 32))


def vitae_bodies(shape: tuple[int, ...], latents: int) -> Pair:
    """Fully connected, 256 and 128 units to mean and variance each, 128 and 256 back: VITAE's body networks."""
    return vitae_mlp(shape, latents, (256, 128), (128, 256))


def vitae_bodies_half(shape: tuple[int, ...], latents: int) -> Pair:
    """Half the units of `vitae_bodies`, for VITAE's two encoders and decoders."""
    return vitae_mlp(shape, latents, (128, 64), (64, 128))


def vitae_conv(shape: tuple[int, ...], latents: int, channels: tuple[int, int, int] = (10, 20, 40)) -> Pair:
    """Three convolutions to mean and variance each, four transposed ones back: VITAE's CelebA networks.

    Kernels 5, 5, 3 and 3, 3, 5, 5, all of stride 2; sides must be multiples of 16. The first transposed convolution
    starts from a dense layer of the third convolution's shape halved, which the table leaves open.
    Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881, supplement, table 4.
    """
    if len(shape) != 3 or shape[1] % 16 or shape[2] % 16:
        raise UserError(f"The net 'vitae_conv' takes images whose sides are multiples of 16. Got shape {shape}.")
    first, second, third = channels
    down = ((shape[0], first, 5), (first, second, 5), (second, third, 3))
    up = ((third, third, 3), (third, second, 3), (second, first, 5), (first, shape[0], 5))
    small, tiny = (third, shape[1] // 8, shape[2] // 8), (third, shape[1] // 16, shape[2] // 16)

    def encoder() -> nn.Module:
        convs = [f for a, b, k in down for f in (nn.Conv2d(a, b, k, 2, k // 2), nn.LeakyReLU(SLOPE))]
        return nn.Sequential(*convs, nn.Flatten(), nn.Linear(math.prod(small), latents))

    start = [nn.Linear(latents, math.prod(tiny)), nn.LeakyReLU(SLOPE), nn.Unflatten(1, tiny)]
    ups = [f for a, b, k in up for f in (nn.ConvTranspose2d(a, b, k, 2, k // 2, 1), nn.LeakyReLU(SLOPE))]
    return glorot(MeanAndVariance(encoder)), glorot(nn.Sequential(*start, *ups[:-1]))


def vitae_conv_half(shape: tuple[int, ...], latents: int) -> Pair:
    """Half the channels of `vitae_conv`, for VITAE's two encoders and decoders."""
    return vitae_conv(shape, latents, (5, 10, 20))


class Inference(nn.Module):
    """The encoders of appearance and perspective; called on images, both look at them as they are."""

    def __init__(self, appearance: nn.Module, perspective: nn.Module) -> None:
        super().__init__()
        self.appearance, self.perspective = appearance, perspective

    def forward(self, x: Tensor) -> Float[Tensor, "b twice"]:
        halves = zip(self.appearance(x).chunk(2, 1), self.perspective(x).chunk(2, 1), strict=True)
        return torch.cat([part for half in halves for part in half], 1)


class Generation(nn.Module):
    """The appearance decoded and then warped, given as the output a likelihood expects (logits, say)."""

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

    def upright(self, z: Float[Tensor, "b a"]) -> Float[Tensor, "b c h w"]:
        """The mean image of an appearance before it is put in perspective."""
        return self.likelihood.mean(self.appearance(z))

    def forward(self, z: Float[Tensor, "b d"]) -> Float[Tensor, "b c h w"]:
        image, gamma = self.upright(z[:, : self.split]), self.perspective(z[:, self.split :])
        return self.likelihood.output(self.transformer.forward(image, gamma))


class VitaeNet(VAENet):
    """Codes are the appearance, then the perspective; `conditional`: the appearance is seen with it taken back."""

    encoder: Inference
    decoder: Generation

    def __init__(self, encoder: Inference, decoder: Generation, likelihood: str, conditional: bool) -> None:
        super().__init__(encoder, decoder, likelihood)
        self.conditional = conditional

    def see_perspective(self, x: Tensor) -> Gaussian:
        """q(z_P|x)."""
        return Gaussian(*self.encoder.perspective(x).chunk(2, 1))

    def see_appearance(self, x: Tensor, z: Float[Tensor, "b p"]) -> Gaussian:
        """q(z_A|x, z_P), of the image under the inverse transformation, or q(z_A|x)."""
        seen = self.decoder.transformer.backward(x, self.decoder.perspective(z)) if self.conditional else x
        return Gaussian(*self.encoder.appearance(seen).chunk(2, 1))

    def encode(self, x: Tensor) -> Gaussian:
        """Both posteriors, with the appearance as the perspective's mean shows it."""
        perspective = self.see_perspective(x)
        appearance = self.see_appearance(x, perspective.mean)
        return joined(appearance, perspective)


def joined(appearance: Gaussian, perspective: Gaussian) -> Gaussian:
    """One posterior of both, appearance first."""
    return Gaussian(
        torch.cat([appearance.mean, perspective.mean], 1), torch.cat([appearance.logvar, perspective.logvar], 1)
    )


def vitae_net(
    builder: Callable[[tuple[int, ...], int], Pair],
    shape: tuple[int, ...],
    latents: tuple[int, int],
    transformer: Transformer,
    likelihood: str,
    conditional: bool,
) -> VitaeNet:
    """Pairs of one kind for appearance and perspective, (appearance, perspective) `latents`.

    The perspective's decoder is a small network to the parameters of a transformation, close to the identity at first.
    """
    (see, make), (look, _) = (builder(shape, n) for n in latents)
    turn = glorot(nn.Sequential(*dense((latents[1], 32, 32, transformer.dim))))
    last = [layer for layer in turn.modules() if isinstance(layer, nn.Linear)][-1]
    with torch.no_grad():
        last.weight.mul_(STILL)
    generation = Generation(make, turn, transformer, LIKELIHOODS[likelihood], latents[0])
    return VitaeNet(Inference(see, look), generation, likelihood, conditional)
