"""Product manifold projection (PMP), an autoencoder that learns subspaces from pairs that differ in few factors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.accel.adam import Adam
from unbraid.data.dataset import FactorData
from unbraid.data.sampling import DrawnExamples, Pairs, draw_factors, pairs
from unbraid.distributions import LIKELIHOODS, Gaussian
from unbraid.errors import UserError
from unbraid.methods import pmp_losses as losses
from unbraid.methods.controls import Controls, direction_controls
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.pairs import grid_remedy
from unbraid.methods.pmp_losses import Projectors
from unbraid.methods.traversal import RowLabel, Traversal
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


def reconstruction_error(net: VAENet, x: Tensor, z: Tensor) -> Tensor:
    """Return the reconstruction error, averaged over pixels.

    It is the squared error (not half of it) for the likelihood "gaussian", and the negative log-likelihood for others.
    """
    factor = 2 if net.likelihood == LIKELIHOODS["gaussian"] else 1
    return factor * net.nll(x, z).mean() / x[0].numel()


def pairs_sharing_one_factor(data: FactorData, noise: Noise, n: int) -> Pairs:
    """Draw n pairs. The examples of a pair agree in one random factor and are independent in the others."""
    count = len(data.sizes)
    before, after = (draw_factors(data, noise, n) for _ in range(2))
    changed = noise.integers(count, n)[:, None] != torch.arange(count, device=data.device)
    after = torch.where(changed, after, before)
    return Pairs(torch.stack([data.index_of(before), data.index_of(after)], 1), changed)


@dataclass(frozen=True)
class PMP(Method):
    r"""An autoencoder that learns a latent space of k subspaces from pairs that differ in few unknown factors.

    .. math:: L = L_{rec} + b_1 (0.1 L_{dis} + 0.1 L_{spar}) + 100\, b_2 L_{cons} + 10^{-4} b_3 L_{reg}

    :math:`\hat z = f(x)` is the mean that the encoder outputs. The encoder's log variances are not used. k networks,
    the projectors, compute :math:`s_i = P_i(\hat z)`, and the decoder takes :math:`z = \sum_i s_i`. The terms are:

    - :math:`L_{rec}` is the reconstruction error, averaged over pixels.
    - :math:`L_{spar}` is 0 if each coordinate is nonzero in at most one of the vectors :math:`s_i`.
    - :math:`L_{dis}` compares the two examples of a pair. The chosen subspace is the one in which the ratio of their
      squared distance to the mean distance of all examples is largest. :math:`L_{dis}` pushes the two examples at least
      :math:`\sqrt{0.05}` apart in the chosen subspace and pulls them together in all others.
    - :math:`L_{cons}` is the error of recovering mixed latents after they are decoded and encoded again. Mixed latents
      combine subspaces of both examples of a pair.
    - :math:`L_{reg}` is smallest if all subspaces are chosen equally often.

    The constants 0.1, 0.1, 100 and :math:`10^{-4}` are hyperparameters. If one of them is 0, its term has no influence.
    The schedules :math:`b_1`, :math:`b_2` and :math:`b_3` are functions of the completed fraction of the training. The
    paper trains with 32 pairs (a batch of 64), learning rate 5e-4 (the default for this method), 10 latents and k = 10.

    Deviations: the preset "paper" follows the supplement. In the first 20 % of the training, all three schedules are 0,
    so only :math:`L_{rec}` is used. After that, :math:`b_3 = 1 - b_2`. The betas of Adam are 0.9 and 0.99. The preset
    "code" follows the authors' code: the schedules are 0 in the first 25 % of the training, :math:`b_3 = 1 - b_1` after
    that, and the betas are 0.9 and 0.999. The weight decay of 1e-6 in the authors' code is left out. The schedules
    depend on the step instead of the epoch. The authors' code skips :math:`L_{cons}` while :math:`b_2 \le 10^{-2}`.
    Here :math:`L_{cons}` is always computed and logged, but its weight is 0 while :math:`b_2 \le 10^{-2}`. The
    supplement does not say how pairs are drawn in the experiments on meshes. Our choice for meshes is
    `pairs="sharing"`, which draws pairs that agree in one factor. The codes "sum" are the sum z. The codes "components"
    are the coordinates of each :math:`s_i` along its first principal component over the given examples. These codes
    have k columns. They are meaningful only if they are computed from many examples. Neither kind of codes comes from a
    publication.
    Reference: Fumero et al. (2021), arXiv:2103.01638 (ICML, PMLR 139), and table 4, section 2 and eq. 1 of its
    supplement.
    """

    code_kinds: ClassVar[tuple[str, ...]] = ("sum", "components")
    column_code_kind: ClassVar[str | None] = "components"
    default_learning_rate: ClassVar[float] = 5e-4

    preset: losses.Preset = setting(
        "paper", "source of the schedules and the optimiser settings: the paper's supplement or the authors' code"
    )
    pairs: Literal["pairs", "sharing"] = setting(
        "pairs", "distribution of pairs: few factors are redrawn (pairs), or all factors except one (sharing)"
    )
    subspaces: int = setting(10, "number k of subspaces", low=2)
    horizon: Hyper = setting(
        0.0,
        "number of training steps over which the schedules run; 0 means all steps of the run. All weights "
        "are constant after half of these steps",
        low=0,
    )
    distance: Hyper = setting(0.1, "weight of the distance term L_dis", low=0)
    sparsity: Hyper = setting(0.1, "weight of the sparsity term L_spar", low=0)
    consistency: Hyper = setting(100.0, "weight of the consistency term L_cons", low=0, swept=True)
    regularisation: Hyper = setting(1e-4, "weight of the regularisation term L_reg", low=0)

    def draw(self, data: FactorData, noise: Noise, batch: int) -> DrawnExamples:
        sampler = pairs if self.pairs == "pairs" else pairs_sharing_one_factor
        return DrawnExamples.from_pairs(sampler(data, noise, batch // 2))

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        if batch % 2:
            raise UserError(
                f"The batch of PMP consists of pairs and must be even. Got {batch} instead. Use {batch + 1}."
            )
        if not data.gridded:
            raise UserError(
                "PMP draws pairs by changing factors, so the data must be a full grid of factors. "
                f"{data.name} is not a full grid. {grid_remedy(data)}"
            )
        if sum(size > 1 for size in data.sizes) < 2:
            raise UserError(
                f"PMP needs at least two factors that vary. Got {data.name} with sizes {data.sizes} instead."
            )

    def extend(self, net: VAENet, latents: int) -> VAENet:
        net.projectors = Projectors(self.subspaces, latents)
        return net

    def adam(self, parameter: str, learning_rate: Hyper) -> Adam:
        return Adam(learning_rate, beta2=0.99 if self.preset == "paper" else 0.999)

    def subspace_codes(self, net: VAENet, q: Gaussian) -> Float[Tensor, "n k d"]:
        s: Tensor = cast(Projectors, net.projectors)(q.mean)
        return s

    def code(self, net: VAENet, q: Gaussian, kind: str, noise: Noise) -> Tensor:
        s = self.subspace_codes(net, q)
        return (
            s.sum(1)
            if kind == "sum"
            else torch.stack([losses.principal_axis(part).coordinate(part) for part in s.unbind(1)], 1)
        )

    def point_latents(self, net: VAENet, q: Gaussian) -> Tensor:
        return self.subspace_codes(net, q).sum(1)

    def column_names(self, columns: int) -> list[str]:
        return [f"subspace {i}" for i in range(columns)]

    def information(self, q: Gaussian) -> Tensor | None:
        """Return None, because the log variances are not trained."""
        return None

    def traversal(self, net: VAENet, q: Gaussian, population: Gaussian, positions: Tensor) -> Traversal:
        """Return one row per subspace, in which the example moves along the subspace's first principal direction.

        Positions are distances from the mean of the population, in standard deviations. The other subspaces keep their
        values. Rows are sorted by standard deviation in descending order.
        """
        own = self.subspace_codes(net, q)
        axes = [losses.principal_axis(part) for part in self.subspace_codes(net, population).unbind(1)]
        order = sorted(range(len(axes)), key=lambda i: -float(axes[i].std))
        rows = []
        for i in order:
            change = positions.to(own.device) * axes[i].std - axes[i].coordinate(own[:, i])
            rows.append(own.sum(1) + change[:, None] * axes[i].direction)
        labels = [RowLabel(f"subspace {i}", i, std=float(axes[i].std)) for i in order]
        return Traversal(torch.stack(rows), own.sum(1), labels)

    def controls(self, net: VAENet, q: Gaussian, population: Gaussian) -> Controls:
        """Return one control per subspace, which moves examples along the subspace's first principal direction.

        Values are distances from the mean of the population, in standard deviations. The control of a subspace that
        does not vary has no effect.
        """
        own = self.subspace_codes(net, q)
        axes = [losses.principal_axis(part) for part in self.subspace_codes(net, population).unbind(1)]
        std = torch.stack([axis.std for axis in axes])
        coordinates = torch.stack([axis.coordinate(part) for axis, part in zip(axes, own.unbind(1), strict=True)], 1)
        start = torch.where(std > 0, coordinates / torch.where(std > 0, std, 1.0), 0.0)
        directions = std[:, None] * torch.stack([axis.direction for axis in axes])
        return direction_controls([f"subspace {i}" for i in range(len(axes))], own.sum(1), directions, start)

    def schedule_end(self, steps: int) -> float:
        return losses.CONSISTENCY_FULL * float(self.horizon or steps)

    def progress(self, batch: Batch, step: Tensor) -> Tensor:
        """Return the fraction of the schedules that is completed at a step."""
        length = self.horizon * torch.ones_like(step)
        return step / torch.where(length > 0, length, float(max(batch.steps, 1)))

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        s = self.subspace_codes(net, net.encode(batch.x))
        first, second = s.chunk(2)
        delta = losses.subspace_distances(first, second)
        mixed = losses.mix_subspaces(first, second, noise)
        recovered = self.subspace_codes(net, net.encode(net.decode(mixed.sum(1))))
        terms = {
            "rec": reconstruction_error(net, batch.x, s.sum(1)),
            "distance": losses.distance(delta, losses.changed_subspace(delta, losses.mean_distances(s.detach()))),
            "sparsity": losses.sparsity(s),
            "consistency": (recovered - mixed).square().mean(),
            "regularisation": losses.regularisation(delta),
        }
        b1, b2, b3 = losses.schedule(self.progress(batch, step), self.preset)
        loss = terms["rec"] + b1 * (self.distance * terms["distance"] + self.sparsity * terms["sparsity"])
        loss = loss + b2 * (b2 > losses.NEGLIGIBLE_WEIGHT) * self.consistency * terms["consistency"]
        return loss + b3 * self.regularisation * terms["regularisation"], terms
