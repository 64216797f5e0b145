"""The objective of one run at one step, and its gradient."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from unbraid.methods.added_support import add_support
from unbraid.methods.decoder_penalties import DecoderPenalties, penalised_objective
from unbraid.methods.method import Batch, Method
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

# Indices of the noise streams of a step, for the choice of examples, the objective, the random parts of examples, the
# penalties on the decoder, and the change of the weights after the last step.
DATA, OBJECTIVE, EXAMPLES, PENALTIES, FINISH = range(5)


class ObjectiveModule(nn.Module):
    """A module whose forward pass computes the objective of a network.

    `functional_call` needs such a module to replace the parameters of the network.
    """

    def __init__(self, net: VAENet, factorised_support: float = 0.0) -> None:
        super().__init__()
        self.net, self.factorised_support = net, factorised_support

    def forward(
        self, method: Method, penalties: DecoderPenalties, batch: Batch, noise: Sequence[Noise], step: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        objective = penalised_objective(method, penalties, self.net, batch, noise, step)
        return add_support(objective, self.factorised_support, self.net, batch.x, noise[0])


def parameter_gradients(loss: Tensor, parameters: Iterable[Tensor]) -> list[Tensor]:
    """Return the gradient of each parameter. It is 0 for parameters that are frozen or that the loss does not use."""
    every = list(parameters)
    trained = [parameter for parameter in every if parameter.requires_grad]
    found = iter(torch.autograd.grad(loss, trained, allow_unused=True, materialize_grads=True))
    return [next(found) if parameter.requires_grad else torch.zeros_like(parameter) for parameter in every]
