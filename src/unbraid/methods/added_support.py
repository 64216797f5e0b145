"""The distance from a factorised support as a term that can be added to any VAE."""

from __future__ import annotations

from torch import Tensor

from unbraid.errors import UserError
from unbraid.methods.hfs import sampled_support_distance
from unbraid.methods.method import Loss, Method
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


def add_support(objective: Loss, weight: float, net: VAENet, x: Tensor, noise: Noise) -> Loss:
    r"""Return the loss of a method plus the weighted distance of its latents from a factorised support.

    .. math:: L(x) + \gamma\, H(\mu(x))

    L is the loss of the method, and :math:`\mu(x)` are the posterior means. The support of the latents is factorised if
    all combinations of their values occur. H is the distance from such a support that `HFS` uses, computed with the
    default number of points. A beta-VAE with this term is therefore equivalent to `HFS`. The examples are encoded a
    second time, because objectives do not return their posteriors. If the weight is 0, H is not computed, and the
    objective is returned unchanged.

    Reference: Roth et al. (2023), arXiv:2210.07347, section 3. The authors add H to a beta-VAE and to a
    beta-TCVAE.

    Args:
        objective: The loss of the method and its logged terms.
        weight: The weight :math:`\gamma`.
        net: The network of one run.
        x: The examples of the step.
        noise: The random numbers of the step, after the objective has drawn its own.

    Returns:
        The new loss, and the logged terms with H as `factorised_support`.
    """
    if not weight:
        return objective
    loss, terms = objective
    distance = sampled_support_distance(net.encode(x).mean, noise)
    return loss + weight * distance, {**terms, "factorised_support": distance}


def check_support(method: Method, weight: float) -> None:
    """Raise a UserError if the weight is not 0 and the codes of the method are not the posterior means of a VAE."""
    if weight and method.code_kinds[:2] != Method.code_kinds:
        raise UserError(
            "The term factorised_support needs a VAE whose codes are posterior means, because distances depend on the "
            f"scale of the latents. Got {type(method).__name__} instead. Set the weight to 0, or use another method."
        )
