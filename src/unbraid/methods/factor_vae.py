"""The VAE with a total correlation that is estimated by a critic."""

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


def without_parameter_gradients(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return the module as a function whose parameters receive no gradient."""
    parameters = {name: value.detach() for name, value in module.named_parameters()}
    return lambda x: functional_call(module, parameters, (x,))


@dataclass(frozen=True)
class FactorVAE(Method):
    r"""The ELBO plus :math:`\gamma` times the total correlation, estimated by the log-odds of a critic D.

    .. math:: E_q[-\log p(x|z)] + KL(q(z|x) \| p(z)) + \gamma\, E_q[D_0(z) - D_1(z)]

    The critic minimises :math:`-\frac12 E \log D_0(z) - \frac12 E \log D_1(\bar z)`, where :math:`\bar z` is z with
    each latent permuted over the batch independently. The two losses share no parameters, so one backward pass computes
    the gradients of both.

    Deviations: as in arXiv:1811.12359, :math:`\bar z` comes from the same batch (the paper draws a second one). One
    step updates both networks once; the reference implementation counts this as two steps.
    Reference: Kim & Mnih (2018), arXiv:1802.05983, eq. 2 and algorithm 2.
    """

    gamma: Hyper = setting(10.0, "weight of the total correlation", low=0)
    critic_learning_rate: Hyper = setting(1e-4, "learning rate of the critic", low=0)

    def extend(self, net: VAENet, latents: int) -> VAENet:
        net.critic = critic(latents)
        return net

    def adam(self, parameter: str, learning_rate: Hyper) -> Adam:
        return Adam(self.critic_learning_rate, 0.5, 0.9) if parameter.startswith("critic.") else Adam(learning_rate)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, _, z = elbo(net, batch, noise)
        critic_net = cast(nn.Module, net.critic)
        joint, product = without_parameter_gradients(critic_net)(z).unbind(1)
        tc = (joint - product).mean()
        original, shuffled = critic_net(torch.cat([z.detach(), noise.shuffle(z.detach())])).chunk(2)
        loss_d = -0.5 * (original.log_softmax(1)[:, 0] + shuffled.log_softmax(1)[:, 1]).mean()
        return rec + kl + self.gamma * tc + loss_d, {"rec": rec, "kl": kl, "tc": tc, "critic": loss_d}
