"""Product manifold projection: subspaces found from pairs that differ in few factors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import torch
from torch import Tensor

from unbraid.accel.adam import Adam
from unbraid.data.dataset import FactorData
from unbraid.data.sampling import Drawn, Pairs, pairs
from unbraid.distributions import LIKELIHOODS, Gaussian
from unbraid.errors import UserError
from unbraid.methods import pmp_losses as losses
from unbraid.methods.controls import Controls, along
from unbraid.methods.method import Batch, Hyper, Loss, Method, Walk, setting
from unbraid.methods.pmp_losses import Projectors
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


def reconstruction(net: VAENet, x: Tensor, z: Tensor) -> Tensor:
    """Averaged over pixels: the cross-entropy of Bernoulli pixels, the squared error (not half of it) of others."""
    halves = 2 if net.likelihood == LIKELIHOODS["gaussian"] else 1
    return halves * net.nll(x, z).mean() / x[0].numel()


def one_shared(data: FactorData, noise: Noise, n: int) -> Pairs:
    """Pairs that agree in one factor, each factor equally often, and are independent in the others."""
    count = len(data.sizes)
    before, after = (data.unplace(data.draw(noise, n)) for _ in range(2))
    changed = noise.integers(count, n)[:, None] != torch.arange(count, device=data.device)
    after = torch.where(changed, after, before)
    return Pairs(torch.stack([data.place(before), data.place(after)], 1), changed)


@dataclass(frozen=True)
class PMP(Method):
    r"""An autoencoder whose code is a sum of k subspaces, told apart by pairs that differ in few unknown factors.

    .. math:: L = L_{rec} + b_1 (.1 L_{dis} + .1 L_{spar}) + 100\, b_2 L_{cons} + 10^{-4} b_3 L_{reg}

    :math:`\hat z = f(x)` is the encoder's mean (its log variance is not used), :math:`s_i = P_i(\hat z)` with k
    projectors, :math:`z = \sum_i s_i` goes to the decoder g. :math:`L_{rec}`: error averaged over pixels.
    :math:`L_{spar}`: every coordinate belongs to one subspace. :math:`L_{dis}`: the two examples of a pair agree in all
    subspaces but the one they differ in most (relative to its mean distance), and are at least :math:`\sqrt{.05}` apart
    there. :math:`L_{cons}`: codes mixed from a pair are found again in what they decode to. :math:`L_{reg}`: all
    subspaces are used. A weight of 0 ablates its term. Schedules b are functions of step / `horizon`: set it to the
    steps of the run. The paper trains with 32 pairs (a batch of 64), learning rate 5e-4, d = k = 10.

    Deviations: preset "paper" (the supplement) has 20 % reconstruction alone, :math:`b_3 = 1 - b_2` and Adam betas .9,
    .99; "code" (the public code) 25 %, :math:`1 - b_1` and .9, .999, without its weight decay of 1e-6. Epochs are
    replaced by a continuous step / `horizon`. The public code skips :math:`L_{cons}` while :math:`b_2 \le 10^{-2}`;
    here it is computed and logged always, and weighted 0 there. The supplement leaves pairs of meshes open: "sharing"
    pairs agree in one factor. Metrics see the sum z, or the first principal component of each :math:`s_i` over the rows
    given (k numbers, meaningful for many rows only); neither is published.
    Reference: Fumero et al. (2021), arXiv:2103.01638 (ICML, PMLR 139); table 4, section 2 and eq. 1 of its supplement.
    """

    code_kinds: ClassVar[tuple[str, ...]] = ("sum", "components")

    preset: losses.Preset = setting("paper", "schedule and optimiser of the paper's supplement or of the public code")
    pairs: Literal["pairs", "sharing"] = setting("pairs", "few factors change, or one is shared (subject or pose)")
    subspaces: int = setting(10, "number k of subspaces", low=2)
    horizon: Hyper = setting(16_500.0, "steps over which the schedules run (30 epochs of Cars3D)", low=1)
    distance: Hyper = setting(0.1, "weight of the distance term", low=0)
    sparsity: Hyper = setting(0.1, "weight of the sparsity term", low=0)
    consistency: Hyper = setting(100.0, "weight of the consistency term", low=0, swept=True)
    regularisation: Hyper = setting(1e-4, "weight of the regularisation term", low=0)

    def draw(self, data: FactorData, noise: Noise, batch: int) -> Drawn:
        sampler = pairs if self.pairs == "pairs" else one_shared
        return Drawn.of(sampler(data, noise, batch // 2))

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        if batch % 2:
            raise UserError(f"PMP trains on pairs: the batch must be even. Got {batch} instead. Use {batch + 1}.")
        if not data.gridded:
            raise UserError(f"PMP's pairs need a full grid of factors. {data.name} has labels of its own instead.")
        if sum(size > 1 for size in data.sizes) < 2:
            raise UserError(f"PMP's pairs need two factors that vary. Got {data.name} with sizes {data.sizes} instead.")

    def extend(self, net: VAENet, latents: int) -> VAENet:
        net.projectors = Projectors(self.subspaces, latents)
        return net

    def adam(self, parameter: str, learning_rate: Hyper) -> Adam:
        return Adam(learning_rate, beta2=0.99 if self.preset == "paper" else 0.999)

    def project(self, net: VAENet, q: Gaussian) -> Tensor:
        """The subspace vectors of examples with posteriors q, (n, k, d); their sum over k is what is decoded."""
        s: Tensor = cast(Projectors, net.projectors)(q.mean)
        return s

    def code(self, net: VAENet, q: Gaussian, kind: str, noise: Noise) -> Tensor:
        s = self.project(net, q)
        return s.sum(1) if kind == "sum" else torch.stack([losses.axis(part).place(part) for part in s.unbind(1)], 1)

    def information(self, q: Gaussian) -> Tensor | None:
        """Not known: the code is a point, log variances are not trained."""
        return None

    def walk(self, net: VAENet, q: Gaussian, population: Gaussian, positions: Tensor) -> Walk:
        """Every subspace in turn moves along its first principal direction, those that vary most first.

        Positions are standard deviations of the population about its mean; the other subspaces stay the example's own.
        """
        own = self.project(net, q)
        axes = [losses.axis(part) for part in self.project(net, population).unbind(1)]
        order = sorted(range(len(axes)), key=lambda i: -float(axes[i].std))
        rows = []
        for i in order:
            along = positions.to(own.device) * axes[i].std - axes[i].place(own[:, i])
            rows.append(own.sum(1) + along[:, None] * axes[i].direction)
        return Walk(torch.stack(rows), own.sum(1), [f"subspace {i}\nstd {float(axes[i].std):.2g}" for i in order])

    def controls(self, net: VAENet, q: Gaussian, population: Gaussian) -> Controls:
        """A knob a subspace: standard deviations of the population from its mean, along the first principal direction.

        A subspace in which nothing varies has a knob that does nothing.
        """
        own = self.project(net, q)
        axes = [losses.axis(part) for part in self.project(net, population).unbind(1)]
        std = torch.stack([axis.std for axis in axes])
        places = torch.stack([axis.place(part) for axis, part in zip(axes, own.unbind(1), strict=True)], 1)
        start = torch.where(std > 0, places / torch.where(std > 0, std, 1.0), 0.0)
        directions = std[:, None] * torch.stack([axis.direction for axis in axes])
        return along([f"subspace {i}" for i in range(len(axes))], own.sum(1), directions, start)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        s = self.project(net, net.encode(batch.x))
        first, second = s.chunk(2)
        delta = losses.moved(first, second)
        mixed = losses.mixtures(first, second, noise)
        found = self.project(net, net.encode(net.decode(mixed.sum(1))))
        terms = {
            "rec": reconstruction(net, batch.x, s.sum(1)),
            "distance": losses.distance(delta, losses.oracle(delta, losses.spread(s.detach()))),
            "sparsity": losses.sparsity(s),
            "consistency": (found - mixed).square().mean(),
            "regularisation": losses.regularisation(delta),
        }
        b1, b2, b3 = losses.schedule(step / self.horizon, self.preset)
        loss = terms["rec"] + b1 * (self.distance * terms["distance"] + self.sparsity * terms["sparsity"])
        loss = loss + b2 * (b2 > losses.FAINT) * self.consistency * terms["consistency"]
        return loss + b3 * self.regularisation * terms["regularisation"], terms
