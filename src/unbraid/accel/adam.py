"""Adam for many runs at once, with one flat row of parameters and one learning rate per run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim.adam import adam

Hyper = float | Tensor
"""A number that may differ between runs that train together. Inside an objective it is a 0-d tensor."""


@dataclass(frozen=True)
class Adam:
    """The constants of Adam (Kingma & Ba 2015, arXiv:1412.6980, algorithm 1) for a parameter.

    Attributes:
        learning_rate: The learning rate of each run.
        beta1: Decay rate of the running mean of the gradient.
        beta2: Decay rate of the running mean of the squared gradient.
        epsilon: Number that is added to the divisor.
        regularised: Whether weight decay and gradient clipping apply to the parameter.
    """

    learning_rate: Hyper
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    regularised: bool = True


def decay_weights(row: Float[Tensor, "r p"], learning_rate: Float[Tensor, "r 1"], weight_decay: float) -> None:
    r"""Shrink all rows in place: :math:`\theta \leftarrow (1 - \alpha \lambda) \theta`.

    This step comes before the update by Adam. Reference: Loshchilov & Hutter (2019), arXiv:1711.05101, algorithm 2.

    Args:
        row: The parameters of each run.
        learning_rate: The learning rate :math:`\alpha` of each run.
        weight_decay: The weight decay :math:`\lambda`.
    """
    row.mul_(1 - learning_rate * weight_decay)


def clip_gradients(grads: Sequence[Float[Tensor, "r _"]], limit: float) -> None:
    """Scale the gradient of each run in place so that its Euclidean norm is at most `limit`.

    As in `torch.nn.utils.clip_grad_norm_`, 1e-6 is added to the norm, which avoids a division by 0.

    Args:
        grads: Tensors that together contain the gradient of each run.
        limit: The maximum norm.
    """
    norm = torch.stack([grad.square().sum(1) for grad in grads]).sum(0).sqrt()
    scale = (limit / (norm + 1e-6)).clamp(max=1)[:, None]
    for grad in grads:
        grad.mul_(scale)


def adam_step(
    row: Float[Tensor, "r p"],
    grad: Float[Tensor, "r p"],
    moment1: Float[Tensor, "r p"],
    moment2: Float[Tensor, "r p"],
    learning_rate: Float[Tensor, "r 1"],
    t: int,
    constants: Adam,
) -> None:
    r"""Update all rows in place. To avoid an allocation, the gradient is overwritten.

    .. math:: m \leftarrow \beta_1 m + (1-\beta_1) g, \quad v \leftarrow \beta_2 v + (1-\beta_2) g^2, \quad
              \theta \leftarrow \theta - \alpha \frac{m / (1-\beta_1^t)}{\sqrt{v / (1-\beta_2^t)} + \epsilon}

    Reference: Kingma & Ba (2015), arXiv:1412.6980, algorithm 1.

    Args:
        row: The parameters of each run.
        grad: The gradient of each run.
        moment1: The running means m of the gradient.
        moment2: The running means v of the squared gradient.
        learning_rate: The learning rate of each run.
        t: The number of this update, counted from 1.
        constants: The other constants of Adam.
    """
    beta1, beta2, epsilon = constants.beta1, constants.beta2, constants.epsilon
    moment1.lerp_(grad, 1 - beta1)
    moment2.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    divisor = (
        torch.sqrt(moment2, out=grad).div_(math.sqrt(1 - beta2**t)).add_(epsilon).div_(learning_rate / (1 - beta1**t))
    )
    row.addcdiv_(moment1, divisor, value=-1)  # with a learning rate of 0, the divisor is infinite and nothing changes


def fused_adam_step(
    row: Float[Tensor, "r p"],
    grad: Float[Tensor, "r p"],
    moment1: Float[Tensor, "r p"],
    moment2: Float[Tensor, "r p"],
    learning_rate: Float[Tensor, "r 1"],
    t: int,
    constants: Adam,
) -> None:
    """Do the same as `adam_step` with PyTorch's fused kernel, one row after another.

    The kernel reads and writes each array only once. The gradient is not overwritten. Rows with a learning rate of 0
    are left out, together with their moments.
    """
    for i, rate in enumerate(learning_rate.flatten().tolist()):
        if rate:
            adam(
                [row[i]], [grad[i]], [moment1[i]], [moment2[i]], [], [torch.tensor(t - 1.0)],
                fused=True, amsgrad=False, maximize=False, weight_decay=0.0,
                lr=rate, beta1=constants.beta1, beta2=constants.beta2, eps=constants.epsilon,
            )  # fmt: skip
