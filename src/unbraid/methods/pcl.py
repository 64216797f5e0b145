"""Permutation contrastive learning: an encoder that tells consecutive examples from shuffled ones."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.data.dataset import FactorData
from unbraid.data.sampling import PAIRS, Drawn
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods.method import Batch, Loss, Method, setting
from unbraid.methods.pairs import check_series
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

HIDDEN = 5  # hidden layers of each component's network


class LaplaceRegression(nn.Module):
    """Log-odds that suit Laplace innovations; `a` is learned as the absolute value of a number, or stays 1."""

    def __init__(self, latents: int, learned: bool) -> None:
        super().__init__()
        self.w1, self.w2 = nn.Parameter(torch.ones(latents)), nn.Parameter(-torch.ones(latents))
        self.b, self.m = nn.Parameter(torch.zeros(latents)), nn.Parameter(torch.zeros(1))
        self.a = nn.Parameter(torch.ones(1)) if learned else None

    def forward(self, now: Float[Tensor, "n d"], before: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        change = (self.w1 * now + self.w2 * before + self.b).abs().sum(1)
        level = now.square().sum(1)
        return -change + (level if self.a is None else self.a.abs() * level) + self.m


class ComponentRegression(nn.Module):
    """A small network for every component, all in the same products: weights are (component, in, out)."""

    def __init__(self, latents: int, width: int) -> None:
        super().__init__()
        widths = [2, *[width] * HIDDEN, 1]
        pairs = list(itertools.pairwise(widths))
        self.weights = nn.ParameterList([_uniform(latents, into, out) for into, out in pairs])
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(latents, 1, out)) for _, out in pairs[:-1]])
        self.m = nn.Parameter(torch.zeros(1))

    def forward(self, now: Float[Tensor, "n d"], before: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        x: Tensor = torch.stack([now, before], -1).transpose(0, 1)
        for weight, bias in zip(list(self.weights)[:-1], self.biases, strict=True):
            x = (x @ weight + bias).relu()
        odds: Tensor = x @ self.weights[-1]
        return odds.sum((0, 2)) + self.m


def _uniform(latents: int, into: int, out: int) -> nn.Parameter:
    """He-uniform weights of one layer, the same law for every component."""
    bound = (6 / into) ** 0.5
    return nn.Parameter(torch.empty(latents, into, out).uniform_(-bound, bound))


def standardised(h: Float[Tensor, "b d"], epsilon: float = 1e-5) -> Float[Tensor, "b d"]:
    """Every column with mean 0 and variance 1 over the batch: batch normalisation without scale and shift."""
    centred = h - h.mean(0)
    return centred * (centred.square().mean(0) + epsilon).rsqrt()


@dataclass(frozen=True)
class PCL(Method):
    r"""An encoder alone, trained to tell pairs of consecutive examples from pairs that were shuffled.

    .. math:: -\tfrac12 E \log \sigma(r(x_t, x_{t-1})) - \tfrac12 E \log \sigma(-r(x_t, x_{t^*}))

    .. math:: r(x, x') = -\sum_i |w_{1i} h_i(x) + w_{2i} h_i(x') + b_i| + a \sum_i h_i(x)^2 + m

    h is the encoder's mean, :math:`x_{t-1}` and :math:`x_t` are the two examples of a pair, :math:`x_{t^*}` is the
    first example of another pair, by a random permutation of the batch, and :math:`\sigma` the logistic function. The
    regression starts at :math:`w_1 = 1, w_2 = -1, b = 0, a = 1, m = 0`, and a is never below 0. With `regression` mlp
    it is :math:`r = \sum_i r_i(h_i(x), h_i(x')) + m`, each :math:`r_i` a network of five hidden layers. Chance has the
    loss :math:`\log 2 = .693`; `accuracy` is the share of pairs with r on the right side of 0. There is no decoder:
    nothing is reconstructed, sampled or traversed, and the encoder's log variances stay unused.
    With `pairs` consecutive a pair is a row of the data and the one before it, as in the paper: the data are a time
    series in the order of their rows. The other values of `pairs` make steps of a grid of factors.
    Deviations: the authors' code clamps a at 0 after each step; here a is the absolute value of a parameter, which is
    the same until that parameter changes sign. Batch normalisation of h takes mean and variance of the batch itself
    and has no scale, shift or running averages, so that codes have an arbitrary scale and offset. The permutation
    leaves one pair of a batch as it was, on average. Network and optimiser are the run's (the paper: maxout layers).
    Reference: Hyvarinen & Morioka (2017), "Nonlinear ICA of temporally dependent stationary sources", AISTATS, eq. 11;
    r as in the authors' code.
    """

    code_kinds: ClassVar[tuple[str, ...]] = ("mean",)

    pairs: Literal["laplace", "uniform", "walk", "consecutive"] = setting(
        "laplace", "how pairs are drawn: laplace, uniform, walk, or consecutive (a row of the data and the one before)"
    )
    regression: Literal["laplace", "mlp"] = setting("laplace", "form of the log-odds of a pair")
    a: Literal["learned", "fixed"] = setting("learned", "weight of the squares in laplace log-odds; fixed is 1")
    normalise: Literal["batch", "none"] = setting("batch", "what holds the scale of the code while it is trained")
    width: int = setting(512, "units of a hidden layer of mlp log-odds", low=1)

    def draw(self, data: FactorData, noise: Noise, batch: int) -> Drawn:
        return Drawn.of(PAIRS[self.pairs](data, noise, batch // 2))

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        check_pairs(batch)
        if self.pairs == "consecutive":
            return check_series(self, data)
        if not data.gridded:
            raise UserError(
                f"PCL makes pairs by moving factors, so data must be on a full grid of factors. Got {data.name}, which "
                "is not. Choose gridded data, or pairs='consecutive' if its rows are a series."
            )
        held = data.categorical if self.pairs != "uniform" else ()
        if not any(size > 1 and name not in held for name, size in zip(data.names, data.sizes, strict=True)):
            raise UserError(f"PCL with pairs {self.pairs!r} needs a factor that can move. Got {data} instead.")
        return None

    def information(self, q: Gaussian) -> None:
        return None

    def extend(self, net: VAENet, latents: int) -> VAENet:
        net.decoder = None
        laplace = self.regression == "laplace"
        learned = self.a == "learned"
        net.regression = LaplaceRegression(latents, learned) if laplace else ComponentRegression(latents, self.width)
        return net

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        h = net.encode(batch.x).mean
        before, now = (standardised(h) if self.normalise == "batch" else h).chunk(2)
        regression = cast(nn.Module, net.regression)
        other = noise.uniform(len(before), 1).argsort(0).expand_as(before)
        positive, negative = regression(now, before), regression(now, before.gather(0, other))
        loss = 0.5 * (F.softplus(-positive) + F.softplus(negative)).mean()
        right = (positive > 0).float() + (negative <= 0).float()
        return loss, {"accuracy": 0.5 * right.mean()}


def check_pairs(batch: int) -> None:
    """Refuse a batch that is not pairs, or has no second pair to shuffle with."""
    if batch % 2 or batch < 4:
        raise UserError(f"PCL needs an even batch of at least 4, two examples a pair. Got {batch} instead.")
