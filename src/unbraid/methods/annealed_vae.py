"""AnnealedVAE, a VAE whose KL term follows a capacity that grows during training."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.vae import elbo
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


@dataclass(frozen=True)
class AnnealedVAE(Method):
    r"""A VAE that keeps its KL term near a capacity C, which rises linearly to :math:`C_{max}` nats.

    .. math:: E_q[-\log p(x|z)] + \gamma\, |KL(q(z|x) \| p(z)) - C(t)|, \quad C(t) = C_{max} \min(t / T, 1)

    t is the step and T is `iteration_threshold`. The absolute value is taken after averaging the KL over the batch, not
    separately for each example.

    Reference: Burgess et al. (2018), arXiv:1804.03599, eq. 8. The defaults of gamma and T are those of
    arXiv:1811.12359.
    """

    gamma: Hyper = setting(1000.0, "weight of the distance between the KL term and the capacity", low=0)
    c_max: Hyper = setting(25.0, "final capacity in nats", low=0, swept=True)
    iteration_threshold: Hyper = setting(
        100_000.0,
        "number of training steps until the capacity reaches c_max; should not exceed the steps of the run",
        low=1,
    )

    def schedule_end(self, steps: int) -> float:
        return float(self.iteration_threshold)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, _, _ = elbo(net, batch, noise)
        capacity = self.c_max * (step / self.iteration_threshold).clamp(max=1)
        return rec + self.gamma * (kl - capacity).abs(), {"rec": rec, "kl": kl, "capacity": capacity}
