"""Contrastive inversion of the data generating process (cl-ica), an encoder trained by InfoNCE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.sampling import PAIRS, DrawnExamples
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.pairs import check_pairs
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise
from unbraid.spaces.manifold import normalise


def similarities(
    a: Float[Tensor, "n d"], b: Float[Tensor, "n d"], measure: str, temperature: Hyper
) -> Float[Tensor, "n n"]:
    r"""Return the similarity of each row of a to each row of b, divided by the temperature.

    It is :math:`-\|a - b\|_1` ("l1"), :math:`-\|a - b\|_2^2` ("l2") or the inner product ("dot").
    """
    if measure == "dot":
        return a @ b.T / temperature
    difference = a[:, None] - b[None]
    distance = difference.abs() if measure == "l1" else difference.square()
    return -distance.sum(2) / temperature


@dataclass(frozen=True)
class ClICA(Method):
    r"""An encoder without a decoder, trained to find the partner of each example among all partners in the batch.

    .. math:: -E \log \frac{e^{s(h(x_i), h(x'_i)) / \tau}}{\sum_j e^{s(h(x_i), h(x'_j)) / \tau}}, \quad
              s(a, b) = -\|a - b\|_1

    h is the mean that the encoder outputs. x and x' are the two examples of a pair, and the sum runs over all pairs of
    the batch. h inverts the process that generates the data if the conditional density of the factors v' of x' given
    the factors v of x is proportional to :math:`e^{s(v, v')}`. This holds for Laplace distributions with the similarity
    "l1", for normal distributions with "l2", and for von Mises-Fisher distributions on the unit sphere with "dot",
    where h is also projected to the sphere. With "l1", each component of h is then one factor, up to sign, scale and
    order. With "l2" and "dot", h is a rotation of the factors.

    Random guessing has the loss log n for n pairs. The logged `accuracy` is the fraction of examples whose partner has
    the largest similarity. Because there is no decoder, nothing can be reconstructed, sampled or traversed. The
    encoder's log variances are not used. The batch size is the number of examples, which is twice the number of pairs.
    With `pairs` set to "consecutive", the rows of the data are treated as a time series, or as the frames of videos in
    `kitti_masks` and `natural_sprites`.

    Deviations: the negative examples of an example are the partners of all other examples in the batch, so their number
    follows from the batch size. Network and optimiser are those of the run.
    Reference: Zimmermann et al. (2021), "Contrastive learning inverts the data generating process", arXiv:2102.08850,
    eq. 1 and theorems 2, 5 and 6.
    """

    code_kinds: ClassVar[tuple[str, ...]] = ("mean",)

    temperature: Hyper = setting(1.0, "temperature tau; larger values make similarities smaller", low=1e-6)
    similarity: Literal["l1", "l2", "dot"] = setting(
        "l1", "similarity of codes: minus the l1 distance, minus the squared distance, or the inner product on a sphere"
    )
    pairs: Literal["laplace", "uniform", "walk", "consecutive"] = setting(
        "laplace",
        "distribution of pairs: factors change by small amounts (laplace), several factors are redrawn (uniform), one "
        "factor changes by one step (walk), or the examples follow each other in time (consecutive)",
    )

    def draw(self, data: FactorData, noise: Noise, batch: int) -> DrawnExamples:
        return DrawnExamples.from_pairs(PAIRS[self.pairs](data, noise, batch // 2))

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        if batch < 4:
            raise UserError(
                "The batch of ClICA must hold at least two pairs, because each partner is to be found among several. "
                f"Got {batch} instead. Use at least 4."
            )
        check_pairs(self, data, batch, series=self.pairs == "consecutive")

    def extend(self, net: VAENet, latents: int) -> VAENet:
        net.decoder = None
        return net

    def information(self, q: Gaussian) -> None:
        """Return None, because the log variances are not trained."""
        return

    def point_latents(self, net: VAENet, q: Gaussian) -> Tensor:
        return normalise(q.mean) if self.similarity == "dot" else q.mean

    def code(self, net: VAENet, q: Gaussian, kind: str, noise: Noise) -> Tensor:
        return self.point_latents(net, q)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        own, partner = self.point_latents(net, net.encode(batch.x)).chunk(2)
        logits = similarities(own, partner, self.similarity, self.temperature)
        loss = (logits.logsumexp(1) - logits.diagonal()).mean()
        correct = logits.argmax(1) == torch.arange(len(logits), device=logits.device)
        return loss, {"accuracy": correct.float().mean()}
