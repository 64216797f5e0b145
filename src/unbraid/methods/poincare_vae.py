"""The Poincare VAE, whose latent space is hyperbolic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods.method import Batch, EncoderOutput, Hyper, Loss, Method, setting
from unbraid.methods.traversal import RowLabel, Traversal
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise
from unbraid.spaces import poincare, riemannian_normal
from unbraid.spaces.gyroplanes import Gyroplanes


def replace_first_layer(decoder: nn.Module, curvature: Hyper) -> None:
    """Replace the first layer of a decoder by distances to hyperplanes. The layer must be linear and have a bias."""
    layers = decoder
    while isinstance(layers, nn.Sequential) and isinstance(layers[0], nn.Sequential):
        layers = layers[0]
    first = layers[0] if isinstance(layers, nn.Sequential) else layers
    if not isinstance(layers, nn.Sequential) or type(first) is not nn.Linear or first.bias is None:
        raise UserError(
            "With first_layer='gyroplanes', the decoder must be an nn.Sequential that starts with nn.Linear with a "
            f"bias. Got {type(first).__name__} instead. Choose a network such as locatello or mlp."
        )
    layers[0] = Gyroplanes(first, curvature)


def log_variance(q: Gaussian) -> Float[Tensor, " b"]:
    r"""Return :math:`\log \sigma^2` of each Riemannian normal posterior, the mean of the encoder's log variances."""
    return q.logvar.mean(1)


