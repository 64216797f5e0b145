"""The networks of the game: what draws the changes, and the pairs that code and decode changed images."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.distributions import LIKELIHOODS
from unbraid.nets.conv import glorot, locatello
from unbraid.noise import Noise

HIDDEN = 256
TURN = math.pi / 4  # both new axes are as far from the old ones as they can be
REACH = 2.0  # standard deviations of the scalar within which units bend
EDGE = 1e-6  # of probabilities: pixels closer to 0 or 1 count as this close
FASTER = 10  # how much faster the shares of the capacity learn than the decoders


class Manipulation(nn.Module):
    """m(w): standardised factors -> one scalar -> the large study's decoder -> tanh.

    The scalar, and then every pixel before the tanh, is brought to mean 0 and variance 1 over the batch, and by running
    averages in evaluation. So what is learned is where a pattern goes along the factors, and not its strength: where
    the local covariance of images has the entries a and d for two factors, a pattern of amplitude r along their
    diagonal changes the advantage of rotated axes, ad - ((a + d) / 2)^2 + b^2, by r^4. Near m = 0 there is no slope to
    follow, and a pattern that is the same for all images would be the easier thing to find.

    Reference: Zietlow, Rolinek, Martius (2021), supplement, section 3.1; the bound of the output, the normalisation and
    the start of the first layer are ours.
    """

    def __init__(self, axis: Float[Tensor, " k"], shape: tuple[int, ...]) -> None:
        super().__init__()
        self.squeeze = nn.Sequential(nn.Linear(len(axis), HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))
        glorot(self.squeeze)
        align(self.squeeze, axis)
        self.decoder = bent(locatello(shape, 1)[1])
        self.level = nn.BatchNorm1d(1, affine=False)
        self.contrast = nn.BatchNorm1d(math.prod(shape), affine=False)

    def scalar(self, w: Float[Tensor, "b k"]) -> Float[Tensor, "b 1"]:
        """All that the pattern of an example depends on."""
        squeezed: Tensor = self.level(self.squeeze(w))
        return squeezed

    def pattern(self, scalar: Float[Tensor, "b 1"]) -> Float[Tensor, "b c h w"]:
        """The change that belongs to a scalar, in [-1, 1]."""
        image: Tensor = self.decoder(scalar)
        return torch.tanh(self.contrast(image.flatten(1)).view(image.shape))

    def forward(self, w: Float[Tensor, "b k"]) -> Float[Tensor, "b c h w"]:
        return self.pattern(self.scalar(w))


def align(squeeze: nn.Sequential, axis: Float[Tensor, " k"]) -> None:
    """Let a scalar begin as the given mixture of factors; it may bend from there.

    A random function of the factors has as much slope along them as along rotated axes, and a manipulation that begins
    there settles on one factor, which turns no axes.
    """
    first, last = squeeze[0], squeeze[2]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    sign = 1.0 - 2 * (torch.arange(HIDDEN) % 2)  # relu(s) - relu(-s) = s
    with torch.no_grad():
        first.weight.add_(sign[:, None] * axis)
        last.weight.copy_(sign[None] * 2 / HIDDEN)


def bent(decoder: nn.Module) -> nn.Module:
    """A decoder of one scalar whose first units bend all over its range, and not all of them at 0.

    Only what changes along the scalar tells axes apart, and without this a pattern is a straight line on either side.
    """
    first = next(layer for layer in decoder.modules() if isinstance(layer, nn.Linear))
    with torch.no_grad():
        first.weight.copy_(2 * torch.randint(2, first.weight.shape) - 1)
        first.bias.uniform_(-REACH, REACH)
    return decoder


class Pair(nn.Module):
    r"""An encoder that is known and a decoder that learns: :math:`z = Rw + \sigma\epsilon`.

    A VAE shares its capacity out among its latents, and with equal :math:`\sigma` no rotation would matter. So
    :math:`-\log\sigma_j = C p_j` with learned shares p that add up to 1: the constraint of the paper's theorem 1, with
    no latent noisier than the prior.
    """

    def __init__(self, shape: tuple[int, ...], turn: Float[Tensor, "k k"], capacity: float) -> None:
        super().__init__()
        self.decoder = locatello(shape, len(turn))[1]
        self.shares = nn.Parameter(torch.zeros(len(turn)))
        self.turn: Tensor
        self.register_buffer("turn", turn)
        self.capacity = capacity

    def sigma(self) -> Float[Tensor, " k"]:
        """The standard deviation of each latent's noise."""
        return (-self.capacity * self.shares.softmax(0)).exp()

    def forward(self, w: Float[Tensor, "n k"], epsilon: Float[Tensor, "n k"]) -> Float[Tensor, "n c h w"]:
        """What is decoded from noisy codes; the noise is turned with the factors, which leaves its distribution."""
        decoded: Tensor = self.decoder(w @ self.turn.T + self.sigma() * (epsilon @ self.turn.T))
        return decoded


