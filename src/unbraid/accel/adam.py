"""Adam for many runs at once, with one flat row of parameters and one learning rate per run."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

Hyper = float | Tensor
"""A number that may differ between runs that train together. Inside an objective it is a 0-d tensor."""


@dataclass(frozen=True)
class Adam:
    """The constants of Adam (Kingma & Ba 2015, arXiv:1412.6980, algorithm 1)."""

    learning_rate: Hyper
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8


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
    step = (
        torch.sqrt(moment2, out=grad).div_(math.sqrt(1 - beta2**t)).add_(epsilon).div_(learning_rate / (1 - beta1**t))
    )
    row.addcdiv_(moment1, step, value=-1)  # with a learning rate of 0, `step` is infinite and rows do not change
