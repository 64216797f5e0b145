"""Permutation contrastive learning (PCL), which trains an encoder to distinguish consecutive from shuffled pairs."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.data.dataset import FactorData
from unbraid.data.sampling import PAIRS, DrawnExamples
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods.method import Batch, Loss, Method, setting
from unbraid.methods.pairs import check_series, grid_remedy
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

HIDDEN_LAYERS = 5  # number of hidden layers in the network of each component


class LaplaceRegression(nn.Module):
    """The log-odds that a pair is consecutive, in closed form (see `PCL`).

    The formula holds for sources whose random changes over time have a Laplace distribution. If `learned` is False, the
    weight a of the squared means is the constant 1.
    """

    def __init__(self, latents: int, learned: bool) -> None:
        super().__init__()
        self.w1, self.w2 = nn.Parameter(torch.ones(latents)), nn.Parameter(-torch.ones(latents))
        self.b, self.m = nn.Parameter(torch.zeros(latents)), nn.Parameter(torch.zeros(1))
        self.a = nn.Parameter(torch.ones(1)) if learned else None

    def forward(self, now: Float[Tensor, "n d"], before: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        change = (self.w1 * now + self.w2 * before + self.b).abs().sum(1)
        squares = now.square().sum(1)
        return -change + (squares if self.a is None else self.a.abs() * squares) + self.m


class ComponentRegression(nn.Module):
    """The log-odds that a pair is consecutive, as a sum over one network per component.

    Weights have the shape (component, input, output).
    """

    def __init__(self, latents: int, width: int) -> None:
        super().__init__()
        widths = [2, *[width] * HIDDEN_LAYERS, 1]
        pairs = list(itertools.pairwise(widths))
        self.weights = nn.ParameterList([he_uniform_weights(latents, inputs, outputs) for inputs, outputs in pairs])
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(latents, 1, outputs)) for _, outputs in pairs[:-1]])
        self.m = nn.Parameter(torch.zeros(1))

    def forward(self, now: Float[Tensor, "n d"], before: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        x: Tensor = torch.stack([now, before], -1).transpose(0, 1)
        for weight, bias in zip(list(self.weights)[:-1], self.biases, strict=True):
            x = (x @ weight + bias).relu()
        odds: Tensor = x @ self.weights[-1]
        return odds.sum((0, 2)) + self.m


def he_uniform_weights(latents: int, inputs: int, outputs: int) -> nn.Parameter:
    """Return the weights (latents, inputs, outputs) of one layer, drawn from the He uniform distribution."""
    bound = (6 / inputs) ** 0.5
    return nn.Parameter(torch.empty(latents, inputs, outputs).uniform_(-bound, bound))


def standardise(h: Float[Tensor, "b d"], epsilon: float = 1e-5) -> Float[Tensor, "b d"]:
    """Normalise every column to mean 0 and variance 1 over the batch, without a learned scale or shift."""
    centred = h - h.mean(0)
    return centred * (centred.square().mean(0) + epsilon).rsqrt()


@dataclass(frozen=True)
class PCL(Method):
    r"""An encoder without a decoder, trained to distinguish pairs of consecutive examples from shuffled pairs.

    .. math:: -\tfrac12 E \log \sigma(r(x_t, x_{t-1})) - \tfrac12 E \log \sigma(-r(x_t, x_{t^*}))

    .. math:: r(x, x') = -\sum_i |w_{1i} h_i(x) + w_{2i} h_i(x') + b_i| + a \sum_i h_i(x)^2 + m

    r is the log-odds that a pair is consecutive. h is the mean that the encoder outputs, and :math:`\sigma` is the
    logistic function. :math:`x_{t-1}` and :math:`x_t` are the two examples of a pair. :math:`x_{t^*}` is the first
    example of a random pair of the batch. A random permutation of the batch assigns one such pair to each :math:`x_t`.
    The parameters of r are initialised to :math:`w_1 = 1, w_2 = -1, b = 0, a = 1, m = 0`, and :math:`a` is never
    negative. With `regression` set to "mlp", :math:`r = \sum_i r_i(h_i(x), h_i(x')) + m`, where each :math:`r_i` is a
    network with five hidden layers.

    Random guessing has the loss :math:`\log 2 = 0.693`. The logged `accuracy` is the fraction of pairs for which r has
    the correct sign. Because there is no decoder, nothing can be reconstructed, sampled or traversed. The encoder's log
    variances are not used.

    With `pairs` set to "consecutive", the rows of the data are a time series, as in the paper, and a pair consists of a
    row and the previous row, or of two frames of a video in `kitti_masks` and `natural_sprites`. With the other values
    of `pairs`, the data must be a full grid of factors, and the second example of a pair is the first one with some
    factors changed.

    Deviations: the authors' code clamps :math:`a` at 0 after each step. Here :math:`a` is the absolute value of a
    parameter. The two versions are equivalent until this parameter changes sign. Batch normalisation of h uses the mean
    and variance of the current batch and has no scale, shift or running averages. It is applied only in the loss. Codes
    are the means before this normalisation, so their scale and offset are arbitrary. On average, the permutation leaves
    one pair of a batch unchanged. The network and the optimiser are those of the run, whereas the paper uses maxout
    layers.
    Reference: Hyvarinen & Morioka (2017), "Nonlinear ICA of temporally dependent stationary sources", AISTATS, eq. 11.
    The form of r is that of the authors' code.
    """

    code_kinds: ClassVar[tuple[str, ...]] = ("mean",)

    pairs: Literal["laplace", "uniform", "walk", "consecutive"] = setting(
        "laplace",
        "distribution of pairs: factors change by small amounts (laplace), several factors are redrawn (uniform), one "
        "factor changes by one step (walk), or the examples follow each other in time (consecutive)",
    )
    regression: Literal["laplace", "mlp"] = setting(
        "laplace", "form of the log-odds of a pair: a closed form (laplace), or one network per component (mlp)"
    )
    a: Literal["learned", "fixed"] = setting(
        "learned", "weight a of the squared means, with regression=laplace: learned, or fixed at 1"
    )
    normalise: Literal["batch", "none"] = setting("batch", "normalisation of the means during training")
    width: int = setting(512, "number of units in each hidden layer, with regression=mlp", low=1)

    def draw(self, data: FactorData, noise: Noise, batch: int) -> DrawnExamples:
        return DrawnExamples.from_pairs(PAIRS[self.pairs](data, noise, batch // 2))

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        check_batch(batch)
        if self.pairs == "consecutive":
            return check_series(self, data)
        if not data.gridded:
            raise UserError(
                f"PCL draws pairs by changing factors, so the data must be a full grid of factors. {data.name} is not "
                f"a full grid. {grid_remedy(data)} Or use pairs='consecutive' if the rows are a time series."
            )
        fixed = data.categorical if self.pairs != "uniform" else ()
        if not any(size > 1 and name not in fixed for name, size in zip(data.names, data.sizes, strict=True)):
            raise UserError(f"PCL with pairs {self.pairs!r} needs a factor that can change. Got {data} instead.")
        return None

    def information(self, q: Gaussian) -> None:
        """Return None, because the log variances are not trained."""
        return

    def extend(self, net: VAENet, latents: int) -> VAENet:
        net.decoder = None
        laplace = self.regression == "laplace"
        learned = self.a == "learned"
        net.regression = LaplaceRegression(latents, learned) if laplace else ComponentRegression(latents, self.width)
        return net

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        h = net.encode(batch.x).mean
        before, now = (standardise(h) if self.normalise == "batch" else h).chunk(2)
        regression = cast(nn.Module, net.regression)
        other = noise.uniform(len(before), 1).argsort(0).expand_as(before)
        positive, negative = regression(now, before), regression(now, before.gather(0, other))
        loss = 0.5 * (F.softplus(-positive) + F.softplus(negative)).mean()
        correct = (positive > 0).float() + (negative <= 0).float()
        return loss, {"accuracy": 0.5 * correct.mean()}


def check_batch(batch: int) -> None:
    """Raise a UserError unless the batch is even and holds at least two pairs. A single pair cannot be shuffled."""
    if batch % 2 or batch < 4:
        raise UserError(f"PCL needs an even batch of at least 4, because it draws pairs. Got {batch} instead.")
