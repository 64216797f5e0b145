"""The parts of product manifold projection: projectors, loss terms and schedules.

`s` of shape (n, k, d) holds the vectors of n examples in k subspaces with d coordinates. `delta` of shape (n, k) holds
the squared distances between the two examples of n pairs in each subspace.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.noise import Noise

Preset = Literal["paper", "code"]
RECONSTRUCTION_ONLY: dict[Preset, float] = {
    "paper": 0.2,
    "code": 0.25,
}  # share of the training with reconstruction alone
RISE_RATE, DISTANCE_FULL, CONSISTENCY_FULL = (
    25.0,
    0.4,
    0.5,
)  # of the rise, and when weights reach 1
NEGLIGIBLE_WEIGHT = 1e-2  # a smaller consistency weight counts as 0
CHANGED_SHARPNESS, USAGE_SHARPNESS = 1e6, 1e3  # factors inside the two softmaxes
EPSILON = 1e-8  # added to the mean distance
MARGIN, MARGIN_WEIGHT, USAGE_WEIGHT = 0.05, 10.0, 100.0


class Projectors(nn.Module):
    """k separate networks Linear(d, d), ReLU, Linear(d, d) with stacked weights, initialised as nn.Linear is."""

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
    r"""Return :math:`\sum_i |s_i \odot \sum_{j \ne i} s_j|`, averaged over examples and coordinates.

    It is 0 exactly if every coordinate belongs to one subspace. Then the sum of the subspaces is their product.
    """
    others = s.sum(1, keepdim=True) - s
    return (s * others).abs().sum(1).mean()


def subspace_distances(first: Float[Tensor, "n k d"], second: Float[Tensor, "n k d"]) -> Float[Tensor, "n k"]:
    r"""Return :math:`\delta_i = \|s_i^1 - s_i^2\|^2` of every pair."""
    return (first - second).square().sum(2)


def mean_distances(s: Float[Tensor, "n k d"]) -> Float[Tensor, " k"]:
    """Return the mean Euclidean distance (not squared) in each subspace over all n^2 ordered pairs of examples."""
    distances: Tensor = torch.linalg.vector_norm(s[:, None] - s[None], dim=3)
    return distances.mean((0, 1))


def changed_subspace(delta: Float[Tensor, "n k"], scale: Float[Tensor, " k"]) -> Float[Tensor, "n k"]:
    """Return, one-hot except for ties, the subspace in which each pair differs most in units of `scale`."""
    return (CHANGED_SHARPNESS * delta.detach() / (scale.detach() + EPSILON)).softmax(1)


def distance(delta: Float[Tensor, "n k"], chosen: Float[Tensor, "n k"]) -> Float[Tensor, ""]:
    r"""Pull pairs together in the subspaces not chosen, and push them :math:`\sqrt{.05}` apart in the chosen one.

    The k - 1 subspaces not chosen add the constant .5 (k - 1) / k, which has no gradient: .45 for ten.
    """
    return ((1 - chosen) * delta).mean() + MARGIN_WEIGHT * (MARGIN - chosen * delta).relu().mean()


def regularisation(delta: Float[Tensor, "n k"]) -> Float[Tensor, ""]:
    """Return how far the subspaces are from being chosen equally often over the batch; the choice has a gradient."""
    used = (USAGE_SHARPNESS * delta).softmax(1).mean(0)
    return USAGE_WEIGHT * (1 / delta.shape[1] - used).square().mean()


def mix_subspaces(
    first: Float[Tensor, "n k d"], second: Float[Tensor, "n k d"], noise: Noise
) -> Float[Tensor, "m k d"]:
    """Return 2n of the k n codes of a second example with one subspace of the first, without repetition."""
    n, k, _ = first.shape
    chosen = noise.uniform(k * n).argsort()[: 2 * n]
    subspace, pair = chosen // n, chosen % n
    swapped = subspace[:, None] == torch.arange(k, device=chosen.device)
    return torch.where(swapped[:, :, None], first[pair], second[pair])


class Weights(NamedTuple):
    """The scheduled weights, from 0 to 1: b1 of distance and sparsity, b2 of consistency, b3 of regularisation."""

    b1: Tensor
    b2: Tensor
    b3: Tensor


def schedule(progress: Float[Tensor, ""], preset: Preset) -> Weights:
    r"""Return the weights after a share t of the training.

    .. math:: b_1 = \min(e^{25 (t - .4)}, 1), \quad b_2 = \min(e^{25 (t - .5)}, 1), \quad b_3 = 1 - b_2

    with :math:`b_3 = 1 - b_1` in the public code. All are 0 up to t = .2 (paper) or .25 (code).
    """
    b1, b2 = ((RISE_RATE * (progress - full)).clamp(max=0.0).exp() for full in (DISTANCE_FULL, CONSISTENCY_FULL))
    b3 = 1 - (b2 if preset == "paper" else b1)
    started = (progress > RECONSTRUCTION_ONLY[preset]).to(progress.dtype)
    return Weights(started * b1, started * b2, started * b3)


class PrincipalAxis(NamedTuple):
    """The first principal component of points: their centre, its direction, and their standard deviation along it."""

    centre: Tensor
    direction: Tensor
    std: Tensor

    def coordinate(self, s: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Return the coordinates of points along the direction, measured from the centre."""
        return (s - self.centre) @ self.direction


def principal_axis(s: Float[Tensor, "n d"]) -> PrincipalAxis:
    """Return the first principal component with its largest entry positive, computed in float64."""
    points = s.double()
    centre = points.mean(0)
    centred = points - centre
    variances, vectors = torch.linalg.eigh(centred.T @ centred / len(s))
    direction = vectors[:, -1]
    direction = direction * direction[direction.abs().argmax()].sign()
    return PrincipalAxis(centre.to(s.dtype), direction.to(s.dtype), variances[-1].clamp(min=0).sqrt().to(s.dtype))
