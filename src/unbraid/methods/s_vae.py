"""The hyperspherical VAE (S-VAE), with von Mises-Fisher posteriors on a sphere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.distributions import Gaussian
from unbraid.methods.curved import CurvedMethod
from unbraid.methods.method import Batch, EncoderOutput, Hyper, Loss, setting
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise
from unbraid.spaces import Sphere
from unbraid.spaces import von_mises_fisher as vmf


def log_kappa(q: Gaussian) -> Float[Tensor, " b"]:
    """Return the log concentration of each posterior. It is -1 times the mean of the encoder's log variances."""
    return -q.logvar.mean(1)


@dataclass(frozen=True)
class SVAE(CurvedMethod):
    r"""A VAE on the unit sphere, with von Mises-Fisher posteriors and a uniform prior.

    .. math:: E_q[-\log p(x|z)] + \beta\, KL(q \| U), \quad q(z|x) \propto e^{\kappa(x)\, \mu(x)^T z}

    .. math:: KL = \kappa \frac{I_{n/2}(\kappa)}{I_{n/2 - 1}(\kappa)}
              + \log \frac{(\kappa / 2)^{n/2 - 1}}{\Gamma(n/2)\, I_{n/2 - 1}(\kappa)}

    The sphere of dimension d needs n = d + 1 latents. :math:`\mu` is the mean that the encoder outputs, scaled to
    length 1. The concentration :math:`\kappa` is :math:`e^{-h}`, where h is the average of the encoder's log variances.
    I is the modified Bessel function of the first kind. The KL and the samples are computed by quadrature over the
    angle between z and :math:`\mu` (`unbraid.spaces.von_mises_fisher`), with an error below 1e-4 nats.

    Deviations: the paper samples by rejection and adds a correction to the gradient. Here samples are drawn by
    inverting the distribution function, and their gradient needs no correction. In the paper, the concentration is a
    softplus of an output of the encoder, plus 1.
    Reference: Davidson et al. (2018), arXiv:1804.00891, eq. 6 and section 3.
    """

    code_kinds: ClassVar[tuple[str, ...]] = ("ambient", "angles", "sampled")

    beta: Hyper = setting(1.0, "weight of the KL term", low=0)

    def manifold(self, latents: int) -> Sphere:
        return Sphere(latents)

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        """Raise a UserError if there are fewer than two latents."""
        self.manifold(latents)

    def sample(self, q: Gaussian, noise: Noise) -> Float[Tensor, "b n"]:
        return vmf.sample(self.manifold(q.mean.shape[1]).project(q.mean), log_kappa(q).exp(), noise)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        q = net.encode(batch.x)
        rec = net.nll(batch.x, self.sample(q, noise)).mean()
        kl = vmf.kl_from_uniform(log_kappa(q).exp(), q.mean.shape[1]).mean()
        return rec + self.beta * kl, {"rec": rec, "kl": kl, "log_kappa": log_kappa(q).mean()}

    def posterior_sample(self, net: VAENet, x: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
        q = net.encode(x)
        z, kappa = self.sample(q, noise), log_kappa(q).exp()
        return z, vmf.log_ratio(0.5 * (z - self.point_latents(net, q)).square().sum(1), kappa, z.shape[1])

    def encoder_outputs(self, latents: int) -> dict[str, EncoderOutput]:
        """Return the log concentration of the posterior of each example."""
        meaning = "logarithm of the concentration of the posterior of each example"
        return {"log_kappa": EncoderOutput(meaning, log_kappa)}
