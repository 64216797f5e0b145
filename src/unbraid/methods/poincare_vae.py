"""The Poincare VAE, whose latent space is hyperbolic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.distributions import Gaussian
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.traversal import RowLabel, Traversal
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise
from unbraid.spaces import poincare


@dataclass(frozen=True)
class PoincareVAE(Method):
    r"""A VAE with a hyperbolic latent space and wrapped normal posteriors and prior.

    .. math:: E_q[-\log p(x|z)] + \beta\, E_q[\log q(z|x) - \log p(z)], \quad
        z = \exp_\mu(P_{0 \to \mu}\, v), \; v \sim N(0, \sigma^2(x))

    .. math:: \log q(z|x) = \log N(v; 0, \sigma^2) - (d - 1) \log \frac{\sinh \sqrt c |v|}{\sqrt c |v|}

    The latent space has d dimensions and the curvature -c. A vector v is drawn from a normal distribution at the origin
    and transported in parallel along the geodesic to the point :math:`\mu`. The sample z is the end of the geodesic
    that starts at :math:`\mu` and has the direction and length of the transported vector. The prior is the same
    distribution with :math:`\mu = 0` and :math:`\sigma = 1`. In a hyperbolic space, the volume of a ball grows
    exponentially with its radius. The number of nodes of a tree grows exponentially with its depth. The space therefore
    suits data with a tree-like hierarchy.

    Points are represented by normal coordinates at the origin (`unbraid.spaces.poincare`). Let :math:`m = \log_0 \mu`
    and :math:`w = \log_0 z` be the normal coordinates of :math:`\mu` and z. The encoder outputs m, the decoder takes w,
    and the codes "mean" are m. The codes "ball" are the coordinates of :math:`\mu` in the Poincare ball. The KL is
    estimated from one sample, with the KL of normal distributions as a control variate:

    .. math:: KL \approx KL(N(m, \sigma^2) \| N(0, 1)) + \tfrac12 (|w|^2 - |m + v|^2)
        - (d - 1) \Big( \log \frac{\sinh \sqrt c |v|}{\sqrt c |v|} - \log \frac{\sinh \sqrt c |w|}{\sqrt c |w|} \Big)

    With `curvature` = 0 the method is a beta-VAE.

    Deviations: the paper proposes a decoder whose first layer consists of distances to hyperplanes. Here the first step
    of the decoder is the logarithm at the origin, which is one of the paper's baselines. The scale of the prior is 1.
    The Riemannian normal distribution is not available.
    Reference: Mathieu et al. (2019), "Continuous Hierarchical Representations with Poincare Variational Auto-Encoders",
    arXiv:1901.06033, sections 3.1 and 3.2.
    """

    code_kinds: ClassVar[tuple[str, ...]] = ("mean", "sampled", "ball")

    beta: Hyper = setting(1.0, "weight of the KL term", low=0)
    curvature: Hyper = setting(1.0, "absolute value c of the curvature; 0 is a Euclidean space", low=0, swept=False)

    def sample(self, q: Gaussian, noise: Noise) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b d"]]:
        """Return one sample of each posterior in normal coordinates, and the vector v at the origin that gave it."""
        v = (0.5 * q.logvar).exp() * noise.normal(*q.mean.shape)
        return poincare.translate(q.mean, v, self.curvature), v

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        q = net.encode(batch.x)
        w, v = self.sample(q, noise)
        rec = net.nll(batch.x, w).mean()
        normal = 0.5 * (w.square() - (q.mean + v).square()).sum(1)
        volume = poincare.log_volume(v, self.curvature) - poincare.log_volume(w, self.curvature)
        kl = (q.kl().sum(1) + normal - volume).mean()
        return rec + self.beta * kl, {"rec": rec, "kl": kl}

    def posterior_sample(self, net: VAENet, x: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
        q = net.encode(x)
        w, v = self.sample(q, noise)
        own = Gaussian(torch.zeros_like(v), q.logvar).log_prob(v).sum(1)
        prior = Gaussian(torch.zeros_like(w), torch.zeros_like(w)).log_prob(w).sum(1)
        volume = poincare.log_volume(v, self.curvature) - poincare.log_volume(w, self.curvature)
        return w, own - prior - volume

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
