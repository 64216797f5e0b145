"""The projectors, loss terms and schedules of product manifold projection (see `PMP`).

`s` of shape (n, k, d) holds the vectors of n examples in k subspaces with d coordinates. `delta` of shape (n, k) holds,
for each of n pairs and each subspace, the squared distance between the two examples.
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
}  # fraction of the training that uses only the reconstruction error
RISE_RATE = 25.0  # rate of the exponential rise of b1 and b2
DISTANCE_FULL, CONSISTENCY_FULL = 0.4, 0.5  # fractions of the training at which b1 and b2 reach 1
NEGLIGIBLE_WEIGHT = 1e-2  # a consistency weight at or below this value is set to 0
CHANGED_SHARPNESS, USAGE_SHARPNESS = 1e6, 1e3  # inverse softmax temperatures in `changed_subspace`, `regularisation`
EPSILON = 1e-8  # added to the mean distance before dividing by it
MARGIN, MARGIN_WEIGHT, USAGE_WEIGHT = 0.05, 10.0, 100.0


class Projectors(nn.Module):
    """k separate networks Linear(d, d), ReLU, Linear(d, d) with stacked weights and the initialisation of nn.Linear."""

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

    It is 0 if and only if each coordinate of an example is nonzero in at most one subspace. Each coordinate of the sum
    of the vectors then comes from one subspace only, and the latent space is the product of the subspaces.
    """
    others = s.sum(1, keepdim=True) - s
    return (s * others).abs().sum(1).mean()


def subspace_distances(first: Float[Tensor, "n k d"], second: Float[Tensor, "n k d"]) -> Float[Tensor, "n k"]:
    r"""Return the squared distance :math:`\delta_i = \|s_i^1 - s_i^2\|^2` for every pair and every subspace i."""
    return (first - second).square().sum(2)


def mean_distances(s: Float[Tensor, "n k d"]) -> Float[Tensor, " k"]:
    """Return, for each subspace, the mean Euclidean distance (not squared) over all n^2 ordered pairs of examples."""
    distances: Tensor = torch.linalg.vector_norm(s[:, None] - s[None], dim=3)
    return distances.mean((0, 1))


def changed_subspace(delta: Float[Tensor, "n k"], scale: Float[Tensor, " k"]) -> Float[Tensor, "n k"]:
    """Return a one-hot row per pair for the subspace with the largest delta / scale. Ties split the weight equally."""
    return (CHANGED_SHARPNESS * delta.detach() / (scale.detach() + EPSILON)).softmax(1)


def distance(delta: Float[Tensor, "n k"], chosen: Float[Tensor, "n k"]) -> Float[Tensor, ""]:
    r"""Return a loss that pulls the examples of a pair together in all subspaces except the chosen one.

    In the chosen subspace, it pushes them at least :math:`\sqrt{0.05}` apart. The margins of the other k - 1 subspaces
    add the constant 0.5 (k - 1) / k, which has no gradient. For k = 10 it is 0.45.
    """
    return ((1 - chosen) * delta).mean() + MARGIN_WEIGHT * (MARGIN - chosen * delta).relu().mean()


def regularisation(delta: Float[Tensor, "n k"]) -> Float[Tensor, ""]:
    """Return a loss that is 0 if all subspaces are chosen equally often over the batch.

    The choice is a softmax of delta, so it has a gradient.
    """
    used = (USAGE_SHARPNESS * delta).softmax(1).mean(0)
    return USAGE_WEIGHT * (1 / delta.shape[1] - used).square().mean()


def mix_subspaces(
    first: Float[Tensor, "n k d"], second: Float[Tensor, "n k d"], noise: Noise
) -> Float[Tensor, "m k d"]:
    """Return up to 2n mixtures. Each of them mixes the subspaces of the two examples of one pair.

    A mixture has the vector of the first example in one subspace, and the vectors of the second example in all others.
    The mixtures are drawn at random and without replacement from the k n possible ones.
    """
    n, k, _ = first.shape
    chosen = noise.uniform(k * n).argsort()[: 2 * n]
    subspace, pair = chosen // n, chosen % n
    swapped = subspace[:, None] == torch.arange(k, device=chosen.device)
    return torch.where(swapped[:, :, None], first[pair], second[pair])


class Weights(NamedTuple):
    """Scheduled weights between 0 and 1.

    Attributes:
        b1: The weight of the distance and sparsity terms.
        b2: The weight of the consistency term.
        b3: The weight of the regularisation term.
    """

    b1: Tensor
    b2: Tensor
    b3: Tensor


def schedule(progress: Float[Tensor, ""], preset: Preset) -> Weights:
    r"""Return the weights after a fraction t = `progress` of the training.

    .. math:: b_1 = \min(e^{25 (t - 0.4)}, 1), \quad b_2 = \min(e^{25 (t - 0.5)}, 1), \quad b_3 = 1 - b_2

    With the preset "code", :math:`b_3 = 1 - b_1`. All weights are 0 up to t = 0.2 ("paper") or t = 0.25 ("code").
    """
    b1, b2 = ((RISE_RATE * (progress - full)).clamp(max=0.0).exp() for full in (DISTANCE_FULL, CONSISTENCY_FULL))
    b3 = 1 - (b2 if preset == "paper" else b1)
    started = (progress > RECONSTRUCTION_ONLY[preset]).to(progress.dtype)
    return Weights(started * b1, started * b2, started * b3)


class PrincipalAxis(NamedTuple):
    """The first principal component of a set of points.

    Attributes:
        centre: The mean of the points, of shape (d,).
        direction: The unit vector of the component, of shape (d,).
        std: The standard deviation of the points along the direction, a scalar.
    """

    centre: Tensor
    direction: Tensor
    std: Tensor

    def coordinate(self, s: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Return the coordinates of points along the direction, measured from the centre."""
        return (s - self.centre) @ self.direction


def principal_axis(s: Float[Tensor, "n d"]) -> PrincipalAxis:
    """Return the first principal component of n points, computed in float64.

    The sign of the direction is chosen such that its entry with the largest magnitude is positive.
    """
    points = s.double()
    centre = points.mean(0)
    centred = points - centre
    variances, vectors = torch.linalg.eigh(centred.T @ centred / len(s))
    direction = vectors[:, -1]
    direction = direction * direction[direction.abs().argmax()].sign()
    return PrincipalAxis(centre.to(s.dtype), direction.to(s.dtype), variances[-1].clamp(min=0).sqrt().to(s.dtype))
