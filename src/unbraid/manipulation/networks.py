"""The networks of adversarial training: the manipulation, and the pairs that encode and decode changed images.

Names of modules, parameters and buffers are keys of checkpoints.
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

HIDDEN = 256
ANGLE = math.pi / 4  # at 45 degrees the rotated axes are farthest from the original ones
KINK_RANGE = 2.0  # the kinks of the first units lie within this many standard deviations of the scalar
PIXEL_MARGIN = 1e-6  # pixels closer than this to 0 or 1 are moved to this distance before the entropy is taken
SHARES_RATE = 10  # learning rate of the shares of the capacity, divided by that of the decoders


class Manipulation(nn.Module):
    """The manipulation m(w): standardised factors -> one scalar -> the decoder of Locatello et al. -> tanh.

    The scalar, and then every pixel before the tanh, is normalised to mean 0 and variance 1 over the batch, and by
    running averages in evaluation. So what is learned is how a pattern varies along the factors, not its strength.
    This is needed because the effect grows with the fourth power of the amplitude: where the local covariance of images
    has the diagonal entries a and d for two factors, and b between them, a pattern of amplitude r along their diagonal
    changes the advantage of rotated axes, ad - ((a + d) / 2)^2 + b^2, by r^4. Near m = 0 there is no gradient to
    follow, and a pattern that is the same for all images would be easier to find.

    Reference: Zietlow, Rolinek, Martius (2021), supplement, section 3.1. The bound of the output, the normalisation and
    the initialisation of the first layer are ours.
    """

    def __init__(self, axis: Float[Tensor, " k"], shape: tuple[int, ...]) -> None:
        super().__init__()
        self.squeeze = nn.Sequential(nn.Linear(len(axis), HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))
        init_glorot(self.squeeze)
        init_scalar_network(self.squeeze, axis)
        self.decoder = locatello(shape, 1)[1]
        init_pattern_decoder(self.decoder)
        self.level = nn.BatchNorm1d(1, affine=False)
        self.contrast = nn.BatchNorm1d(math.prod(shape), affine=False)

    def scalar(self, w: Float[Tensor, "b k"]) -> Float[Tensor, "b 1"]:
        """Return the scalar on which the pattern of an example depends."""
        value: Tensor = self.level(self.squeeze(w))
        return value

    def pattern(self, scalar: Float[Tensor, "b 1"]) -> Float[Tensor, "b c h w"]:
        """Return the patterns at values of the scalar, in [-1, 1]."""
        image: Tensor = self.decoder(scalar)
        return torch.tanh(self.contrast(image.flatten(1)).view(image.shape))

    def forward(self, w: Float[Tensor, "b k"]) -> Float[Tensor, "b c h w"]:
        return self.pattern(self.scalar(w))


def init_scalar_network(network: nn.Sequential, axis: Float[Tensor, " k"]) -> None:
    """Initialise the network from factors to the scalar close to the projection of the factors on `axis`.

    A random function of the factors has as much slope along the factors as along rotated axes. A manipulation that
    starts there converges to a function of one factor, which rotates no axes.
    """
    first, last = network[0], network[2]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    sign = 1.0 - 2 * (torch.arange(HIDDEN) % 2)  # relu(s) - relu(-s) = s
    with torch.no_grad():
        first.weight.add_(sign[:, None] * axis)
        last.weight.copy_(sign[None] * 2 / HIDDEN)


def init_pattern_decoder(decoder: nn.Module) -> None:
    """Spread the kinks of the decoder's first ReLU units over the range of the scalar, instead of placing all at 0.

    Only changes along the scalar distinguish axes. With all kinks at 0 a pattern would be linear on either side of it.
    """
    first = next(layer for layer in decoder.modules() if isinstance(layer, nn.Linear))
    with torch.no_grad():
        first.weight.copy_(2 * torch.randint(2, first.weight.shape) - 1)
        first.bias.uniform_(-KINK_RANGE, KINK_RANGE)


class FixedEncoderPair(nn.Module):
    r"""A fixed encoder and a decoder that learns. The encoder rotates the factors and adds noise.

    .. math:: z = R w + \sigma\epsilon, \quad -\log\sigma_j = C p_j

    The shares p are learned and add up to 1, and C is the capacity. This is the constraint of the paper's theorem 1,
    with no latent noisier than the prior. A VAE distributes its capacity over its latents; with equal :math:`\sigma`
    no rotation would matter.
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
        """Decode noisy codes. The noise is rotated with the factors, which does not change its distribution."""
        decoded: Tensor = self.decoder(w @ self.turn.T + self.sigma() * (epsilon @ self.turn.T))
        return decoded


