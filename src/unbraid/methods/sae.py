"""Sparse autoencoders, which explain vectors such as activations by a few of many features."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.data.dataset import FactorData
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods.ae import AE
from unbraid.methods.controls import Controls, direction_controls
from unbraid.methods.method import Batch, Hyper, Loss, setting
from unbraid.methods.traversal import Traversal
from unbraid.nets.vae import PairBuilder, VAENet
from unbraid.noise import Noise

WINDOW = 0.1  # width of the window around a threshold; only inputs in the window contribute to the threshold's gradient


class FeatureEncoder(nn.Module):
    """An affine map to one number per feature. The log variances that a `VAENet` expects are zeros."""

    def __init__(self, size: int, features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, features)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.linear(x.flatten(1))
        return torch.cat([h, torch.zeros_like(h)], 1)


@torch.no_grad()
def initialise(encoder: nn.Linear, decoder: nn.Linear) -> None:
    """Set the decoder vectors to random unit vectors, the encoder to their transpose, and the biases to zero."""
    decoder.weight.copy_(F.normalize(torch.randn_like(decoder.weight), dim=0))
    encoder.weight.copy_(decoder.weight.T)
    encoder.bias.zero_()
    decoder.bias.zero_()


class Thresholds(nn.Module):
    """The logarithms of the thresholds of JumpReLU, one per feature."""

    def __init__(self, features: int, initial: float) -> None:
        super().__init__()
        self.logs = nn.Parameter(torch.full((features,), math.log(initial)))


def top_k(h: Float[Tensor, "b m"], k: int) -> Float[Tensor, "b m"]:
    """Keep the k largest entries of each row, and set all other entries and all negative entries to 0."""
    lowest = h.detach().topk(k, 1).values[:, -1:]
    return torch.where(h.detach() < lowest, 0.0, h).relu()  # keeps NaN, so that a diverged run is noticed


def window(h: Tensor, threshold: Tensor) -> Tensor:
    """Return 1 / width for entries within the window around their threshold, and 0 for others, without gradients."""
    return ((h - threshold).abs() < 0.5 * WINDOW).to(h.dtype).detach() / WINDOW


def jump_relu(h: Float[Tensor, "b m"], threshold: Float[Tensor, " m"]) -> Float[Tensor, "b m"]:
    r"""Return :math:`h\, 1[h > \theta]` for inputs h and thresholds :math:`\theta`.

    The pseudo-derivative with respect to :math:`\theta` is :math:`-\theta K((h - \theta) / w) / w`. K is 1 within a
    distance of 1/2 from 0 and 0 elsewhere, and w is the width of the window.
    """
    own = threshold - threshold.detach()  # its value is 0, and its gradient is that of the threshold
    return h * (h > threshold).to(h.dtype).detach() - (threshold.detach() * window(h, threshold)) * own


def active_features(h: Float[Tensor, "b m"], threshold: Float[Tensor, " m"]) -> Float[Tensor, ""]:
    r"""Return the mean number of entries of a row that are above their thresholds.

    The pseudo-derivative of the count with respect to the threshold of an entry is :math:`-K / w` (see `jump_relu`).
    """
    own = threshold - threshold.detach()
    return ((h > threshold).to(h.dtype).detach() - window(h, threshold) * own).sum(1).mean()


@dataclass(frozen=True)
class SAE(AE):
    r"""A sparse autoencoder: an affine encoder, a sparse activation, and a linear decoder with one vector per feature.

    .. math:: E_x\big[-\log p(x|z) + \lambda S(z)\big], \quad \hat x = \sum_j z_j d_j + b, \quad z = \phi(W x + c)

    The latents of the run are the features. There are usually many more features than values in an example. The decoder
    vector of feature j is :math:`d_j`. With :math:`h = W x + c`, the activation :math:`\phi(h)` and the penalty S are:

    - "topk": :math:`\phi` keeps those of the `k` largest entries of h that are positive. There is no penalty.
    - "relu": :math:`\phi = \max(h, 0)` and :math:`S = \sum_j z_j \|d_j\|`. This L1 penalty does not change if z is
      divided by a number and the decoder vectors are multiplied by the same number.
    - "jumprelu": :math:`\phi = h\, 1[h > \theta]` with learned thresholds :math:`\theta_j > 0`, and S is the number of
      active features. Only entries of h in a window around their threshold contribute to the gradient of the threshold
      (`jump_relu`).

    The codes are the activations z. The network of the run is not used. The logged `active` is the mean number of
    active features per example. Runs with different :math:`\lambda` and seeds can train together.

    Deviations: decoder vectors are not normalised. Examples are not scaled, whereas the code of Gao et al. centres each
    example and divides it by its standard deviation. The papers subtract a bias from the input of the encoder. Here the
    bias c can have the same effect. There is no extra loss for features that are never active. With "jumprelu", the
    window around a threshold has a width of 0.1, and thresholds start at 0.03. In the paper both numbers are 0.001, for
    activations that are normalised to a mean squared norm of 1.
    Reference: Gao et al. (2024), arXiv:2406.04093, for "topk". Bricken et al. (2023), "Towards monosemanticity",
    and Cunningham et al. (2024), arXiv:2309.08600, for "relu". Rajamanoharan et al. (2024), arXiv:2407.14435, for
    "jumprelu".
    """

    code_kinds: ClassVar[tuple[str, ...]] = ("activations",)
    default_learning_rate: ClassVar[float] = 1e-3

    sparsity: Hyper = setting(0.1, "weight lambda of the penalty, for relu and jumprelu", low=0)
    activation: Literal["topk", "relu", "jumprelu"] = setting("topk", "activation of the features")
    k: int = setting(2, "number of active features per example, with activation=topk", low=1)
    threshold: float = setting(0.03, "initial threshold of each feature, with activation=jumprelu", low=1e-6)

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        if self.activation == "topk" and self.k > latents:
            raise UserError(
                f"The number k of active features of SAE must be at most the number of latents, {latents}. "
                f"Got {self.k} instead."
            )

    def build(self, builder: PairBuilder, shape: tuple[int, ...], latents: int, likelihood: str) -> VAENet:
        """Build the affine encoder and the linear decoder. The builder of the run is not used."""
        size = math.prod(shape)
        encoder, linear = FeatureEncoder(size, latents), nn.Linear(latents, size)
        initialise(encoder.linear, linear)
        net = VAENet(encoder, nn.Sequential(linear, nn.Unflatten(1, shape)), likelihood)
        if self.activation == "jumprelu":
            net.thresholds = Thresholds(latents, self.threshold)
        return net

    def thresholds(self, net: VAENet) -> Float[Tensor, " m"]:
        """Return the thresholds of JumpReLU."""
        return cast(Thresholds, net.thresholds).logs.exp()

    def activations(self, net: VAENet, h: Float[Tensor, "b m"]) -> Float[Tensor, "b m"]:
        """Return the activations z of features with the inputs h."""
        if self.activation == "topk":
            return top_k(h, self.k)
        return h.relu() if self.activation == "relu" else jump_relu(h, self.thresholds(net))

    def point_latents(self, net: VAENet, q: Gaussian) -> Tensor:
        return self.activations(net, q.mean)

    def code(self, net: VAENet, q: Gaussian, kind: str, noise: Noise) -> Tensor:
        return self.point_latents(net, q)

    def traversal(self, net: VAENet, q: Gaussian, population: Gaussian, positions: Tensor) -> Traversal:
        """Return the traversal of an autoencoder, with negative activations, which do not exist, replaced by 0."""
        z, start, labels = super().traversal(net, q, population, positions)
        return Traversal(z.relu(), start, labels)

    def controls(self, net: VAENet, q: Gaussian, population: Gaussian) -> Controls:
        """Return one control per feature.

        Its value is the activation of the feature, divided by the largest activation of the feature in the population.
        The activation of a feature that is never active is not divided.
        """
        own, largest = self.point_latents(net, q), self.point_latents(net, population).amax(0)
        scale = torch.where(largest > 0, largest, 1.0)
        return direction_controls([f"latent {i}" for i in range(len(scale))], own, scale.diag(), own / scale)

    def penalty(self, net: VAENet, h: Tensor, z: Tensor) -> Tensor:
        """Return the penalty S, as a mean over the batch."""
        if self.activation == "relu":
            weight = cast(nn.Linear, cast(nn.Sequential, net.decoder)[0]).weight
            return (z * weight.square().sum(0).sqrt()).sum(1).mean()
        return active_features(h, self.thresholds(net))

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        h = net.encode(batch.x).mean
        z = self.activations(net, h)
        rec, active = net.nll(batch.x, z).mean(), (z.detach() > 0).to(z.dtype).sum(1).mean()
        if self.activation == "topk":
            return rec, {"rec": rec, "active": active}
        penalty = self.penalty(net, h, z)
        return rec + self.sparsity * penalty, {"rec": rec, "penalty": penalty, "active": active}
