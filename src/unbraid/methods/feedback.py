"""Numbers that a method stores from step to step, such as those of a controller.

An objective is a pure function, so it cannot store anything itself. The numbers are therefore parameters of the
network. The objective adds a term whose gradient is the old numbers minus the new ones (`assign`). A step of Adam with
the constants `UNIT_STEP` subtracts this gradient. Because the numbers are parameters, checkpoints store them, and runs
that are trained together each have their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from unbraid.accel.adam import Adam

# With both betas 0, a step for the gradient g is rate * g / (|g| + epsilon). If rate = epsilon >> |g|, this is g up to
# rounding.
UNIT_STEP = Adam(1e8, beta1=0.0, beta2=0.0, epsilon=1e8, regularised=False)


class Stored(nn.Module):
    """Numbers that are stored from step to step, with their initial values."""

    def __init__(self, initial: Sequence[float]) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.tensor(initial, dtype=torch.float32))


def assign(stored: Tensor, new: Tensor) -> Tensor:
    """Return a term to add to the loss. A step of `UNIT_STEP` then replaces the stored numbers by the new ones.

    The value of the term is 0, and its gradient is the stored numbers minus the new ones.

    >>> stored = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> term = assign(stored, torch.tensor([5.0, 2.5]))
    >>> term.item(), torch.autograd.grad(term, stored)[0].tolist()
    (0.0, [-4.0, -0.5])
    """
    product = ((stored - new).detach() * stored).sum()
    return product - product.detach()
