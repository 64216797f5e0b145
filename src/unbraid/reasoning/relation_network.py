"""The Wild Relation Network, which solves puzzles from the codes of their panels, for many runs at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import relu

from unbraid.noise import Noise
from unbraid.reasoning.puzzles import ANSWERS, CONTEXT

POSITIONS = CONTEXT + 1  # the shown panels have one position each, and all answers share the last position


class StackedLinear(nn.Module):
    """A linear layer for each of r runs.

    Weights are normal with variance 1 / inputs, and biases are zero. All runs start with the same weights.

    Args:
        runs: Number of runs.
        inputs: Number of inputs.
        outputs: Number of outputs.
        noise: Source of randomness.
    """

    def __init__(self, runs: int, inputs: int, outputs: int, noise: Noise) -> None:
        super().__init__()
        weight = noise.normal(inputs, outputs) / math.sqrt(inputs)
        self.weight = nn.Parameter(weight.expand(runs, inputs, outputs).clone())
        self.bias = nn.Parameter(torch.zeros(runs, 1, outputs, device=weight.device))

    def forward(self, x: Float[Tensor, "r *b i"]) -> Float[Tensor, "r *b o"]:
        """Apply the layer of each run to its inputs."""
        y = torch.baddbmm(self.bias, x.flatten(1, -2), self.weight)
        return y.view(*x.shape[:-1], y.shape[-1])


def _layers(runs: int, widths: Sequence[int], noise: Noise) -> list[StackedLinear]:
    """Return the layers between successive widths."""
    return [StackedLinear(runs, a, b, noise) for a, b in pairwise(widths)]


class RelationNetwork(nn.Module):
    r"""The Wild Relation Network, which scores each answer by the relations of all pairs of panels.

    .. math:: s_a = f\Big(\sum_{i, j \in \{1, \dots, 8, a\}} g(c_i, p_i, c_j, p_j)\Big)

    :math:`s_a` is the score of answer a, :math:`c_i` is the code of panel i, and :math:`p_i` is its position as a
    one-hot vector. g and f are multilayer perceptrons. A softmax over :math:`s_1, \dots, s_6` gives the probability
    that each answer is correct.

    The 64 pairs of context panels are the same for all answers, so they are computed once. The sum is unchanged, and
    166 pairs per puzzle are computed instead of 486.

    Deviation: weights are drawn from a normal distribution that is not truncated.
    Reference: Barrett et al. (2018), arXiv:1807.04225, as in van Steenkiste et al. (2019), arXiv:1905.12506.

    Args:
        runs: Number of runs.
        codes: Number of code dimensions.
        edge: Widths of the layers of g. The last one is the width of its output.
        graph: Widths of the hidden layers of f.
        noise: Source of randomness of the weights.
    """

    def __init__(self, runs: int, codes: int, edge: Sequence[int], graph: Sequence[int], noise: Noise) -> None:
        super().__init__()
        self.codes = codes
        self.edge = _layers(runs, [2 * (codes + POSITIONS), *edge], noise)
        self.graph = _layers(runs, [edge[-1], *graph, 1], noise)
        self.layers = nn.ModuleList([*self.edge, *self.graph])

    def forward(
        self,
        context: Float[Tensor, "r b 8 d"],
        answers: Float[Tensor, "r b 6 d"],
        mask: Float[Tensor, " h"] | None = None,
    ) -> Float[Tensor, "r b 6"]:
        """Compute the score of each answer.

        Args:
            context: The codes of the panels that are shown.
            answers: The codes of the answers.
            mask: Numbers by which the units of the last hidden layer of f are multiplied, for dropout. None keeps all
                units.

        Returns:
            The scores, one per answer, before the softmax.
        """
        pairs = relu(self._first_edge_layer(context, answers))
        for layer in self.edge[1:]:
            pairs = relu(layer(pairs))
        shared, own = pairs.split([CONTEXT**2, ANSWERS * (2 * CONTEXT + 1)], 2)
        x = shared.sum(2, keepdim=True) + own.unflatten(2, (ANSWERS, -1)).sum(3)
        for layer in self.graph[:-1]:
            x = relu(layer(x))
        scores: Tensor = self.graph[-1](x if mask is None else x * mask)
        return scores.squeeze(-1)

    def _first_edge_layer(self, context: Tensor, answers: Tensor) -> Float[Tensor, "r b e h"]:
        """Compute the first layer of g, before its ReLU, for 64 pairs of context panels and 17 pairs with each answer.

        This layer is linear, so its output for a pair is the sum of one part for each of the two panels.
        """
        left, right = self.edge[0].weight.split(self.codes + POSITIONS, 1)
        parts = [self._panel_part(context, answers, weight) for weight in (left, right)]
        (left_c, left_a), (right_c, right_a) = (part.split([CONTEXT, ANSWERS], 2) for part in parts)
        shared = (left_c[:, :, :, None] + right_c[:, :, None]).flatten(2, 3)
        answer_right = left_c[:, :, None] + right_a[:, :, :, None]
        answer_left = left_a[:, :, :, None] + right_c[:, :, None]
        own = torch.cat([answer_right, answer_left, (left_a + right_a)[:, :, :, None]], 3)
        pairs = torch.cat([shared, own.flatten(2, 3)], 2)
        return pairs + self.edge[0].bias[:, None]

    def _panel_part(self, context: Tensor, answers: Tensor, weight: Tensor) -> Float[Tensor, "r b 14 h"]:
        """Multiply the codes and positions of all panels by `weight`.

        It is the half of the weights of the first layer of g that belongs to the first or the second panel of a pair.
        """
        codes, positions = weight.split([self.codes, POSITIONS], 1)
        panels = torch.cat([context, answers], 2)
        place = positions[:, [*range(CONTEXT), *[CONTEXT] * ANSWERS]]
        products = torch.bmm(panels.flatten(1, 2), codes)
        part: Tensor = products.view(*panels.shape[:3], products.shape[-1]) + place[:, None]
        return part