@dataclass(frozen=True)
class PoincareVAE(Method):
    r"""A VAE with a hyperbolic latent space and wrapped or Riemannian normal posteriors and prior.

    .. math:: E_q[-\log p(x|z)] + \beta\, E_q[\log q(z|x) - \log p(z)], \quad
        z = \exp_\mu(P_{0 \to \mu}\, v)

    .. math:: \text{wrapped: } v \sim N(0, \sigma^2(x)), \quad
        \log q(z|x) = \log N(v; 0, \sigma^2) - (d - 1) \log \frac{\sinh \sqrt c |v|}{\sqrt c |v|}

    .. math:: \text{Riemannian: } \log q(z|x) = -\frac{|v|^2}{2 \sigma^2} - \log Z(\sigma), \quad
        Z(\sigma) = \frac{2 \pi^{d/2}}{\Gamma(d/2)} \int_0^\infty e^{-r^2 / 2 \sigma^2}
        \Big( \frac{\sinh \sqrt c\, r}{\sqrt c} \Big)^{d - 1} dr

    The latent space has d dimensions and the curvature -c. A vector v is drawn at the origin and transported in
    parallel along the geodesic to the point :math:`\mu`. The sample z is the end of the geodesic that starts at
    :math:`\mu` and has the direction and length of the transported vector, so :math:`|v|` is the distance between z
    and :math:`\mu`. With ``distribution="wrapped"``, v has a normal distribution with one variance per latent. With
    ``distribution="riemannian"``, all directions of v are equally likely, and :math:`\log \sigma^2` is the average of
    the encoder's log variances. Among all distributions with the same mean squared distance from :math:`\mu`, this
    distribution of z has the largest entropy. The prior is the same kind of distribution with :math:`\mu = 0` and
    :math:`\sigma = 1`. In a hyperbolic space, the volume of a ball grows exponentially with its radius. The number of
    nodes of a tree grows exponentially with its depth. The space therefore suits data with a tree-like hierarchy.

    Points are represented by normal coordinates at the origin (`unbraid.spaces.poincare`). Let :math:`m = \log_0 \mu`
    and :math:`w = \log_0 z` be the normal coordinates of :math:`\mu` and z. The encoder outputs m, the decoder takes w,
    and the codes "mean" are m. The codes "ball" are the coordinates of :math:`\mu` in the Poincare ball. The KL is
    estimated from one sample, with :math:`|m + v|^2` as a control variate. For wrapped normal distributions:

    .. math:: KL \approx KL(N(m, \sigma^2) \| N(0, 1)) + \tfrac12 (|w|^2 - |m + v|^2)
        - (d - 1) \Big( \log \frac{\sinh \sqrt c |v|}{\sqrt c |v|} - \log \frac{\sinh \sqrt c |w|}{\sqrt c |w|} \Big)

    For Riemannian normal distributions, Z and :math:`E|v|^2` are computed by quadrature
    (`unbraid.spaces.riemannian_normal`):

    .. math:: KL \approx \tfrac12 (|w|^2 - |m + v|^2) + \tfrac12 |m|^2
        + \tfrac12 (1 - \sigma^{-2})\, E|v|^2 - \log Z(\sigma) + \log Z(1)

    With ``first_layer="gyroplanes"``, the first linear layer of the decoder is replaced by signed distances to
    hyperplanes (`unbraid.spaces.gyroplanes`), with the same number of parameters. With ``first_layer="linear"``, the
    decoder is an ordinary network whose input w is the logarithm of z at the origin. With `curvature` = 0 and wrapped
    normal distributions, the method is a beta-VAE, with either first layer.

    Deviations: In the paper, the first layer consists of distances to hyperplanes, and a first layer that takes the
    logarithm at the origin is a baseline. The scale of the prior is 1. The paper samples radii of the Riemannian normal
    distribution by rejection. Here the distribution function of the radius is inverted, and gradients need no
    correction. A hyperplane is given by its nearest point to the origin. In the paper it is given by any of its points.
    Reference: Mathieu et al. (2019), "Continuous Hierarchical Representations with Poincare Variational Auto-Encoders",
    arXiv:1901.06033, sections 3.1 and 3.2.
    """

    code_kinds: ClassVar[tuple[str, ...]] = ("mean", "sampled", "ball")

    beta: Hyper = setting(1.0, "weight of the KL term", low=0)
    curvature: Hyper = setting(1.0, "absolute value c of the curvature; 0 is a Euclidean space", low=0, swept=False)
    distribution: Literal["wrapped", "riemannian"] = setting(
        "wrapped", "normal distribution of the posterior and the prior: wrapped or riemannian", optional=True
    )
    first_layer: Literal["linear", "gyroplanes"] = setting(
        "linear", "first layer of the decoder: linear, or gyroplanes (distances to hyperplanes)", optional=True
    )

    def extend(self, net: VAENet, latents: int) -> VAENet:
        """Replace the first layer of the decoder, if it is to consist of distances to hyperplanes."""
        if self.first_layer == "gyroplanes" and net.decoder is not None:
            replace_first_layer(net.decoder, self.curvature)
        return net

    def sample(self, q: Gaussian, noise: Noise) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b d"]]:
        """Return one sample of each posterior in normal coordinates, and the vector v at the origin that gave it.

        Distances of a Riemannian normal distribution are about (d - 1) sqrt(c) sigma^2. Their hyperbolic functions
        would overflow in float32 even for moderate scales.
        """
        if self.distribution == "wrapped":
            v = (0.5 * q.logvar).exp() * noise.normal(*q.mean.shape)
            return poincare.translate(q.mean, v, self.curvature), v
        v = riemannian_normal.sample((0.5 * log_variance(q)).exp(), q.mean.shape[1], self.curvature, noise)
        return poincare.translate(q.mean.double(), v.double(), self.curvature).to(v), v

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        q = net.encode(batch.x)
        w, v = self.sample(q, noise)
        rec = net.nll(batch.x, w).mean()
        normal = 0.5 * (w.square() - (q.mean + v).square()).sum(1)
        if self.distribution == "wrapped":
            volume = poincare.log_volume(v, self.curvature) - poincare.log_volume(w, self.curvature)
            kl = (q.kl().sum(1) + normal - volume).mean()
        else:
            kl = (self.expected_kl(q) + normal).mean()
        return rec + self.beta * kl, {"rec": rec, "kl": kl}

    def expected_kl(self, q: Gaussian) -> Float[Tensor, " b"]:
        """Return the part of the KL of Riemannian normal distributions that is computed without samples."""
        d, scale = q.mean.shape[1], (0.5 * log_variance(q).double()).exp()
        spread = riemannian_normal.mean_squared_radius(scale, d, self.curvature)
        own, prior = (
            riemannian_normal.log_normaliser(s, d, self.curvature) for s in (scale, torch.ones_like(scale[:1]))
        )
        return 0.5 * q.mean.square().sum(1) + (0.5 * (1 - scale**-2) * spread - own + prior).to(q.mean)

    def posterior_sample(self, net: VAENet, x: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
        q = net.encode(x)
        w, v = self.sample(q, noise)
        if self.distribution == "riemannian":
            scale = (0.5 * log_variance(q).double()).exp()
            pairs = (v, scale), (w, torch.ones_like(scale[:1]))
            own, prior = (riemannian_normal.log_density(*pair, self.curvature) for pair in pairs)
            return w, (own - prior).to(w)
        own = Gaussian(torch.zeros_like(v), q.logvar).log_prob(v).sum(1)
        prior = Gaussian(torch.zeros_like(w), torch.zeros_like(w)).log_prob(w).sum(1)
        volume = poincare.log_volume(v, self.curvature) - poincare.log_volume(w, self.curvature)
        return w, own - prior - volume

    def prior_sample(self, n: int, latents: int, noise: Noise) -> Float[Tensor, "n d"]:
        """Return samples of the prior in normal coordinates."""
        if self.distribution == "wrapped":
            return noise.normal(n, latents)
        scale = torch.ones(n, device=noise.key.device)
        return riemannian_normal.sample(scale, latents, self.curvature, noise)

    def encoder_outputs(self, latents: int) -> dict[str, EncoderOutput]:
        """Return the log variances of a posterior: one per latent if it is wrapped, one in all if it is Riemannian."""
        if self.distribution == "wrapped":
            return super().encoder_outputs(latents)
        meaning = "logarithm of the squared scale of the posterior of each example, whose mean point is the code"
        return {"log_variance": EncoderOutput(meaning, log_variance)}

    def code(self, net: VAENet, q: Gaussian, kind: str, noise: Noise) -> Tensor:
        """Return normal coordinates of the posterior means or of samples, or the means in the Poincare ball."""
        if kind == "ball":
            return poincare.to_ball(q.mean, self.curvature)
        return q.mean if kind == "mean" else self.sample(q, noise)[0]

    def information(self, q: Gaussian) -> None:
        """Return None, because the KL is defined only for all latents together, not for each column."""
        return

    def traversal(self, net: VAENet, q: Gaussian, population: Gaussian, positions: Tensor) -> Traversal:
        """Return geodesics through the posterior mean, one per axis. Positions are signed distances from the mean."""
        start, d = q.mean, q.mean.shape[1]
        steps = torch.eye(d, device=start.device)[:, None] * positions.to(start)[:, None]
        z = poincare.translate(start.expand_as(steps), steps, self.curvature)
        return Traversal(z, start, [RowLabel(f"direction {i}") for i in range(d)])
