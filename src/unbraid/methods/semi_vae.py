"""Semi-supervised VAEs, which learn from a few labelled examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from unbraid.accel.adam import Adam
from unbraid.data.dataset import FactorData
from unbraid.data.sampling import DrawnExamples
from unbraid.errors import UserError
from unbraid.methods.annealed_vae import AnnealedVAE
from unbraid.methods.beta_tcvae import BetaTCVAE
from unbraid.methods.beta_vae import BetaVAE
from unbraid.methods.dip_vae import DIPVAEI, DIPVAEII
from unbraid.methods.factor_vae import FactorVAE
from unbraid.methods.imprecise_labels import coarse_labels, noisy_labels, partial_labels, permuted_labels
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

FAMILIES: dict[str, Callable[[Hyper], Method]] = {
    "beta_vae": lambda weight: BetaVAE(beta=weight),
    "annealed_vae": lambda weight: AnnealedVAE(c_max=weight),
    "factor_vae": lambda weight: FactorVAE(gamma=weight),
    "beta_tcvae": lambda weight: BetaTCVAE(beta=weight),
    "dip_vae_i": lambda weight: DIPVAEI(lambda_od=weight),
    "dip_vae_ii": lambda weight: DIPVAEII(lambda_od=weight),
}
"""The unsupervised methods to which labels are added, as functions of the weight of their regularisation."""

# Indices of the random streams that belong to the label seed. The first determines which examples are labelled, and the
# others determine the errors in their labels.
EXAMPLES, PERMUTATION, NOISE, OBSERVED = 0, 1, 2, 3


def label_loss(mean: Float[Tensor, "b d"], labels: Float[Tensor, "b k"], form: str) -> Float[Tensor, ""]:
    r"""Return the distance between the latents and the labels of the same columns.

    The distance is summed over columns and averaged over examples. Labels are in [0, 1]. With "xent" the distance is
    the cross-entropy of the label and the logistic function of the latent. With "l2" it is the squared difference of
    the label and the logistic function of the latent. With "cov" the loss is the `cross_covariance` instead. Missing
    labels, which are negative, do not contribute.
    """
    if form == "cov":
        return cross_covariance(mean, labels)
    columns = min(mean.shape[1], labels.shape[1])
    latents, known, target = mean[:, :columns], labels[:, :columns] >= 0, labels[:, :columns].clamp(min=0)
    if form == "xent":
        losses = F.binary_cross_entropy_with_logits(latents, target, reduction="none")
    else:
        losses = (latents.sigmoid() - target).square()
    return torch.where(known, losses, 0.0).sum(1).mean()


def cross_covariance(mean: Float[Tensor, "b d"], labels: Float[Tensor, "b k"]) -> Float[Tensor, ""]:
    r"""Return :math:`\sum_{i \ne j} Cov(\mu_i, y_j)^2`, where i is the column of a latent and j that of a label.

    The covariance with label j is computed from the examples of the batch for which label j is known.
    """
    known = (labels >= 0).to(mean)
    share = known / known.sum(0).clamp(min=1)
    centred_label = torch.where(labels >= 0, labels - (share * labels).sum(0), 0.0)
    covariance = mean.T @ (share * centred_label)
    return (covariance**2).sum() - (covariance.diagonal() ** 2).sum()


@dataclass(frozen=True)
class SemiVAE(Method):
    r"""A VAE of any family with a supervised term, which ties the first latents to the factors of a few examples.

    .. math:: L(x) + \gamma\, E_{(x', y)} \sum_{j \le k} CE(y_j, \sigma(\mu_j(x')))

    L is the loss of the unsupervised method `family`, whose regularisation has the weight `regularisation`. (x', y) is
    a labelled example with k factors, and :math:`y_j` is factor j scaled to [0, 1]. CE is the cross-entropy,
    :math:`\mu` is the posterior mean, and :math:`\sigma` is the logistic function. Latent j is therefore tied to factor
    j. If there are fewer latents than factors, the remaining factors are not used.

    There are `labels` labelled examples. They are drawn once, with replacement, by `label_seed`, and do not depend on
    the seed of the run. Each step uses `batch` examples without labels and `batch` labelled examples. The labelled
    examples are drawn from this fixed set. Missing labels are ignored.

    With `form` set to "l2", the cross-entropy is replaced by the squared difference of :math:`y_j` and
    :math:`\sigma(\mu_j)`. With "cov", the supervised term is :math:`\sum_{i \ne j} Cov(\mu_i, y_j)^2` over the batch.

    Labels can be imprecise (`unbraid.methods.imprecise_labels`). They are coarse if `bins` is above 0, noisy if
    `label_noise` is above 0, partial if `observed` is above 0, and unordered if `order` is "permuted". If several of
    these are chosen, values are permuted first, then replaced at random, then divided into bins. The errors are drawn
    once, by `label_seed`.

    Deviations: the reference implementation trains on one set of labels, and selects models on another one. Here, all
    labels are used for training. The reference implementation divides the labels of a factor with n values by n instead
    of n - 1, and sums over the labelled examples of a batch instead of averaging. With "cov", it does not divide them,
    and with "l2" it can learn one scale for all latents instead. It repeats the labelled examples in a fixed order.
    With partial labels, it ties the first latents to the observed factors. Here, latent j always belongs to factor j.
    Reference: Locatello et al. (2020), "Disentangling factors of variations using few labels", arXiv:1905.01258,
    sections 4 and 5.
    """

    regularisation: Hyper = setting(4.0, "weight of the regularisation of the family, such as beta", low=0)
    family: Literal["beta_vae", "annealed_vae", "factor_vae", "beta_tcvae", "dip_vae_i", "dip_vae_ii"] = setting(
        "beta_vae", "unsupervised method to which the supervised term is added"
    )
    gamma: Hyper = setting(10.0, "weight of the supervised term", low=0, swept=False)
    labels: int = setting(100, "number of labelled examples", low=1)
    form: Literal["xent", "l2", "cov"] = setting(
        "xent", "form of the supervised term: cross-entropy, squared error, or covariances with other factors (cov)"
    )
    label_seed: int = setting(0, "seed that chooses the labelled examples", low=0)
    bins: int = setting(
        0, "coarse labels: maximum number of values of each factor; 0: all values", low=0, optional=True
    )
    label_noise: Hyper = setting(
        0.0, "noisy labels: probability that a label is replaced by a random one", low=0, swept=False, optional=True
    )
    observed: int = setting(
        0, "partial labels: number of factors with labels, chosen at random; 0: all", low=0, optional=True
    )
    order: Literal["kept", "permuted"] = setting(
        "kept", "order of the values of each factor: kept, or permuted at random", optional=True
    )
    iteration_threshold: Hyper = setting(
        100_000.0,
        "family annealed_vae: number of training steps until the capacity reaches its maximum; should not exceed the "
        "steps of the run",
        low=1,
        swept=False,
        optional=True,
    )

    def base(self) -> Method:
        """Return the unsupervised method."""
        method = FAMILIES[self.family](self.regularisation)
        if isinstance(method, AnnealedVAE):
            return replace(method, iteration_threshold=self.iteration_threshold)
        return method

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        if not data.sizes:
            raise UserError(f"SemiVAE learns from labels. {data.name} has none. Use a method without supervision.")
        if self.observed > len(data.sizes):
            raise UserError(
                f"SemiVAE cannot observe more factors than there are. {data.name} has {len(data.sizes)}. Got "
                f"{self.observed} instead."
            )
        if float(self.label_noise) > 1:
            raise UserError(
                f"The probability label_noise of SemiVAE must be at most 1. Got {self.label_noise:g} instead."
            )
        if self.bins == 1:
            raise UserError("Coarse labels need at least 2 bins, or 0 for precise labels. Got 1 instead.")
        self.base().check(data, batch, latents)

    def schedule_end(self, steps: int) -> float:
        return self.base().schedule_end(steps)

    def extend(self, net: VAENet, latents: int) -> VAENet:
        return self.base().extend(net, latents)

    def adam(self, parameter: str, learning_rate: Hyper) -> Adam:
        return self.base().adam(parameter, learning_rate)

    def label_stream(self, data: FactorData, stream: int) -> Noise:
        """Return the random numbers that determine one property of the labels."""
        key = torch.full((), self.label_seed, device=data.device)
        return Noise.from_seed(key, torch.zeros_like(key), stream)

    def labelled_examples(self, data: FactorData) -> Int[Tensor, " n"]:
        """Return the indices of the labelled examples."""
        return data.draw(self.label_stream(data, EXAMPLES), self.labels)

    def label_table(self, data: FactorData, examples: Int[Tensor, " n"]) -> Float[Tensor, "n k"]:
        """Return the labels of the labelled examples, scaled to [0, 1]. Missing labels are negative."""
        labels, sizes = data.factors_at(examples), data.grid[0]
        if self.order == "permuted":
            labels = permuted_labels(labels, data.sizes, self.label_stream(data, PERMUTATION))
        labels = noisy_labels(labels, sizes, self.label_noise, self.label_stream(data, NOISE))
        if self.bins:
            labels, sizes = coarse_labels(labels, sizes, self.bins), sizes.clamp(max=self.bins)
        if self.observed:
            labels = partial_labels(labels, self.observed, self.label_stream(data, OBSERVED))
        return labels / (sizes - 1).clamp(min=1)

    def draw(self, data: FactorData, noise: Noise, batch: int) -> DrawnExamples:
        unlabelled, examples = data.draw(noise, batch), self.labelled_examples(data)
        chosen = noise.integers(self.labels, batch)
        labels = self.label_table(data, examples)[chosen]
        return DrawnExamples(torch.cat([unlabelled, examples[chosen]]), labels=labels)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        unlabelled, labelled = batch.x.chunk(2)
        loss, terms = self.base().objective(net, replace(batch, x=unlabelled, labels=None), noise, step)
        supervised = label_loss(net.encode(labelled).mean, cast(Tensor, batch.labels), self.form)
        return loss + self.gamma * supervised, {**terms, "supervised": supervised}
