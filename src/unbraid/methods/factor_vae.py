"""FactorVAE, a VAE with a penalty on the total correlation, which a critic estimates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from unbraid.accel.adam import Adam
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.vae import elbo
from unbraid.nets.mlp import critic
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


def freeze_parameters(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return a function that computes the module without gradients for the module's parameters."""
    parameters = {name: value.detach() for name, value in module.named_parameters()}
    return lambda x: functional_call(module, parameters, (x,))


@dataclass(frozen=True)
class FactorVAE(Method):
    r"""A VAE that penalises the total correlation of the latents, estimated by a critic D, with weight :math:`\gamma`.

    .. math:: E_q[-\log p(x|z)] + KL(q(z|x) \| p(z)) + \gamma\, E_q[D_0(z) - D_1(z)]

    :math:`D_0` and :math:`D_1` are the two outputs of the critic. They are logits in the loss above, and probabilities
    in the loss of the critic itself. The critic minimises :math:`-\frac12 E \log D_0(z) - \frac12 E \log D_1(\bar z)`,
    where :math:`\bar z` is z with each latent permuted over the batch independently. The two losses have no trained
    parameters in common, so one backward pass computes the gradients of both.

    Deviations: :math:`\bar z` comes from the same batch, as in arXiv:1811.12359. The paper draws a second batch. One
    step updates the VAE once and the critic once. The reference implementation counts these updates as two steps.
    Reference: Kim & Mnih (2018), arXiv:1802.05983, eq. 2 and algorithm 2.
    """

    training_networks: ClassVar[tuple[str, ...]] = ("critic",)
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
        joint, product = freeze_parameters(critic_net)(z).unbind(1)
        tc = (joint - product).mean()
        original, shuffled = critic_net(torch.cat([z.detach(), noise.shuffle(z.detach())])).chunk(2)
        loss_d = -0.5 * (original.log_softmax(1)[:, 0] + shuffled.log_softmax(1)[:, 1]).mean()
        return rec + kl + self.gamma * tc + loss_d, {"rec": rec, "kl": kl, "tc": tc, "critic": loss_d}