def partner(pair: Pair, turn: Float[Tensor, "k k"]) -> Pair:
    """The same function of the factors in turned coordinates.

    Where both families begin as one, what tells them apart is only what they learn, not their random starts.
    """
    other = copy.deepcopy(pair)
    other.turn = turn
    first = next(layer for layer in other.decoder.modules() if isinstance(layer, nn.Linear))
    with torch.no_grad():
        first.weight.copy_(first.weight @ turn.T)
    return other


def turned(count: int, planes: Iterable[tuple[int, int]]) -> Float[Tensor, "k k"]:
    """The rotation by 45 degrees in planes of two factors each."""
    rotation = torch.eye(count)
    for a, b in planes:
        rotation[a, a] = rotation[b, b] = math.cos(TURN)
        rotation[b, a] = math.sin(TURN)
        rotation[a, b] = -math.sin(TURN)
    return rotation


class Families(nn.Module):
    """As many disentangling pairs as entangling ones, that learn side by side on the same images."""

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
        straight = [Pair(shape, turned(factors, ()), capacity) for _ in planes]
        others = [partner(pair, turned(factors, chosen)) for pair, chosen in zip(straight, planes, strict=True)]
        self.pairs = nn.ModuleList([*straight, *others])
        self.likelihood, self.samples = likelihood, samples

    def adam(self, rate: float) -> torch.optim.Adam:
        """The optimiser of all pairs."""
        shares = [weight for name, weight in self.named_parameters() if name.endswith("shares")]
        rest = [weight for name, weight in self.named_parameters() if not name.endswith("shares")]
        groups: list[dict[str, Any]] = [{"params": rest}, {"params": shares, "lr": FASTER * rate}]
        return adam(groups, rate)

    def decoded(self, w: Float[Tensor, "b k"], noise: Noise) -> list[Tensor]:
        """What every pair makes of the codes, one round of the batch after the other; partners share their noise."""
        factors = w.repeat(self.samples, 1)
        chance = [noise.normal(*factors.shape) for _ in range(len(self.pairs) // 2)]
        return [pair(factors, epsilon) for pair, epsilon in zip(self.pairs, chance * 2, strict=True)]

    def errors(self, x: Float[Tensor, "b c h w"], decoded: list[Tensor]) -> Float[Tensor, " 2"]:
        """The mean reconstruction error of the disentangling and of the entangling family, in nats an image.

        Cross-entropies are counted from that of the image itself, so that a perfect decoder has no error.
        """
        target, nll = x.repeat(self.samples, 1, 1, 1), LIKELIHOODS[self.likelihood].nll
        each = torch.stack([nll(target, image).mean() for image in decoded])
        least = entropy(x).mean() if self.likelihood == "bernoulli" else 0.0
        return each.view(2, -1).mean(1) - least


def entropy(x: Float[Tensor, "b c h w"]) -> Float[Tensor, " b"]:
    """Of pixels as probabilities, in nats an image; its slope is bounded at 0 and 1."""
    p = x.clamp(EDGE, 1 - EDGE)
    return -(p * p.log() + (1 - p) * (-p).log1p()).flatten(1).sum(1)


def adam(parameters: Iterable[Tensor] | list[dict[str, Any]], rate: float) -> torch.optim.Adam:
    """The constants of the reference; on a GPU its steps can be recorded in a graph."""
    optimiser = torch.optim.Adam(parameters, rate, (0.9, 0.999), 1e-7)
    for group in optimiser.param_groups:
        group["capturable"] = all(weight.is_cuda for weight in group["params"])
    return optimiser
