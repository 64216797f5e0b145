"""Slow or simple counterparts of abstract reasoning.

They are a solver that knows the rule, solvers that see only the answers, the published way to draw wrong answers, and
the relation network with plain loops over all pairs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from unbraid.reasoning.relation_network import RelationNetwork, StackedLinear

Panel = list[int]


def solve_by_rule(context: Sequence[Panel], answers: Sequence[Panel]) -> list[int]:
    """Return the positions of all answers that keep every factor constant that is constant in the first two rows."""
    factors = range(len(context[0]))
    constant = [f for f in factors if all(len({context[3 * r + c][f] for c in range(3)}) == 1 for r in range(2))]
    return [i for i, answer in enumerate(answers) if all(answer[f] == context[6][f] for f in constant)]


def sharing(answers: Sequence[Panel], i: int) -> int:
    """Return how many values of other answers equal the value of answer i of the same factor."""
    return sum(answers[i][f] == other[f] for j, other in enumerate(answers) if j != i for f in range(len(other)))


def unshared(answers: Sequence[Panel], i: int) -> int:
    """Return the number of factors in which answer i differs from all other answers."""
    others = [other for j, other in enumerate(answers) if j != i]
    return sum(all(answers[i][f] != other[f] for other in others) for f in range(len(answers[0])))


CONTEXT_BLIND: dict[str, Callable[[Sequence[Panel], int], int]] = {
    "most shared values": sharing,
    "fewest shared values": lambda answers, i: -sharing(answers, i),
    "most factors with a value of its own": unshared,
}


def blind_guess(score: Callable[[Sequence[Panel], int], int], answers: Sequence[Panel], choose: random.Random) -> int:
    """Return the position of the answer with the highest score. Ties are broken at random."""
    scores = [score(answers, i) for i in range(len(answers))]
    return choose.choice([i for i, value in enumerate(scores) if value == max(scores)])


def published_answers(sizes: Sequence[int], active: Sequence[int], choose: random.Random) -> list[Panel]:
    """Return a correct answer, and then five wrong ones that violate its relations, drawn one after another."""

    def panel() -> Panel:
        return [choose.randrange(size) for size in sizes]

    answers = [panel()]
    while len(answers) < 6:
        wrong = panel()
        if any(wrong[f] != answers[0][f] for f in active):
            answers.append(wrong)
    return answers


def relation_scores(network: RelationNetwork, run: int, context: Tensor, answers: Tensor) -> list[float]:
    """Return the score of each answer to one puzzle, by a loop over all 81 pairs of panels."""

    def apply(layers: list[StackedLinear], x: Tensor, last_is_linear: bool) -> Tensor:
        for i, layer in enumerate(layers):
            x = x @ layer.weight[run] + layer.bias[run, 0]
            x = x if last_is_linear and i == len(layers) - 1 else x.clamp(min=0)
        return x

    scores = []
    for answer in answers:
        panels = [torch.cat([code, place]) for code, place in zip([*context, answer], torch.eye(9), strict=True)]
        pairs = [apply(network.edge, torch.cat([a, b]), False) for a in panels for b in panels]
        scores.append(apply(network.graph, torch.stack(pairs).sum(0), True).item())
    return scores
