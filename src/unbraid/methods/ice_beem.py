"""ICE-BeeM, a conditional energy-based model whose features are the codes, trained by denoising score matching."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from unbraid.accel.layers import Conv
from unbraid.data.dataset import FactorData
from unbraid.data.sampling import DrawnExamples
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods.auxiliary import check_auxiliary, draw_with_labels
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

PIECEWISE_LINEAR = (nn.ReLU, nn.LeakyReLU)


class AuxiliaryFeatures(nn.Module):
    r"""The features g(y) of the auxiliary variable: one row for each value of y.

    The energy of an example with features f is :math:`\sum_j a_j(y) f_j`, where a is `linear`. If `squares` is true,
    :math:`\sum_j b_j(y) f_j^2` is added. The weights b are positive, so that the energy is bounded from below, and are
    stored as their logarithms. Initially, a is 0 and b is 1/2, as for standard normal features.
    """

    def __init__(self, values: int, latents: int, squares: bool) -> None:
        super().__init__()
        self.linear = nn.Parameter(torch.zeros(values, latents) if squares else torch.randn(values, latents))
        self.log_square = nn.Parameter(torch.full((values, latents), math.log(0.5))) if squares else None

    def forward(self, f: Float[Tensor, "b d"], y: Int[Tensor, " b"]) -> Float[Tensor, " b"]:
        rows = y[:, None].expand_as(f)
        energy = (f * self.linear.gather(0, rows)).sum(1)
        if self.log_square is None:
            return energy
        return energy + (f.square() * self.log_square.gather(0, rows).exp()).sum(1)


def score_of_energy(energy: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    r"""Return the score :math:`\nabla_x \log p(x) = -\nabla_x u(x)` for the energy u at each example.

    Args:
        energy: A function from examples (b, ...) to energies (b,), applied to each example.
        x: The examples, of shape (b, ...).

    Returns:
        The scores, of the shape of x.
    """
    gradient: Tensor = torch.func.grad(lambda points: energy(points).sum())(x)
    return -gradient


def make_differentiable_twice(encoder: nn.Module, smooth: bool) -> None:
    """Change the layers of an encoder in place, so that the gradient of its outputs with respect to x can be trained.

    Convolutions use PyTorch's function. If `smooth` is true, SiLU units replace ReLU and leaky ReLU units.

    Raises:
        UserError: If a layer stores running statistics, because `torch.func.grad` cannot update them.
    """
    for module in list(encoder.modules()):
        if getattr(module, "track_running_stats", False):
            raise UserError(
                f"The encoder of ICE-BeeM must not store running statistics of batches. Got {module} instead. Use "
                "another normalisation, such as GroupNorm, or set track_running_stats=False."
            )
        if isinstance(module, Conv):
            module.twice_differentiable = True
        for name, child in list(module._modules.items()):  # named_children() would skip a layer that occurs again
            if smooth and isinstance(child, PIECEWISE_LINEAR):
                setattr(module, name, nn.SiLU())


@dataclass(frozen=True)
class ICEBeeM(Method):
    r"""An encoder without a decoder, whose features define the energy of examples given an auxiliary variable y.

    .. math:: p(x|y) = \frac{1}{Z(y)} e^{-u(x, y)}, \quad u(x, y) = \sum_j a_j(y) f_j(x) + b_j(y) f_j(x)^2

    .. math:: E \Big[\tfrac12 \|s(\tilde x, y)\|^2 + \tfrac{1}{\sigma} s(\tilde x, y)^T \epsilon\Big], \quad
              s(x, y) = -\nabla_x u(x, y), \quad \tilde x = x + \sigma \epsilon

    The features f are the means that the encoder outputs, u is the energy, s is the score of p(x|y), and
    :math:`\epsilon` is standard normal noise with the shape of x. y is a factor whose value is known in training. Its
    index is `factor`. The vectors a(y) and b(y) are learned for each value of y. If they vary enough with y, features
    with the same p(x|y) are equal up to simple transformations, which depend on `features` (theorems 1 and 2 of the
    paper):

    - "augmented": the energy above. Features are identified up to order, scale and offset.
    - "positive": :math:`u = a(y)^T f(x)`, where f is the softplus of the means. Features are identified up to order and
      scale.
    - "linear": :math:`u = a(y)^T f(x)`. Features are identified only up to a linear transformation and an offset.

    The loss is the conditional denoising score matching loss :math:`\tfrac12 E \|s + \epsilon / \sigma\|^2` minus its
    constant :math:`D / 2 \sigma^2` for D entries of x. It is 0 if the energy does not depend on x. The logged
    `denoising` is the mean of :math:`(\sigma s + \epsilon)^2` over entries, the share of the noise that remains after
    denoising by s. It is 1 if the energy does not depend on x. Because there is no decoder, nothing can be
    reconstructed, sampled or traversed. The encoder's log variances are not used. Choose :math:`\sigma` smaller than
    the details of x that matter. With a small :math:`\sigma`, gradients have a large variance.

    The loss contains the gradient of f with respect to x, and training differentiates it again. If f is piecewise
    linear, this gradient does not change within a piece, so the borders of the pieces get no gradient. SiLU units
    therefore replace the ReLU and leaky ReLU units of the encoder. With `activation="given"`, the encoder is not
    changed. With ReLU units and features "linear", the biases of hidden layers are then not trained. Units that are not
    modules of class `ReLU` or `LeakyReLU` are never replaced. The encoder is always computed in float32 by ordinary
    operations. A GPU therefore does not use the fused kernels, whose gradients cannot be differentiated again. Encoders
    that store running statistics of batches, such as those of batch normalisation, raise an error.

    Deviations: The paper trains on simulated data by flow contrastive estimation and applies FastICA to the features.
    Here all data are trained by denoising score matching, as the images of the paper, and the codes are the features.
    The authors' code uses :math:`b = a^2`. Here a and b are independent, and b is positive. For positive features, the
    authors' code applies ReLU to f and a. Here f is a softplus, and a has any sign. The authors' code multiplies the
    loss by :math:`\sigma^4`, uses :math:`\sigma = 0.01`, and adds uniform noise to pixels. The network and the
    optimiser are those of the run.
    Reference: Khemakhem et al. (2020), "ICE-BeeM: Identifiable conditional energy-based deep models based on nonlinear
    ICA", arXiv:2002.11537. Denoising score matching: Vincent (2011), doi:10.1162/NECO_a_00142.
    """

    code_kinds: ClassVar[tuple[str, ...]] = ("mean",)
    float32_networks: ClassVar[tuple[str, ...]] = ("encoder",)
    networks_without_kernels: ClassVar[tuple[str, ...]] = ("encoder",)
    training_networks: ClassVar[tuple[str, ...]] = ("auxiliary",)

    sigma: Hyper = setting(0.1, "standard deviation sigma of the noise that is added to examples", low=1e-6)
    features: Literal["augmented", "positive", "linear"] = setting(
        "augmented", "features in the energy: f and its square (augmented), a positive f (positive), or f (linear)"
    )
    activation: Literal["silu", "given"] = setting(
        "silu", "units of the encoder: SiLU units instead of ReLU and leaky ReLU units (silu), or unchanged (given)"
    )
    factor: int = setting(0, "index of the factor that is the auxiliary variable y, counted from 0", low=0)
    values: int = setting(100, "maximum number of values of y", low=1)

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        check_auxiliary("ICE-BeeM", data, self.factor, self.values, "features")

    def draw(self, data: FactorData, noise: Noise, batch: int) -> DrawnExamples:
        return draw_with_labels(self, data, noise, batch)

    def labels_at(self, data: FactorData, examples: Int[Tensor, " n"]) -> Tensor:
        return data.factors_at(examples)[:, self.factor]

    def extend(self, net: VAENet, latents: int) -> VAENet:
        net.decoder = None
        net.auxiliary = AuxiliaryFeatures(self.values, latents, self.features == "augmented")
        make_differentiable_twice(net.encoder, self.activation == "silu")
        return net

    def information(self, q: Gaussian) -> None:
        """Return None, because the log variances are not trained."""
        return

    def point_latents(self, net: VAENet, q: Gaussian) -> Tensor:
        return F.softplus(q.mean) if self.features == "positive" else q.mean

    def code(self, net: VAENet, q: Gaussian, kind: str, noise: Noise) -> Tensor:
        return self.point_latents(net, q)

    def energy(self, net: VAENet, x: Tensor, y: Int[Tensor, " b"]) -> Float[Tensor, " b"]:
        """Return the energy u(x, y) of each example x with the value y of the auxiliary variable."""
        energy: Tensor = cast(AuxiliaryFeatures, net.auxiliary)(self.point_latents(net, net.encode(x)), y)
        return energy

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        y, epsilon = cast(Tensor, batch.labels), noise.normal(*batch.x.shape)
        score = score_of_energy(lambda x: self.energy(net, x, y), batch.x + self.sigma * epsilon)
        loss = (0.5 * score.square() + score * epsilon / self.sigma).flatten(1).sum(1).mean()
        return loss, {"denoising": (self.sigma * score + epsilon).square().mean()}