def rotated_copy(pair: FixedEncoderPair, rotation: Float[Tensor, "k k"]) -> FixedEncoderPair:
    """Return a pair with rotated latents that computes the same function of the factors.

    Because both families start as the same function, they differ only in what they learn, not in their random
    initialisation.
    """
    other = copy.deepcopy(pair)
    other.turn = rotation
    first = next(layer for layer in other.decoder.modules() if isinstance(layer, nn.Linear))
    with torch.no_grad():
        first.weight.copy_(first.weight @ rotation.T)
    return other


def rotation_matrix(factors: int, planes: Iterable[tuple[int, int]]) -> Float[Tensor, "k k"]:
    """Return the rotation by 45 degrees in each of the given planes of two factors."""
    rotation = torch.eye(factors)
    for a, b in planes:
        rotation[a, a] = rotation[b, b] = math.cos(ANGLE)
        rotation[b, a] = math.sin(ANGLE)
        rotation[a, b] = -math.sin(ANGLE)
    return rotation


class PairFamilies(nn.Module):
    """Equally many disentangling and entangling pairs, which learn at the same time from the same images.

    `planes` has, for each entangling pair, the planes of two factors that it rotates. `pairs` lists the disentangling
    pairs first, then the entangling pairs in the same order.
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
        rotations = [rotation_matrix(factors, chosen) for chosen in planes]
        entangling = [rotated_copy(pair, turn) for pair, turn in zip(disentangling, rotations, strict=True)]
        self.pairs = nn.ModuleList([*disentangling, *entangling])
        self.likelihood, self.samples = likelihood, samples

    def adam(self, rate: float) -> torch.optim.Adam:
        """Return the optimiser of all pairs."""
        shares = [weight for name, weight in self.named_parameters() if name.endswith("shares")]
        rest = [weight for name, weight in self.named_parameters() if not name.endswith("shares")]
        groups: list[dict[str, Any]] = [{"params": rest}, {"params": shares, "lr": SHARES_RATE * rate}]
        return make_adam(groups, rate)

    def decode(self, w: Float[Tensor, "b k"], noise: Noise) -> list[Tensor]:
        """Return each pair's decoder outputs (samples * b, c, h, w) for noisy codes of the batch.

        A disentangling pair and its rotated copy share their noise.
        """
        factors = w.repeat(self.samples, 1)
        epsilons = [noise.normal(*factors.shape) for _ in range(len(self.pairs) // 2)]
        return [pair(factors, epsilon) for pair, epsilon in zip(self.pairs, epsilons * 2, strict=True)]

    def errors(self, x: Float[Tensor, "b c h w"], decoded: list[Tensor]) -> Float[Tensor, " 2"]:
        """Return the mean reconstruction error of the disentangling and of the entangling family, in nats per image.

        The entropy of the image is subtracted from cross-entropies, so that a perfect decoder has error 0.
        """
        target, nll = x.repeat(self.samples, 1, 1, 1), LIKELIHOODS[self.likelihood].nll
        losses = torch.stack([nll(target, image).mean() for image in decoded])
        least = pixel_entropy(x).mean() if self.likelihood == "bernoulli" else 0.0
        return losses.view(2, -1).mean(1) - least


def pixel_entropy(x: Float[Tensor, "b c h w"]) -> Float[Tensor, " b"]:
    """Return the entropy of pixels as probabilities, in nats per image, with a bounded slope at 0 and 1."""
    p = x.clamp(PIXEL_MARGIN, 1 - PIXEL_MARGIN)
    return -(p * p.log() + (1 - p) * (-p).log1p()).flatten(1).sum(1)


def make_adam(parameters: Iterable[Tensor] | list[dict[str, Any]], rate: float) -> torch.optim.Adam:
    """Return Adam with the constants of the reference. On a GPU its steps can be captured in a CUDA graph."""
    optimiser = torch.optim.Adam(parameters, rate, (0.9, 0.999), 1e-7)
    for group in optimiser.param_groups:
        group["capturable"] = all(weight.is_cuda for weight in group["params"])
    return optimiser
