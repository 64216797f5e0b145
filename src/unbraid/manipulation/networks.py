"""The networks of adversarial training.

The manipulation computes a small change of each image from its factors. Pairs of an encoder and a decoder reconstruct
the changed images.

The names of submodules, parameters and buffers must not change, because they are keys of checkpoints.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.distributions import LIKELIHOODS
from unbraid.nets.conv import init_glorot, locatello
from unbraid.noise import Noise

N_HIDDEN = 256  # hidden units of `Manipulation.squeeze`, which maps the factors to a scalar
ANGLE = math.pi / 4  # 45 degrees, where the rotated axes differ most from the original axes
KINK_RANGE = 2.0  # maximum distance of the kinks of the first ReLU layer from 0, in standard deviations of the scalar
PIXEL_MARGIN = 1e-6  # pixels are clipped to this distance from 0 and 1 before their entropy is computed
SHARES_RATE_FACTOR = 10  # learning rate of `FixedEncoderPair.shares` divided by that of the decoders


class Manipulation(nn.Module):
    """The manipulation m(w), which maps standardised factors w to a pattern with values in [-1, 1].

    A network (`squeeze`) maps the factors to a scalar. The decoder of Locatello et al. (2019) maps the scalar to an
    image, and a tanh bounds its pixels. Batch normalisation without learned parameters is applied to the scalar
    (`level`) and to each pixel before the tanh (`contrast`). Therefore the manipulation can learn how a pattern varies
    with the factors, but not how strong it is.

    The normalisation is needed because the effect of a pattern grows with the fourth power of its amplitude. Let a and
    d be the variances of the image under small changes of each of two factors, and b the covariance of these changes.
    The variances along axes rotated by 45 degrees are (a + d) / 2 + b and (a + d) / 2 - b. The error that noise in two
    latents causes is smallest for the axes with the smallest product of the two variances (see
    `unbraid.analysis.trace_bound`). This product is ad for the factors and ((a + d) / 2)^2 - b^2 for the rotated axes.
    The difference ad - ((a + d) / 2)^2 + b^2 is the advantage of the rotated axes. If b = 0, a pattern of amplitude r
    that varies along the diagonal of the two factors increases the advantage by r^4. The gradient of r^4 vanishes at
    r = 0. Without normalisation, training would therefore more easily find a pattern that is the same for all images
    than one that varies with the factors.

    Reference: Zietlow, Rolinek, Martius (2021), supplement, section 3.1. The bound of the output, the
    normalisation and the initialisation of the first layer are not from the paper. If `normalise` is false and `axis`
    is zero, the bound of the output is the only one of these three that is used.
    """

    def __init__(self, axis: Float[Tensor, " k"], shape: tuple[int, ...], normalise: bool = True) -> None:
        super().__init__()
        self.squeeze = nn.Sequential(nn.Linear(len(axis), N_HIDDEN), nn.ReLU(), nn.Linear(N_HIDDEN, 1))
        init_glorot(self.squeeze)
        if axis.any():
            init_scalar_network(self.squeeze, axis)
        self.decoder = locatello(shape, 1)[1]
        if normalise:
            init_pattern_decoder(self.decoder)
        self.level = nn.BatchNorm1d(1, affine=False) if normalise else nn.Identity()
        self.contrast = nn.BatchNorm1d(math.prod(shape), affine=False) if normalise else nn.Identity()

    def scalar(self, w: Float[Tensor, "b k"]) -> Float[Tensor, "b 1"]:
        """Return the scalar (b, 1) on which the pattern of each example depends."""
        value: Tensor = self.level(self.squeeze(w))
        return value

    def pattern(self, scalar: Float[Tensor, "b 1"]) -> Float[Tensor, "b c h w"]:
        """Return the patterns (b, c, h, w) for values of the scalar. Their pixels are in [-1, 1]."""
        image: Tensor = self.decoder(scalar)
        return torch.tanh(self.contrast(image.flatten(1)).view(image.shape))

    def forward(self, w: Float[Tensor, "b k"]) -> Float[Tensor, "b c h w"]:
        return self.pattern(self.scalar(w))


def init_scalar_network(network: nn.Sequential, axis: Float[Tensor, " k"]) -> None:
    """Initialise the network that computes the scalar to be approximately the projection of the factors on `axis`.

    With a random initialisation, the scalar would vary as much along the factors as along rotated axes. The
    manipulation would then converge to a function of a single factor, which does not favour rotated axes.
    """
    first, last = network[0], network[2]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    sign = 1.0 - 2 * (torch.arange(N_HIDDEN) % 2)  # the signs alternate because relu(s) - relu(-s) = s
    with torch.no_grad():
        first.weight.add_(sign[:, None] * axis)
        last.weight.copy_(sign[None] * 2 / N_HIDDEN)


def init_pattern_decoder(decoder: nn.Module) -> None:
    """Spread the kinks of the units in the decoder's first ReLU layer over the range of the scalar.

    With zero biases, all kinks would be at 0, and each pixel would be a linear function of the scalar on either side of
    0. Richer patterns are needed, because only their variation along the scalar favours some axes over others.
    """
    first = next(layer for layer in decoder.modules() if isinstance(layer, nn.Linear))
    with torch.no_grad():
        first.weight.copy_(2 * torch.randint(2, first.weight.shape) - 1)
        first.bias.uniform_(-KINK_RANGE, KINK_RANGE)


class FixedEncoderPair(nn.Module):
    r"""A pair of an encoder and a trained decoder. The encoder rotates the factors w and adds noise.

    .. math:: z = R w + \sigma\epsilon, \quad -\log\sigma_j = C p_j

    R is the rotation (`turn`) and C is the capacity. Both are fixed. :math:`\epsilon` is standard normal noise. The
    fractions p of the capacity are learned. They are the softmax of the parameter `shares`, so they are positive and
    sum to 1. The values of :math:`-\log\sigma_j` therefore sum to C, which is the constraint of theorem 1 of Zietlow et
    al. (2021). Because the fractions are positive, no latent is noisier than the prior. This is an additional
    constraint, which the theorem does not have. The fractions are learned because a VAE also distributes its capacity
    over its latents. If all :math:`\sigma_j` were equal, rotations would have no effect.
    """

    def __init__(self, shape: tuple[int, ...], rotation: Float[Tensor, "k k"], capacity: float) -> None:
        super().__init__()
        self.decoder = locatello(shape, len(rotation))[1]
        self.shares = nn.Parameter(torch.zeros(len(rotation)))
        self.turn: Tensor
        self.register_buffer("turn", rotation)
        self.capacity = capacity

    def sigma(self) -> Float[Tensor, " k"]:
        """Return the standard deviation of the noise of each latent."""
        return (-self.capacity * self.shares.softmax(0)).exp()

    def forward(self, w: Float[Tensor, "n k"], epsilon: Float[Tensor, "n k"]) -> Float[Tensor, "n c h w"]:
        """Decode noisy codes. The noise is rotated like the factors, which does not change its distribution."""
        decoded: Tensor = self.decoder(w @ self.turn.T + self.sigma() * (epsilon @ self.turn.T))
        return decoded


def rotated_copy(pair: FixedEncoderPair, rotation: Float[Tensor, "k k"]) -> FixedEncoderPair:
    """Return a copy of a pair whose latents are rotated. Initially it computes the same function of the factors.

    Because the pair and its copy start from the same function, differences between them do not come from the random
    initialisation.
    """
    rotated = copy.deepcopy(pair)
    rotated.turn = rotation
    first = next(layer for layer in rotated.decoder.modules() if isinstance(layer, nn.Linear))
    with torch.no_grad():
        first.weight.copy_(first.weight @ rotation.T)
    return rotated


def rotation_matrix(factors: int, planes: Iterable[tuple[int, int]]) -> Float[Tensor, "k k"]:
    """Return the matrix that rotates by 45 degrees in each of the given planes of two factors."""
    rotation = torch.eye(factors)
    for a, b in planes:
        rotation[a, a] = rotation[b, b] = math.cos(ANGLE)
        rotation[b, a] = math.sin(ANGLE)
        rotation[a, b] = -math.sin(ANGLE)
    return rotation


class PairFamilies(nn.Module):
    """A family of disentangling pairs and an equally large family of entangling pairs, trained on the same images.

    The argument `planes` lists, for each entangling pair, the planes of two factors that it rotates. The attribute
    `pairs` lists the disentangling pairs first, then their rotated copies in the same order.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        factors: int,
        planes: Sequence[Sequence[tuple[int, int]]],
        capacity: float,
        likelihood: str,
        samples: int,
    ) -> None:
        super().__init__()
        disentangling = [FixedEncoderPair(shape, rotation_matrix(factors, ()), capacity) for _ in planes]
        rotations = [rotation_matrix(factors, planes_of_pair) for planes_of_pair in planes]
        entangling = [rotated_copy(pair, rotation) for pair, rotation in zip(disentangling, rotations, strict=True)]
        self.pairs = nn.ModuleList([*disentangling, *entangling])
        self.likelihood, self.samples = likelihood, samples

    def make_optimiser(self, rate: float) -> torch.optim.Adam:
        """Return the optimiser of all pairs. The fractions of the capacity have a higher learning rate."""
        shares = [weight for name, weight in self.named_parameters() if name.endswith("shares")]
        rest = [weight for name, weight in self.named_parameters() if not name.endswith("shares")]
        groups: list[dict[str, Any]] = [{"params": rest}, {"params": shares, "lr": SHARES_RATE_FACTOR * rate}]
        return make_adam(groups, rate)

    def decode(self, w: Float[Tensor, "b k"], noise: Noise) -> list[Tensor]:
        """Return the decoder outputs (samples * b, c, h, w) of each pair for noisy codes of a batch.

        A disentangling pair and its rotated copy use the same noise.
        """
        factors = w.repeat(self.samples, 1)
        epsilons = [noise.normal(*factors.shape) for _ in range(len(self.pairs) // 2)]
        return [pair(factors, epsilon) for pair, epsilon in zip(self.pairs, epsilons * 2, strict=True)]

    def errors(self, x: Float[Tensor, "b c h w"], decoded: list[Tensor]) -> Float[Tensor, " 2"]:
        """Return the mean errors of the disentangling and of the entangling family, in nats per image.

        With the Bernoulli likelihood, the entropy of the images is subtracted from the cross-entropy. A perfect decoder
        therefore has error 0.
        """
        target, nll = x.repeat(self.samples, 1, 1, 1), LIKELIHOODS[self.likelihood].nll
        losses = torch.stack([nll(target, image).mean() for image in decoded])
        minimum = pixel_entropy(x).mean() if self.likelihood == "bernoulli" else 0.0
        return losses.view(2, -1).mean(1) - minimum


def pixel_entropy(x: Float[Tensor, "b c h w"]) -> Float[Tensor, " b"]:
    """Return the entropy of each image in nats, where each pixel is the probability of a Bernoulli variable.

    Pixels are clipped so that the gradient is bounded near 0 and 1.
    """
    p = x.clamp(PIXEL_MARGIN, 1 - PIXEL_MARGIN)
    return -(p * p.log() + (1 - p) * (-p).log1p()).flatten(1).sum(1)


def make_adam(parameters: Iterable[Tensor] | list[dict[str, Any]], rate: float) -> torch.optim.Adam:
    """Return Adam with the constants of Zietlow et al. (2021). On a GPU, its steps can be captured in a CUDA graph."""
    optimiser = torch.optim.Adam(parameters, rate, (0.9, 0.999), 1e-7)
    for group in optimiser.param_groups:
        group["capturable"] = all(weight.is_cuda for weight in group["params"])
    return optimiser
