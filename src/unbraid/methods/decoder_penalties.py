"""Penalties on the derivatives of the decoder. They can be added to every method that has a decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unbraid.errors import UserError
from unbraid.methods.derivatives import (
    column_products,
    column_sizes,
    hessian_forms,
    interactions,
    jacobian_products,
    random_axes,
    random_signs,
)
from unbraid.methods.method import Batch, Loss, Method
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

DIRECTIONS = 2  # random directions per example and step, as in Peebles et al. (2020)


@dataclass(frozen=True)
class DecoderPenalties:
    r"""The weights of three penalties on derivatives of the decoder g, which maps latents to the mean of p(x|z).

    - `orthogonal_jacobian`: :math:`\sum_{i \ne j} (J_i \cdot J_j)^2`, where :math:`J_i` is the derivative of g with
      respect to latent i. The penalty is zero if the latents change the example in orthogonal directions.
    - `sparse_jacobian`: :math:`\sum_{x, j} |J_{xj}|`, which favours latents that influence few outputs x.
    - `hessian_penalty`: :math:`\sum_x \mathrm{Var}_v(v^T H_x v) = 2 \sum_x \sum_{i \ne j} H_{xij}^2`, where
      :math:`H_x` is the Hessian of output x, and the entries of v are random signs. The penalty is zero if no latent
      changes the influence of another latent.

    Each penalty is averaged over the examples of the batch. In each step, two random directions per example give an
    unbiased estimate (see `unbraid.methods.derivatives`). The derivatives are taken at the latents from which examples
    are reconstructed. No gradient flows to these latents, so the penalties train only the decoder. The penalties use
    their own random numbers. If all three weights are 0, a run is therefore the same as without penalties.

    All three penalties decrease if the encoder multiplies the latents by a number above 1 and the decoder divides them
    by the same number. Use the penalties with methods that determine the scale of the latents, such as VAEs and `fsq`.

    Deviations: Wei et al. estimate the first penalty from products of the Jacobian with vectors of random signs. Here
    it is estimated from columns of the Jacobian. The code of Wei et al. and that of Peebles et al. take the maximum
    over outputs instead of the sum, and can also penalise inner layers. Moran et al. make the decoder sparse by a prior
    on a mask of latents for each output, not by a penalty on derivatives.
    Reference: Wei et al. (2021), "Orthogonal Jacobian regularization for unsupervised disentanglement in image
    generation", arXiv:2108.07668. Zheng & Zhang (2023), "Generalizing nonlinear ICA beyond structural sparsity",
    arXiv:2311.00866, and Moran et al. (2022), "Identifiable deep generative models via sparse decoding",
    arXiv:2110.10804, for sparse influence. Peebles et al. (2020), "The Hessian penalty", arXiv:2008.10599.
    """

    orthogonal_jacobian: float = 0.0
    sparse_jacobian: float = 0.0
    hessian_penalty: float = 0.0

    @property
    def active(self) -> bool:
        """Whether any weight is above 0."""
        return max(self.orthogonal_jacobian, self.sparse_jacobian, self.hessian_penalty) > 0

    def terms(self, net: VAENet, z: Tensor, noise: Noise) -> dict[str, Tensor]:
        """Return the penalties whose weights are above 0, by name, as means over the examples with latents z."""
        (b, d), found = z.shape, {}
        count = min(DIRECTIONS, d)
        axes, signs = random_axes(noise, count, b, d), random_signs(noise, DIRECTIONS, b, d)
        if self.orthogonal_jacobian or self.sparse_jacobian:
            columns = jacobian_products(net.decode, z, axes)
            if self.orthogonal_jacobian:
                found["orthogonal_jacobian"] = column_products(columns, d).mean()
            if self.sparse_jacobian:
                found["sparse_jacobian"] = column_sizes(columns, d).mean()
        if self.hessian_penalty:
            found["hessian_penalty"] = interactions(hessian_forms(net.decode, z, signs)).mean()
        return found


def penalised_objective(
    method: Method, penalties: DecoderPenalties, net: VAENet, batch: Batch, noise: Sequence[Noise], step: Tensor
) -> Loss:
    """Return the loss of a method plus the weighted penalties on its decoder, and the logged terms.

    Args:
        method: The method.
        penalties: The weights of the penalties.
        net: The network of one run.
        batch: The examples of the step.
        noise: The source of random numbers of the method and, if a penalty is active, that of the penalties.
        step: The index of the step.

    Returns:
        The loss, and a dictionary that contains the terms of the method and the unweighted penalties.
    """
    loss, terms = method.objective(net, batch, noise[0], step)
    if not penalties.active:
        return loss, terms
    with torch.no_grad():
        z = method.point_latents(net, net.encode(batch.x))
    found = penalties.terms(net, z, noise[1])
    weighted = torch.stack([getattr(penalties, name) * value for name, value in found.items()]).sum()
    return loss + weighted, {**terms, **found}


def check_penalised(method: Method, penalties: DecoderPenalties, net: VAENet) -> None:
    """Raise a UserError if penalties on the decoder are given for a method that has no decoder."""
    if penalties.active and net.decoder is None:
        raise UserError(
            f"The penalties orthogonal_jacobian, sparse_jacobian and hessian_penalty need a decoder. "
            f"{type(method).__name__} has none. Set them to 0."
        )
