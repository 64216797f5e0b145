"""The parts of product manifold projection: projectors, what is asked of their outputs, and when.

Subspace vectors of n examples are s, (n, k, d): example, subspace, coordinate. Of pairs `delta`, (n, k), is the squared
distance between the two examples in each subspace.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.noise import Noise

Preset = Literal["paper", "code"]
QUIET: dict[Preset, float] = {"paper": 0.2, "code": 0.25}  # the part of training with reconstruction alone
STEEP, DISTANCE_FULL, CONSISTENCY_FULL = 25.0, 0.4, 0.5  # of the slow starts
FAINT = 1e-2  # a consistency weight up to here counts as none
SHARP, SOFT = 1e6, 1e3  # of the two softmaxes
FLOOR = 1e-8  # of the mean distance
MARGIN, PUSH, SPREAD_OUT = 0.05, 10.0, 100.0


class Projectors(nn.Module):
    """k separate nets Linear(d, d), ReLU, Linear(d, d), as stacked weights; initialised as torch does each Linear."""

    def __init__(self, subspaces: int, latents: int) -> None:
        super().__init__()
        layers = [(nn.Linear(latents, latents), nn.Linear(latents, latents)) for _ in range(subspaces)]
        self.weight1 = nn.Parameter(torch.stack([first.weight.detach() for first, _ in layers]))
        self.bias1 = nn.Parameter(torch.stack([first.bias.detach() for first, _ in layers]))
        self.weight2 = nn.Parameter(torch.stack([second.weight.detach() for _, second in layers]))
        self.bias2 = nn.Parameter(torch.stack([second.bias.detach() for _, second in layers]))

    def forward(self, z: Float[Tensor, "n d"]) -> Float[Tensor, "n k d"]:
        hidden = (torch.einsum("nd,ked->nke", z, self.weight1) + self.bias1).relu()
        return torch.einsum("nke,kfe->nkf", hidden, self.weight2) + self.bias2


def sparsity(s: Float[Tensor, "n k d"]) -> Float[Tensor, ""]:
    r""":math:`\sum_i |s_i \odot \sum_{j \ne i} s_j|`, averaged over examples and coordinates.

    It is 0 exactly where every coordinate belongs to one subspace: then the sum of the subspaces is their product.
    """
    others = s.sum(1, keepdim=True) - s
    return (s * others).abs().sum(1).mean()


def moved(first: Float[Tensor, "n k d"], second: Float[Tensor, "n k d"]) -> Float[Tensor, "n k"]:
    r""":math:`\delta_i = \|s_i^1 - s_i^2\|^2` of every pair."""
    return (first - second).square().sum(2)


def spread(s: Float[Tensor, "n k d"]) -> Float[Tensor, " k"]:
    """The mean Euclidean distance (not squared) in each subspace over all ordered pairs of examples, n^2 of them."""
    distances: Tensor = torch.linalg.vector_norm(s[:, None] - s[None], dim=3)
    return distances.mean((0, 1))


def oracle(delta: Float[Tensor, "n k"], scale: Float[Tensor, " k"]) -> Float[Tensor, "n k"]:
    """Which subspace a pair differs in: one-hot, but for ties, at the largest distance in units of `scale`."""
    return (SHARP * delta.detach() / (scale.detach() + FLOOR)).softmax(1)


def distance(delta: Float[Tensor, "n k"], chosen: Float[Tensor, "n k"]) -> Float[Tensor, ""]:
    r"""Pull pairs together where they do not differ, push them :math:`\sqrt{.05}` apart where they do.

    The k - 1 subspaces not chosen add the constant .5 (k - 1) / k, which has no gradient: .45 for ten.
    """
    return ((1 - chosen) * delta).mean() + PUSH * (MARGIN - chosen * delta).relu().mean()


def regularisation(delta: Float[Tensor, "n k"]) -> Float[Tensor, ""]:
    """How far the subspaces are from being chosen equally often over the batch; here the choice has a gradient."""
    used = (SOFT * delta).softmax(1).mean(0)
    return SPREAD_OUT * (1 / delta.shape[1] - used).square().mean()


def mixtures(first: Float[Tensor, "n k d"], second: Float[Tensor, "n k d"], noise: Noise) -> Float[Tensor, "m k d"]:
    """Codes of the second example with one subspace of the first: 2n of the k n such mixtures, none twice."""
    n, k, _ = first.shape
    some = noise.uniform(k * n).argsort()[: 2 * n]
    subspace, pair = some // n, some % n
    taken = subspace[:, None] == torch.arange(k, device=some.device)
    return torch.where(taken[:, :, None], first[pair], second[pair])


class Weights(NamedTuple):
    """The schedules, 0 to 1: of distance and sparsity, of consistency, of regularisation."""

    b1: Tensor
    b2: Tensor
    b3: Tensor


def schedule(progress: Float[Tensor, ""], preset: Preset) -> Weights:
    r"""The weights at a fraction t of training.

    .. math:: b_1 = \min(e^{25 (t - .4)}, 1), \quad b_2 = \min(e^{25 (t - .5)}, 1), \quad b_3 = 1 - b_2

    with :math:`b_3 = 1 - b_1` in the public code. All are 0 up to t = .2 (paper) or .25 (code).
    """
    b1, b2 = ((STEEP * (progress - full)).clamp(max=0.0).exp() for full in (DISTANCE_FULL, CONSISTENCY_FULL))
    b3 = 1 - (b2 if preset == "paper" else b1)
    begun = (progress > QUIET[preset]).to(progress.dtype)
    return Weights(begun * b1, begun * b2, begun * b3)


class Axis(NamedTuple):
    """The line through a cloud of points along which they vary most: its centre, direction and spread (one std)."""

    centre: Tensor
    direction: Tensor
    std: Tensor

    def place(self, s: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Where points lie along the line, from its centre."""
        return (s - self.centre) @ self.direction


def axis(s: Float[Tensor, "n d"]) -> Axis:
    """The first principal component, its largest entry positive; computed in float64."""
    points = s.double()
    centre = points.mean(0)
    away = points - centre
    variances, vectors = torch.linalg.eigh(away.T @ away / len(s))
    direction = vectors[:, -1]
    direction = direction * direction[direction.abs().argmax()].sign()
    return Axis(centre.to(s.dtype), direction.to(s.dtype), variances[-1].clamp(min=0).sqrt().to(s.dtype))
