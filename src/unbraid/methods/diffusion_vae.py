"""The diffusion VAE, whose latent space is a closed manifold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.distributions import Gaussian
from unbraid.errors import UserError, warn_user
from unbraid.methods.curved import CurvedMethod
from unbraid.methods.method import Batch, EncoderOutput, Hyper, Loss, setting
from unbraid.nets.vae import LikelihoodDecoder, VAENet
from unbraid.noise import Noise
from unbraid.spaces import SPACES, Projective, Space
from unbraid.spaces.projective import EvenDecoder


@dataclass(frozen=True)
class DiffusionVAE(CurvedMethod):
    r"""A VAE whose latents lie on a sphere, torus, projective space or rotation group, with Brownian-motion posteriors.

    .. math:: E_q[-\log p(x|z)] + \beta\, KL, \quad
        KL = -\frac d2 \log(2 \pi t) - \frac d2 + \log Vol(Z) + \frac{Sc\, t}{4}

    The latent space is a manifold Z of dimension d with a uniform prior. The posterior q is the distribution of a
    Brownian motion on Z (the heat kernel of half the Laplacian) that starts at :math:`P(\mu(x))` and runs for a time
    t(x). It is sampled by L steps :math:`z \leftarrow P(z + \sqrt{t / L}\, \epsilon)`, where :math:`\epsilon` is
    standard normal noise. P is the projection to Z, Sc is the scalar curvature, and :math:`\mu` is the mean that the
    encoder outputs.

    The average h of the encoder's log variances determines the time. With `time` set to "bounded", :math:`\log t` is
    linear in :math:`\tanh h` and lies between `log_t_min` and `log_t_max`. It may saturate at a bound. With "free",
    :math:`\log t = h`. The formula for the KL holds only for small t, which is the reason for the upper bound. On the
    3-sphere, the formula is wrong by 0.02 nats at t = 0.5. With the default lower bound, the KL can reach 38 nats on
    the 10-sphere and 5.4 nats on the circle. On a projective space the decoder is averaged over z and -z.

    With an `iteration_threshold` T > 0, the KL term is the mean of :math:`\beta\, |KL - C|` over examples. The capacity
    C rises linearly from `c_min` to `c_max` nats over T steps. The hyperspherical submissions to the NeurIPS 2019
    Disentanglement Challenge used 11 or 21 latents (d = 10 or 20), :math:`\beta` = 1, 2.5 or 10, L = 5, and C from 0 to
    15 nats.

    Deviations: the report on these submissions prints the noise of a step as :math:`\epsilon t` (`walk_step`
    "literal"). This is a walk of time :math:`L t^2`, but the report still computes the KL at t. The report counts T in
    epochs. In the authors' code, the actual bounds on log t are wider than those that the code specifies, the KL on
    tori lacks :math:`\log 2 \pi`, and C never rises.
    Reference: Perez Rey (2019), "Disentanglement with Hyperspherical Latent Spaces using Diffusion Variational
    Autoencoders", NeurIPS 2019 Disentanglement Challenge, eq. 2, eq. 3 and algorithm 1, and Perez Rey et al. (2019),
    arXiv:1901.08991.
    """

    space: Literal["sphere", "flat_torus", "torus", "projective", "rotations"] = setting(
        "sphere",
        "latent space; the number of latents must be d + 1 for a sphere or projective space of dimension d, 2 per "
        "circle of a flat_torus, 3 for a torus, and 9 for rotations",
    )
    beta: Hyper = setting(1.0, "weight of the KL term", low=0)
    walk_steps: int = setting(10, "number L of steps of the random walk that samples the posterior", low=1)
    walk_step: Literal["sqrt", "literal"] = setting(
        "sqrt", "scale of the noise in each step of the walk: sqrt(t / L), or t as printed in the report (literal)"
    )
    iteration_threshold: int = setting(
        0,
        "number of training steps until the capacity reaches c_max, at most the steps of the run; "
        "0 means a KL term without a capacity",
        low=0,
    )
    c_min: Hyper = setting(0.0, "initial capacity in nats, with iteration_threshold above 0", low=0)
    c_max: Hyper = setting(15.0, "final capacity in nats, with iteration_threshold above 0", low=0)
    time: Literal["bounded", "free"] = setting(
        "bounded", "whether the logarithm of the diffusion time t is bounded or free"
    )
    log_t_min: float = setting(-10.0, "lower bound of log t, with time=bounded")
    log_t_max: float = setting(-1.0, "upper bound of log t, with time=bounded")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.log_t_min < self.log_t_max:
            raise UserError(
                f"The 'log_t_max' parameter of DiffusionVAE must be above log_t_min, {self.log_t_min:g}. "
                f"Got {self.log_t_max:g} instead."
            )
        kinds = ("ambient", "angles", "sampled") if SPACES[self.space].has_angles else ("ambient", "sampled")
        object.__setattr__(self, "code_kinds", kinds)

    def manifold(self, latents: int) -> Space:
        """Return the latent space of a run with this number of latents."""
        return SPACES[self.space](latents)

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        """Raise a UserError if the space cannot have this number of latents. Warn if the KL cannot reach a capacity."""
        for message in self.capacity_warnings(self.manifold(latents)):
            warn_user(message)

    def capacity_warnings(self, space: Space) -> list[str]:
        """Return one message for each capacity that the KL cannot reach.

        Without a capacity, there is one message if the KL has no lower bound, and one if its settings were changed.
        """
        bounds = (self.log_t_min, self.log_t_max) if self.time == "bounded" else (-math.inf, math.inf)
        low, high = space.kl_range(*bounds)
        formula = f"the formula for the KL on this {space.name} ({space.latents} latents)"
        messages = []
        if not self.iteration_threshold:
            if (float(self.c_min), float(self.c_max)) != (DiffusionVAE.c_min, DiffusionVAE.c_max):
                messages.append("c_min and c_max have no effect, because iteration_threshold is 0. Set it above 0.")
            if low == -math.inf:
                messages.append(
                    f"Without a bound on log t, {formula} decreases without limit as t grows. Use time='bounded'."
                )
            return messages
        if float(self.c_min) < low:
            messages.append(
                f"A capacity c_min of {float(self.c_min):.4g} nats is out of reach, because {formula} is never below "
                f"{low:.4g} nats. Use c_min={math.ceil(low * 1000) / 1000:g} or above."
            )
        if float(self.c_max) > high:
            messages.append(
                f"A capacity c_max of {float(self.c_max):.4g} nats is out of reach, because {formula} is never above "
                f"{high:.4g} nats. Lower c_max or log_t_min."
            )
        return messages

    def schedule_end(self, steps: int) -> float:
        return float(self.iteration_threshold)

    def extend(self, net: VAENet, latents: int) -> VAENet:
        """Average the decoder over z and -z if the latent space is a projective space."""
        if SPACES[self.space] is Projective and net.decoder is not None:
            if isinstance(net.decoder, LikelihoodDecoder):
                raise UserError(
                    "On a projective space the decoder is averaged over z and -z, so it must not compute its own "
                    f"likelihood. Got {type(net.decoder).__name__} instead. Choose another space."
                )
            net.decoder = EvenDecoder(net.decoder)
        return net

    def log_t(self, q: Gaussian) -> Float[Tensor, " b"]:
        """Return the logarithm of the diffusion time t of each example."""
        h = q.logvar.mean(1)
        if self.time == "free":
            return h
        middle, half = 0.5 * (self.log_t_min + self.log_t_max), 0.5 * (self.log_t_max - self.log_t_min)
        return middle + half * h.tanh()

    def sample(self, q: Gaussian, noise: Noise) -> Float[Tensor, "b n"]:
        """Return the end of a random walk that starts at the projected mean of each example."""
        space = self.manifold(q.mean.shape[1])
        return space.diffuse(space.project(q.mean), self.log_t(q).exp(), noise, self.walk_steps, self.walk_step)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        q = net.encode(batch.x)
        space = self.manifold(q.mean.shape[1])
        start, log_t = space.project(q.mean), self.log_t(q)
        z = space.diffuse(start, log_t.exp(), noise, self.walk_steps, self.walk_step)
        rec, kl = net.nll(batch.x, z).mean(), space.kl(start, log_t)
        terms = {"rec": rec, "kl": kl.mean(), "log_t": log_t.mean()}
        if not self.iteration_threshold:
            return rec + self.beta * kl.mean(), terms
        capacity = self.c_min + (self.c_max - self.c_min) * (step / self.iteration_threshold).clamp(max=1)
        return rec + self.beta * (kl - capacity).abs().mean(), {**terms, "capacity": capacity}

    def encoder_outputs(self, latents: int) -> dict[str, EncoderOutput]:
        """Return the logarithm of the diffusion time, and also the latents if the decoder does not take the codes."""
        space = self.manifold(latents)
        outputs = {}
        if space.embed(torch.ones(1, latents)).shape[1] != latents:
            meaning = "latents, which are the input of the decoder and differ from the codes"
            outputs["latents"] = EncoderOutput(meaning, lambda q: space.project(q.mean))
        meaning = "logarithm of the diffusion time of each example, which determines the width of its posterior"
        return {**outputs, "log_t": EncoderOutput(meaning, self.log_t)}
