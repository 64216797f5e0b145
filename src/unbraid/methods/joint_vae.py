"""JointVAE, a VAE with continuous and categorical latents."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.distributions import Gaussian
from unbraid.errors import UserError, warn_user
from unbraid.methods.controls import Controls, category_controls
from unbraid.methods.method import Batch, EncoderOutput, Hyper, Loss, Method, setting
from unbraid.methods.traversal import RowLabel, Traversal
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

BELOW_ONE = 1 - 2**-24  # the largest float32 number below 1


def gumbel(noise: Noise, *shape: int) -> Tensor:
    """Draw numbers from the standard Gumbel distribution."""
    return -(-noise.uniform(*shape).clamp(max=BELOW_ONE).log()).log()


def categorical_kl(logits: Float[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    r"""Return :math:`\log K + \sum_k p_k \log p_k`, the KL of categorical distributions from the uniform distribution.

    K is the number of values, and :math:`p_k` is the probability of value k.
    """
    log_p = logits.log_softmax(-1)
    return math.log(logits.shape[-1]) + (log_p.exp() * log_p).sum(-1)


@dataclass(frozen=True)
class JointVAE(Method):
    r"""A VAE with continuous latents z and categorical latents c, whose KL terms follow two growing capacities.

    .. math:: E_q[-\log p(x|z, c)] + \gamma\, |KL(q(z|x) \| p(z)) - C_z(t)| + \gamma\, |KL(q(c|x) \| p(c)) - C_c(t)|

    p(z) is a standard normal and p(c) is uniform. There are `discrete` categorical latents with `categories` values
    each. The decoder gets a categorical latent as a vector with one number per value, so the setting `latents` of a
    run is the number of continuous latents plus `discrete` times `categories`. The encoder outputs this number of means
    and log variances. The last `discrete` times `categories` means are used as the logits of the categorical latents,
    and the log variances at these positions are ignored.

    In training, a categorical latent is a sample of the concrete (Gumbel-softmax) distribution, :math:`softmax((\log p
    + g) / T)`, where p are the probabilities of its values, g is Gumbel noise, and T is the temperature. The KL term is
    that of the categorical distribution, not that of the concrete distribution. Both capacities rise linearly from 0
    over `iteration_threshold` steps, :math:`C_z` to `c_max` and :math:`C_c` to `c_max_discrete`. :math:`C_c` never
    exceeds the largest possible KL, which is `discrete` times the log of `categories`. :math:`C_z` is 0 if there are no
    continuous latents.

    The codes "values" have one column per latent: the posterior means, then the most probable value of each categorical
    latent, as an integer index. The codes "probabilities" instead have one column for the probability of each value of
    a categorical latent. The codes "sampled" have the columns of "values", but are samples of the posterior. A
    traversal shows the values of a categorical latent one after the other.

    Deviations: all categorical latents have the same number of values, and one weight :math:`\gamma` and one length of
    the schedule are used for both capacities, as in all experiments of the paper.
    Reference: Dupont (2018), "Learning disentangled joint continuous and discrete representations", arXiv:1804.00104,
    eq. 7. The defaults are those of the author's code for dSprites, which uses 6 continuous latents, a learning rate of
    5e-4 and 300,000 steps.
    """

    code_kinds: ClassVar[tuple[str, ...]] = ("values", "probabilities", "sampled")
    default_learning_rate: ClassVar[float] = 5e-4
    kl_terms: ClassVar[tuple[str, ...]] = ("kl", "kl_discrete")

    gamma: Hyper = setting(150.0, "weight of the distances between KL terms and capacities", low=0)
    c_max: Hyper = setting(40.0, "final capacity of the continuous latents in nats", low=0, swept=True)
    c_max_discrete: Hyper = setting(1.1, "final capacity of the categorical latents in nats", low=0)
    iteration_threshold: Hyper = setting(
        300_000.0,
        "number of training steps until the capacities are reached; should not exceed the steps of the run",
        low=1,
    )
    discrete: int = setting(1, "number of categorical latents", low=0)
    categories: int = setting(3, "number of values of each categorical latent", low=2)
    temperature: Hyper = setting(0.67, "temperature of the concrete distribution", low=1e-3)

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        if latents < self.discrete * self.categories:
            raise UserError(
                f"JointVAE needs one latent for each of the {self.categories} values of each of its {self.discrete} "
                f"categorical latent(s). Got {latents} latents instead. Use at least {self.discrete * self.categories}."
            )

    def schedule_end(self, steps: int) -> float:
        return float(self.iteration_threshold)

    def split(self, q: Gaussian) -> tuple[Gaussian, Float[Tensor, "b m k"]]:
        """Return the posteriors of the continuous latents, and the logits of the categorical latents."""
        n = q.mean.shape[1] - self.discrete * self.categories
        continuous = Gaussian(q.mean[:, :n], q.logvar[:, :n])
        return continuous, q.mean[:, n:].unflatten(1, (self.discrete, self.categories))

    def join(self, z: Float[Tensor, "b n"], values: Int[Tensor, "b m"]) -> Float[Tensor, "b d"]:
        """Return the input of the decoder for continuous latents and values of the categorical latents."""
        return torch.cat([z, F.one_hot(values, self.categories).to(z).flatten(1)], 1)

    def concrete_sample(self, logits: Float[Tensor, "b m k"], noise: Noise) -> Float[Tensor, "b m k"]:
        """Return a sample of the concrete distribution with these logits."""
        return ((logits + gumbel(noise, *logits.shape)) / self.temperature).softmax(-1)

    def capacities(self, step: Tensor) -> tuple[Tensor, Tensor]:
        """Return the capacities of the continuous and of the categorical latents at a step, in nats."""
        done = (step / self.iteration_threshold).clamp(max=1)
        most = self.discrete * math.log(self.categories)
        return self.c_max * done, (self.c_max_discrete * done).clamp(max=most)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        continuous, logits = self.split(net.encode(batch.x))
        z, kl = continuous.sample(noise), continuous.kl().sum(1).mean()
        soft, kl_discrete = self.concrete_sample(logits, noise), categorical_kl(logits).sum(1).mean()
        rec = net.nll(batch.x, torch.cat([z, soft.flatten(1)], 1)).mean()
        capacity, capacity_discrete = self.capacities(step)
        if not z.shape[1]:  # without continuous latents, their KL is 0 and cannot follow a capacity
            capacity = torch.zeros_like(capacity)
        loss = rec + self.gamma * ((kl - capacity).abs() + (kl_discrete - capacity_discrete).abs())
        capacities = {"capacity": capacity, "capacity_discrete": capacity_discrete}
        return loss, {"rec": rec, "kl": kl, "kl_discrete": kl_discrete, **capacities}

    def point_latents(self, net: VAENet, q: Gaussian) -> Tensor:
        """Return the posterior means, and a one in the column of the most probable value of each categorical latent."""
        continuous, logits = self.split(q)
        return self.join(continuous.mean, logits.argmax(-1))

    def code(self, net: VAENet, q: Gaussian, kind: str, noise: Noise) -> Tensor:
        continuous, logits = self.split(q)
        if kind == "probabilities":
            return torch.cat([continuous.mean, logits.softmax(-1).flatten(1)], 1)
        if kind == "values":
            return torch.cat([continuous.mean, logits.argmax(-1).to(q.mean)], 1)
        z = continuous.sample(noise)
        return torch.cat([z, (logits + gumbel(noise, *logits.shape)).argmax(-1).to(z)], 1)

    def column_names(self, columns: int) -> list[str]:
        n = columns - self.discrete
        return [*(f"latent {i}" for i in range(n)), *(f"categorical {i}" for i in range(self.discrete))]

    def information(self, q: Gaussian) -> Tensor:
        continuous, logits = self.split(q)
        return torch.cat([continuous.kl().mean(0), categorical_kl(logits).mean(0)])

    def posterior_sample(self, net: VAENet, x: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
        """Return one posterior sample (z, c) per example, and log q(z, c|x) - log p(z, c) for each sample.

        Categorical latents are sampled from the categorical distribution instead of the concrete one, because the prior
        p(c) gives probabilities only to categorical values.
        """
        continuous, logits = self.split(net.encode(x))
        z, values = continuous.sample(noise), (logits + gumbel(noise, *logits.shape)).argmax(-1)
        log_q = logits.log_softmax(-1).gather(-1, values[..., None])[..., 0]
        ratio = continuous.log_ratio(z).sum(1) + (log_q + math.log(self.categories)).sum(1)
        return self.join(z, values), ratio

    def prior_sample(self, n: int, latents: int, noise: Noise) -> Tensor:
        z = noise.normal(n, latents - self.discrete * self.categories)
        return self.join(z, noise.integers(self.categories, n, self.discrete))

    def subspace_codes(self, net: VAENet, q: Gaussian) -> Float[Tensor, "n k d"]:
        """Return one vector per latent, which is 0 outside the columns of the latent.

        The vector of a categorical latent is 1 in the column of its value.
        """
        z = self.point_latents(net, q)
        sizes = torch.tensor([1] * (z.shape[1] - self.discrete * self.categories) + [self.categories] * self.discrete)
        owner = torch.arange(len(sizes)).repeat_interleave(sizes).to(z.device)
        return z[:, None] * (owner == torch.arange(len(sizes), device=z.device)[:, None]).to(z)

    def traversal(self, net: VAENet, q: Gaussian, population: Gaussian, positions: Tensor) -> Traversal:
        """Return one row per latent, in descending order of the mean KL.

        The row of a categorical latent shows its values in order. If there are more positions than values, values are
        repeated. If there are fewer, some values are not shown, and a RuntimeWarning says so.
        """
        if 1 < len(positions) < self.categories:
            warn_user(
                f"A row of {len(positions)} pictures shows only {len(positions)} of the {self.categories} values of a "
                f"categorical latent. To see all values, draw at least {self.categories} pictures per row."
            )
        start, kl = self.point_latents(net, q), self.information(population)
        names, first = self.column_names(len(kl)), len(kl) - self.discrete
        order = kl.argsort(descending=True, stable=True).tolist()
        z = start.repeat(len(order), len(positions), 1)
        values = torch.arange(len(positions), device=z.device) * self.categories // len(positions)
        for row, latent in enumerate(order):
            if latent < first:
                z[row, :, latent] = positions.to(z)
            else:
                column = first + (latent - first) * self.categories
                z[row, :, column : column + self.categories] = F.one_hot(values, self.categories).to(z)
        return Traversal(z, start, [RowLabel(names[i], i, nats=float(kl[i])) for i in order])

    def controls(self, net: VAENet, q: Gaussian, population: Gaussian) -> Controls:
        """Return one control per latent. Between two whole numbers, a categorical latent is a mixture of two values."""
        values = self.code(net, q, "values", Noise(torch.zeros((), dtype=torch.int64, device=q.mean.device)))
        sizes = [0] * (values.shape[1] - self.discrete) + [self.categories] * self.discrete
        return category_controls(self.column_names(values.shape[1]), values, sizes)

    def encoder_outputs(self, latents: int) -> dict[str, EncoderOutput]:
        """Return the input of the decoder, which differs from the codes, and the probabilities of the categories."""
        point = "latents, which are the input of the decoder: means, and a one for the most probable value"
        shares = "probabilities of the values of the categorical latents"
        return {
            "latents": EncoderOutput(point, lambda q: self.join(self.split(q)[0].mean, self.split(q)[1].argmax(-1))),
            "probabilities": EncoderOutput(shares, lambda q: self.split(q)[1].softmax(-1).flatten(1)),
        }
