"""The VAE with a total correlation told by a critic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from unbraid.accel.adam import Adam
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.vae import elbo
from unbraid.nets.mlp import critic
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


def frozen(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """The module as a function whose parameters get no gradient."""
    parameters = {name: value.detach() for name, value in module.named_parameters()}
    return lambda x: functional_call(module, parameters, (x,))


@dataclass(frozen=True)
class FactorVAE(Method):
    r"""The ELBO plus :math:`\gamma` times the total correlation, as the log-odds of a critic D.

    .. math:: E_q[-\log p(x|z)] + KL(q(z|x) \| p(z)) + \gamma\, E_q[D_0(z) - D_1(z)]

    The critic learns :math:`-\frac12 E \log D_0(z) - \frac12 E \log D_1(\bar z)`, where :math:`\bar z` permutes every
    latent over the batch on its own. The two losses share no parameter, so one backward pass serves both.
    Deviations: as in arXiv:1811.12359, :math:`\bar z` comes from the same batch (the paper draws a second one). A step
    here updates both networks once; the reference implementation counted it as two.
    Reference: Kim & Mnih (2018), arXiv:1802.05983, eq. 2 and algorithm 2.
    """

    gamma: Hyper = setting(10.0, "weight of the total correlation", low=0)
    critic_learning_rate: Hyper = setting(1e-4, "Adam step size of the critic", low=0)

    def extend(self, net: VAENet, latents: int) -> VAENet:
        net.critic = critic(latents)
        return net

    def adam(self, parameter: str, learning_rate: Hyper) -> Adam:
        return Adam(self.critic_learning_rate, 0.5, 0.9) if parameter.startswith("critic.") else Adam(learning_rate)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, _, z = elbo(net, batch, noise)
        critic_net = cast(nn.Module, net.critic)
        joint, product = frozen(critic_net)(z).unbind(1)
        tc = (joint - product).mean()
        told, shuffled = critic_net(torch.cat([z.detach(), noise.shuffle(z.detach())])).chunk(2)
        loss_d = -0.5 * (told.log_softmax(1)[:, 0] + shuffled.log_softmax(1)[:, 1]).mean()
        return rec + kl + self.gamma * tc + loss_d, {"rec": rec, "kl": kl, "tc": tc, "critic": loss_d}
