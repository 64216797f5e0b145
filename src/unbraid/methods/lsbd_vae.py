"""The LSBD-VAE, whose latents are circles on which known transformations act as rotations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.sampling import DrawnExamples, draw_factors
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods.controls import Controls, cylinder_controls
from unbraid.methods.method import Batch, EncoderOutput, Hyper, Loss, Method, setting
from unbraid.methods.pairs import check_pairs
from unbraid.methods.traversal import RowLabel, Traversal
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise
from unbraid.spaces import FlatTorus, Sphere

TWO_PI = 2 * torch.pi


class LabelledPairs(NamedTuple):
    """Pairs of examples with known transformations.

    Attributes:
        first: Indices of the first examples.
        second: Indices of the transformed examples.
        angles: The angle by which each circle is rotated, in radians.
    """

    first: Int[Tensor, " n"]
    second: Int[Tensor, " n"]
    angles: Float[Tensor, "n k"]


def rotate(z: Float[Tensor, "n d"], angles: Float[Tensor, "n k"]) -> Float[Tensor, "n d"]:
    """Rotate the first 2 k latents, which are k circles, by angles in radians. The other latents do not change.

    >>> rotate(torch.tensor([[1.0, 0.0, 5.0]]), torch.tensor([[torch.pi / 2]])).round().tolist()
    [[-0.0, 1.0, 5.0]]
    """
    k = angles.shape[1]
    x, y = z[:, : 2 * k : 2], z[:, 1 : 2 * k : 2]
    cosine, sine = angles.cos(), angles.sin()
    turned = torch.stack([cosine * x - sine * y, sine * x + cosine * y], -1).flatten(1)
    return torch.cat([turned, z[:, 2 * k :]], 1)


@dataclass(frozen=True)
class LSBDVAE(Method):
    r"""A VAE with one circle per cyclic factor, on which known transformations of examples act as rotations.

    .. math:: E_q[-\log p(x|z)] + \beta\, KL + \gamma\, \frac1M \sum_{m=1}^M \| z_m - \rho(g_m) \bar z \|^2, \quad
        \bar z = P\Big( \frac1M \sum_{m=1}^M \rho(g_m)^{-1} z_m \Big)

    The first latents are the coordinates of points on circles, with two latents for each circle. The other latents
    are real numbers. The posterior on a circle is that of the diffusion VAE (`DiffusionVAE`): a Brownian motion of time
    t from the projected mean. The prior on a circle is uniform, and the logarithm of t is between `log_t_min` and
    `log_t_max`. The other latents have normal posteriors.

    A labelled pair (M = 2) consists of an example and the same example after a known transformation :math:`g_2`, which
    changes the first `circles` cyclic factors of the data by known angles. :math:`g_1` is the identity, and :math:`z_m`
    is a posterior sample of example m of the pair. :math:`\rho(g)` rotates each circle by the angle of its factor and
    keeps the other latents. P projects to the circles. The labelled examples are decoded from :math:`\rho(g_m) \bar z`.

    Each step uses `batch` unlabelled examples and as many labelled examples. Reconstruction error and KL are means over
    all examples, and the last term is a mean over the labelled examples. The set of labelled pairs is drawn once, with
    replacement, by `label_seed`, and does not depend on the seed of the run. With `labels` = 0 there are no labelled
    pairs, and the method is a diffusion VAE. If there are no circles either, it is a beta-VAE.

    Deviations: the authors alternate epochs with and without labels, so the weight of a labelled example depends on the
    number of labelled examples. Here the weight does not depend on it. In the authors' code, the last term is a sum
    over the M examples instead of a mean. With one circle, the loss of a step here is therefore the average of the
    losses of two steps of the authors' code, one with and one without labels. In the authors' code, the distance for
    several circles is computed from the sum of their cosines, which is limited to at most 1. Here squared distances are
    added, as in the paper. The only transformations are rotations of circles, and sequences of more than two examples
    (M > 2) are not supported.
    Reference: Tonnaer et al. (2022), "Quantifying and Learning Linear Symmetry-Based Disentanglement",
    arXiv:2011.06070, section 5. The defaults :math:`\gamma` = 100 and `walk_steps` = 10 are those of the authors' code.
    """

    code_kinds: ClassVar[tuple[str, ...]] = ("ambient", "angles", "sampled")

    circles: int = setting(1, "number of circles, at most the number of cyclic factors; each has two latents", low=0)
    beta: Hyper = setting(1.0, "weight of the KL term", low=0, swept=False)
    gamma: Hyper = setting(100.0, "weight of the distance from the rotated average", low=0, swept=True)
    labels: int = setting(256, "number of labelled pairs; 0 for training without labels", low=0)
    label_seed: int = setting(0, "seed that chooses the labelled pairs", low=0)
    walk_steps: int = setting(10, "number L of steps of the random walk that samples the posterior of a circle", low=1)
    log_t_min: float = setting(-10.0, "lower bound of the logarithm of the diffusion time t")
    log_t_max: float = setting(-5.0, "upper bound of the logarithm of the diffusion time t")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.log_t_min < self.log_t_max:
            raise UserError(
                f"The 'log_t_max' parameter of LSBDVAE must be above log_t_min, {self.log_t_min:g}. "
                f"Got {self.log_t_max:g} instead."
            )

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        """Raise a UserError if there are too few latents or cyclic factors, or if pairs cannot be drawn."""
        if latents < 2 * self.circles:
            raise UserError(
                f"LSBDVAE with {self.circles} circles needs at least {2 * self.circles} latents. Got {latents} instead."
            )
        if not self.labels:
            return
        if not self.circles:
            raise UserError(
                "LSBDVAE with labelled pairs needs at least 1 circle, and data with a cyclic factor, such as "
                f"square_torus. Got circles=0, labels={self.labels} and {data.name}. Pass labels=0 for a VAE without "
                "labels."
            )
        if len(data.cyclic) < self.circles:
            raise UserError(
                f"LSBDVAE with {self.circles} circles and labels needs data with at least {self.circles} cyclic "
                f"factor(s). {data.name} has {len(data.cyclic)}. Choose data such as square_torus, dsprites or "
                "cars3d, or labels=0."
            )
        check_pairs(self, data, batch)

    def labelled_pairs(self, data: FactorData) -> LabelledPairs:
        """Return the labelled pairs. In each second example, the cyclic factors of the circles are drawn uniformly."""
        key = torch.full((), self.label_seed, device=data.device)
        noise = Noise.from_seed(key, torch.zeros_like(key))
        factors = draw_factors(data, noise, self.labels)
        columns, angles = list(factors.unbind(1)), []
        for name in list(data.cyclic)[: self.circles]:
            j = data.names.index(name)
            new = noise.integers(data.sizes[j], self.labels)
            angles.append((new - columns[j]) * (TWO_PI / data.cyclic[name]))
            columns[j] = new
        missing = [torch.zeros(self.labels, device=data.device)] * (self.circles - len(angles))
        turns = torch.stack([*angles, *missing], 1) if self.circles else factors.new_zeros(self.labels, 0).float()
        return LabelledPairs(data.index_of(factors), data.index_of(torch.stack(columns, 1)), turns)

    def draw(self, data: FactorData, noise: Noise, batch: int) -> DrawnExamples:
        unlabelled = data.draw(noise, batch)
        if not self.labels:
            return DrawnExamples(unlabelled)
        pairs, chosen = self.labelled_pairs(data), noise.integers(self.labels, batch // 2)
        examples = torch.cat([unlabelled, pairs.first[chosen], pairs.second[chosen]])
        return DrawnExamples(examples, labels=pairs.angles[chosen])

    def log_t(self, q: Gaussian) -> Float[Tensor, "b k"]:
        """Return the logarithm of the diffusion time of each circle, from the average of its two log variances."""
        h = q.logvar[:, : 2 * self.circles].unflatten(1, (self.circles, 2)).mean(2)
        middle, half = 0.5 * (self.log_t_min + self.log_t_max), 0.5 * (self.log_t_max - self.log_t_min)
        log_t: Tensor = middle + half * h.tanh()
        return log_t

    def flat(self, q: Gaussian) -> Gaussian:
        """Return the posteriors of the latents that are real numbers."""
        return Gaussian(q.mean[:, 2 * self.circles :], q.logvar[:, 2 * self.circles :])

    def project(self, z: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        """Return latents whose first coordinates are projected to the circles."""
        if not self.circles:
            return z
        n = 2 * self.circles
        return torch.cat([FlatTorus(n).project(z[..., :n]), z[..., n:]], -1)

    def sample(self, q: Gaussian, noise: Noise) -> Float[Tensor, "b d"]:
        """Return one sample of the posterior of each example."""
        flat = self.flat(q)
        if not self.circles:
            return flat.sample(noise)
        space = Sphere(2)
        start = space.project(q.mean[:, : 2 * self.circles].unflatten(1, (self.circles, 2)).flatten(0, 1))
        points = space.diffuse(start, self.log_t(q).exp().flatten(), noise, self.walk_steps)
        circles = points.unflatten(0, (len(q.mean), self.circles)).flatten(1)
        return torch.cat([circles, flat.sample(noise)], 1)

    def kl(self, q: Gaussian) -> Float[Tensor, ""]:
        """Return KL(posterior || prior), summed over latents and averaged over examples."""
        log_t = self.log_t(q)
        circles = Sphere(2).kl(torch.zeros(*log_t.shape, 2, device=log_t.device), log_t).sum(1)
        return (circles + self.flat(q).kl().sum(1)).mean()

    def transformed_average(self, z: Float[Tensor, "n d"], angles: Float[Tensor, "m k"]) -> Float[Tensor, "n d"]:
        """Return the average latents of each pair, transformed for each of its two examples.

        The latents of second examples are rotated back before the average is computed. The result for a first example
        is the average itself. The result for a second example is the average, rotated by the angles of the pair. The
        first half of the rows of z and of the result are the first examples, and the second half are the second ones.
        """
        first, second = z.chunk(2)
        average = self.project(0.5 * (first + rotate(second, -angles)))
        return torch.cat([average, rotate(average, angles)])

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        q = net.encode(batch.x)
        z = self.sample(q, noise)
        if batch.labels is None:
            rec, kl = net.nll(batch.x, z).mean(), self.kl(q)
            return rec + self.beta * kl, {"rec": rec, "kl": kl}
        unlabelled, labelled = z.chunk(2)
        target = self.transformed_average(labelled, batch.labels)
        rec, kl = net.nll(batch.x, torch.cat([unlabelled, target])).mean(), self.kl(q)
        distance = (labelled - target).square().sum(1).mean()
        return rec + self.beta * kl + self.gamma * distance, {"rec": rec, "kl": kl, "distance": distance}

    def point_latents(self, net: VAENet, q: Gaussian) -> Tensor:
        return self.project(q.mean)

    def code(self, net: VAENet, q: Gaussian, kind: str, noise: Noise) -> Tensor:
        """Return projected means as coordinates or with one angle per circle, or samples of the posterior."""
        z = self.sample(q, noise) if kind == "sampled" else self.project(q.mean)
        return self.angles(z) if kind == "angles" else z

    def prior_sample(self, n: int, latents: int, noise: Noise) -> Tensor:
        """Return n samples of the prior, which is uniform on the circles and standard normal for other latents."""
        return self.project(noise.normal(n, latents))

    def angles(self, z: Float[Tensor, "n d"]) -> Float[Tensor, "n m"]:
        """Return latents in which an angle in radians replaces the two coordinates of each circle."""
        n = 2 * self.circles
        return torch.cat([torch.atan2(z[:, 1:n:2], z[:, :n:2]), z[:, n:]], 1)

    def column_names(self, columns: int) -> list[str]:
        return [f"coordinate {i}" for i in range(columns)]

    def information(self, q: Gaussian) -> None:
        """Return None, because the KL of a circle is defined only for its two latents together."""
        return

    def traversal(self, net: VAENet, q: Gaussian, population: Gaussian, positions: Tensor) -> Traversal:
        """Return one row per circle, whose positions are angles in radians, and one row per other latent."""
        start = self.point_latents(net, q)
        n, moved = 2 * self.circles, positions.to(start)
        rows = []
        for i in range(self.circles):
            turns = torch.zeros(len(moved), self.circles, device=start.device)
            turns[:, i] = moved
            rows.append(rotate(start.expand(len(moved), -1), turns))
        for j in range(n, start.shape[1]):
            row = start.repeat(len(moved), 1)
            row[:, j] = moved
            rows.append(row)
        names = [f"circle {i}" for i in range(self.circles)] + [f"latent {j}" for j in range(n, start.shape[1])]
        return Traversal(torch.stack(rows), start, [RowLabel(name) for name in names])

    def controls(self, net: VAENet, q: Gaussian, population: Gaussian) -> Controls:
        """Return one control per circle, which is an angle, and one per other latent."""
        return cylinder_controls(self.circles, self.angles(self.point_latents(net, q)))

    def encoder_outputs(self, latents: int) -> dict[str, EncoderOutput]:
        """Return the logarithms of the diffusion times of the circles as one output. Without circles, return none."""
        meaning = "logarithm of the diffusion time of each circle, which determines the width of its posterior"
        return {"log_t": EncoderOutput(meaning, self.log_t)} if self.circles else {}
