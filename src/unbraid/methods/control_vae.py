"""ControlVAE and DynamicVAE, VAEs whose weight of the KL is set by a controller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from unbraid.accel.adam import Adam
from unbraid.errors import UserError
from unbraid.methods.feedback import UNIT_STEP, Stored, assign
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.vae import elbo
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


@dataclass(frozen=True)
class ControlVAE(Method):
    r"""A VAE whose KL is held at a set value C by a PI controller, which chooses the weight of the KL.

    .. math:: E_q[-\log p(x|z)] + \beta(t)\, KL(q(z|x) \| p(z)), \quad
              \beta(t) = \frac{K_p}{1 + \exp e(t)} - K_i \sum_{s \le t} e(s) + \beta_{min}, \quad e(t) = C(t) - KL(t)

    KL(t) is the mean KL of the batch at step t, without a gradient. :math:`K_p` and :math:`K_i` are the gains `kp` and
    `ki` of the controller. The set value C(t) rises linearly from `c_min` to `c_max` nats over `iteration_threshold`
    steps. :math:`\beta(t)` is limited to the range from `beta_min` to `beta_max`. If it would leave this range, the sum
    is set to the value at which :math:`\beta(t)` equals the limit. The KL can reach C only if C lies between the KL
    with the weight `beta_max` and the KL with the weight `beta_min`.

    Deviations: the paper raises C by a constant every few thousand steps, and stops the sum for as long as
    :math:`\beta` is outside its range. In the authors' code for dSprites, C rises by 0.15 nats every 5,000 steps and
    reaches 18 nats after about 580,000 steps, :math:`\beta_{min}` is 1, and there is no maximum.
    Reference: Shao et al. (2020), arXiv:2004.05988, eq. 6 and algorithm 1. The default gains are those of the paper for
    disentanglement.
    """

    c_max: Hyper = setting(18.0, "final set value of the KL in nats", low=0)
    c_min: Hyper = setting(0.5, "initial set value of the KL in nats", low=0)
    iteration_threshold: Hyper = setting(
        100_000.0,
        "number of training steps until the set value reaches c_max; should not exceed the steps of the run",
        low=1,
    )
    kp: Hyper = setting(0.01, "proportional gain K_p", low=0)
    ki: Hyper = setting(0.001, "integral gain K_i", low=0)
    beta_min: Hyper = setting(0.0, "minimum weight of the KL", low=0)
    beta_max: Hyper = setting(100.0, "maximum weight of the KL", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        limits = (self.beta_min, self.beta_max)
        if not any(isinstance(limit, Tensor) for limit in limits) and float(limits[0]) > float(limits[1]):
            raise UserError(
                f"The minimum weight of the KL of {type(self).__name__}, beta_min, must not exceed the maximum, "
                f"beta_max. Got beta_min {self.beta_min:g} and beta_max {self.beta_max:g} instead."
            )

    def schedule_end(self, steps: int) -> float:
        return float(self.iteration_threshold)

    def initial_state(self) -> list[float]:
        """Return the initial values of the numbers that the controller stores: the sum of errors, times -K_i."""
        return [0.0]

    def extend(self, net: VAENet, latents: int) -> VAENet:
        net.controller = Stored(self.initial_state())
        return net

    def adam(self, parameter: str, learning_rate: Hyper) -> Adam:
        return UNIT_STEP if parameter.startswith("controller.") else Adam(learning_rate)

    def set_value(self, step: Tensor) -> Tensor:
        """Return the set value C of the KL at a step."""
        return self.c_min + (self.c_max - self.c_min) * (step / self.iteration_threshold).clamp(max=1)

    def limited(self, beta: Tensor) -> Tensor:
        """Return the weight of the KL, limited to its range."""
        return torch.clamp(beta, self.beta_min, self.beta_max)  # type: ignore[arg-type]

    def control(self, stored: Tensor, kl: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weight of the KL and the new numbers to store, without gradients.

        Args:
            stored: The numbers that the previous step stored.
            kl: The mean KL of the batch.
            step: The index of the step.
        """
        error = self.set_value(step) - kl
        proportional = self.kp * (-error).sigmoid()
        beta = self.limited(proportional + stored[0] - self.ki * error + self.beta_min)
        return beta, (beta - proportional - self.beta_min)[None]

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, _, _ = elbo(net, batch, noise)
        stored = cast(Stored, net.controller).values
        beta, new = self.control(stored.detach(), kl.detach(), step)
        loss = rec + beta * kl + assign(stored, new)
        return loss, {"rec": rec, "kl": kl, "beta": beta, "capacity": self.set_value(step) * torch.ones_like(beta)}


@dataclass(frozen=True)
class DynamicVAE(ControlVAE):
    r"""A VAE whose weight of the KL starts high and is changed by an incremental PI controller.

    .. math:: E_q[-\log p(x|z)] + \beta(t)\, KL(q(z|x) \| p(z)), \quad
              \beta(t) = \beta(t - 1) + K_p [\sigma(-e(t)) - \sigma(-e(t - 1))] - K_i\, e(t)

    :math:`e(t) = C(t) - y(t)` is the error of the exponential moving average y of the KL, :math:`y(t) = y(t - 1) + a\,
    (KL(t) - y(t - 1))` with a = `smoothing`, and :math:`\sigma` is the logistic function. Training starts with the
    large weight `beta_start`, so that little information is encoded at first. C(t) and the limits of :math:`\beta` are
    as in `ControlVAE`.

    Deviations: the paper averages the KL over a window of steps, and raises C in steps instead of linearly. In the
    authors' code, :math:`\beta` starts at 50 for dSprites, 90 for small NORB and 100 for MNIST, and has no maximum.
    Reference: Shao et al. (2022), "DynamicVAE", arXiv:2009.06795, section 3.
    """

    ki: Hyper = setting(0.005, "integral gain K_i", low=0)
    beta_min: Hyper = setting(0.1, "minimum weight of the KL", low=0)
    beta_max: Hyper = setting(150.0, "maximum weight of the KL", low=0)
    beta_start: float = setting(150.0, "initial weight of the KL", low=0)
    smoothing: Hyper = setting(0.2, "weight of the current step in the moving average of the KL", low=1e-6, high=1)

    def initial_state(self) -> list[float]:
        """Return the initial weight of the KL, and zeros for the moving average and the proportional term."""
        return [self.beta_start, 0.0, 0.0]

    def control(self, stored: Tensor, kl: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        beta, average, before = stored
        average = torch.where(step > 0, average + self.smoothing * (kl - average), kl)
        error = self.set_value(step) - average
        proportional = self.kp * (-error).sigmoid()
        change = proportional - torch.where(step > 0, before, proportional) - self.ki * error
        beta = self.limited(beta + change)
        return beta, torch.stack([beta, average, proportional])
