"""Reasoning puzzles: 3x3 matrices of panels whose last panel is missing, and six answers to choose from.

A panel is a combination of factor values. Some factors are active: they are constant in each row of the matrix. The
correct answer is the only answer with which the active factors are also constant in the last row.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from unbraid.errors import UserError
from unbraid.noise import Noise

CONTEXT, ANSWERS, WIDTH = 8, 6, 3  # panels that are shown, answers, and panels per row
ALTERNATIVES = ("easy", "hard")
MAX_ROUNDS = 200  # attempts to draw sets of answers before the factors count as unsuitable


class Puzzles(NamedTuple):
    """Puzzles as factor values.

    Attributes:
        context: The eight panels that are shown, row by row, (n, 8, k).
        answers: The six answers, (n, 6, k).
        position: The position of the correct answer, (n,).
        active: Which factors are constant in every row, (n, k).
    """

    context: Int[Tensor, "n 8 k"]
    answers: Int[Tensor, "n 6 k"]
    position: Int[Tensor, " n"]
    active: Bool[Tensor, "n k"]


def draw_puzzles(
    sizes: Sequence[int], noise: Noise, n: int, relations: Sequence[int] = (1, 2, 3), alternatives: str = "easy"
) -> Puzzles:
    """Draw puzzles at random.

    The number of active factors, which is also called the number of relations, is drawn uniformly from `relations`. The
    values of every inactive factor are redrawn until the factor is neither constant in both of the first two rows, nor
    has three different values in both of these rows. The active factors therefore follow from the context alone.

    With `easy` alternatives, the six answers are independent and uniform, under the condition that each answer could be
    the correct one for some choice of active factors. With `hard` alternatives and two or more relations, two active
    factors vary over the answers in a 2 x 3 grid, and the answers agree in all other active factors. With one relation,
    hard alternatives are drawn like easy ones.

    In both cases, the six answers are exchangeable: the position of the correct answer is independent of the answers.
    A solver that does not look at the context is therefore correct with probability 1/6.

    Deviations: In the authors' code, wrong answers are drawn until they violate the relations of the correct answer,
    so the correct answer stands out from the others. With few values per factor, it can then be guessed from the
    answers alone. Hu et al. (2021), arXiv:2002.06838, describe this fault in another dataset. The authors' code can
    also draw the same answer twice. The procedure here avoids both faults, but in easy puzzles with one relation,
    factors with many values are active more often than others.

    Reference: van Steenkiste et al. (2019), arXiv:1905.12506, section 3, and the authors' code.

    Args:
        sizes: The number of values of each factor. A factor with one value never varies and is never active.
        noise: Source of randomness.
        n: Number of puzzles.
        relations: Possible numbers of active factors.
        alternatives: "easy" or "hard".

    Returns:
        The puzzles.

    Raises:
        UserError: If there are too few factors with at least two values, or if the factors have too few values for six
            different answers.

    >>> puzzles = draw_puzzles([3, 4, 5], Noise(torch.tensor(0)), 10)
    >>> tuple(puzzles.context.shape), tuple(puzzles.answers.shape)
    ((10, 8, 3), (10, 6, 3))
    """
    values = torch.tensor(list(sizes))
    counts = torch.tensor(list(relations))[noise.integers(len(relations), n)]
    answers, active = torch.zeros(n, ANSWERS, len(sizes), dtype=torch.int64), torch.zeros(n, len(sizes)).bool()
    position = noise.integers(ANSWERS, n)
    for count in sorted(set(relations)):
        rows = (counts == count).nonzero()[:, 0]
        draw = _hard_answers if alternatives == "hard" and count > 1 else _easy_answers
        answers[rows], active[rows] = draw(values, noise, position[rows], count)
    correct = answers[torch.arange(n), position]
    return Puzzles(_draw_context(values, noise, correct, active), answers, position, active)


def factor_sets(sizes: Tensor, count: int) -> Bool[Tensor, "s k"]:
    """Return all sets of `count` factors, one row per set. Only factors with at least two values are used."""
    usable = (sizes > 1).nonzero()[:, 0].tolist()
    sets = list(itertools.combinations(usable, count))
    if not sets:
        raise UserError(
            f"A puzzle with {count} relations needs {count} factors with at least 2 values. Got {len(usable)} such "
            "factors. Use fewer relations, or more values per factor."
        )
    rows = torch.zeros(len(sets), len(sizes)).bool()
    return rows.scatter_(1, torch.tensor(sets), True)


def _easy_answers(sizes: Tensor, noise: Noise, position: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Draw sets of six answers. For each set, draw active factors for which only the answer at `position` is correct.

    Sets are accepted by a condition that treats all six answers alike, so the answers stay exchangeable.
    """
    n, sets = len(position), factor_sets(sizes, count)
    accepted, identified = [torch.zeros(0, ANSWERS, len(sizes)).long()], [torch.zeros(0, ANSWERS, len(sets)).bool()]
    for _ in range(MAX_ROUNDS):
        if sum(map(len, accepted)) >= n:
            break
        answers = noise.integers(sizes, 2 * n + 64, ANSWERS, len(sizes))
        unique = identifying_sets(answers, sets)
        fair = unique.any(2).all(1)
        accepted.append(answers[fair])
        identified.append(unique[fair])
    answers, unique = torch.cat(accepted)[:n], torch.cat(identified)[:n]
    if len(answers) < n:
        raise UserError(
            f"Puzzles with {count} relation(s) need factors with enough values for six different answers. Got factors "
            f"with {', '.join(map(str, sizes.tolist()))} values. Use more relations, or more values per factor."
        )
    chances = noise.uniform(n, len(sets)) * unique[torch.arange(n), position]
    return answers, sets[chances.argmax(1)]


def identifying_sets(answers: Int[Tensor, "n a k"], sets: Bool[Tensor, "s k"]) -> Bool[Tensor, "n a s"]:
    """Return, for each answer and set of factors, whether these factors tell the answer apart from all others."""
    differs = answers[:, :, None] != answers[:, None]  # (n, a, a, k)
    apart = (differs.float() @ sets.T.float()) > 0  # (n, a, a, s)
    itself = torch.eye(answers.shape[1]).bool()[:, :, None]
    return (apart | itself).all(2)


def _hard_answers(sizes: Tensor, noise: Noise, position: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Draw sets of six answers that differ in two of the active factors. Factors that are not active are random.

    Over the answers, the first of the two factors takes two values and the second takes three. The six combinations
    are in random order.
    """
    n, k = len(position), len(sizes)
    sets = factor_sets(sizes, count)
    possible = (sets & (sizes > 2)).any(1)
    if not possible.any():
        raise UserError(
            f"Hard alternatives need a factor with at least 3 values. Got factors with "
            f"{', '.join(map(str, sizes.tolist()))} values. Use easy alternatives, or more values per factor."
        )
    sets = sets[possible]
    active = sets[noise.integers(len(sets), n)]
    second = (noise.uniform(n, k) * (active & (sizes > 2))).argmax(1)
    others = active.scatter(1, second[:, None], False)
    first = (noise.uniform(n, k) * others).argmax(1)
    shared = noise.integers(sizes, n, 1, k).expand(n, ANSWERS, k)
    answers = torch.where(active[:, None], shared, noise.integers(sizes, n, ANSWERS, k))
    cell = noise.uniform(n, ANSWERS).argsort(1)
    for factor, index, values in ((first, cell // WIDTH, 2), (second, cell % WIDTH, WIDTH)):
        chosen = _different_values(sizes[factor], noise, values).gather(1, index)
        answers = answers.scatter(2, factor[:, None, None].expand(n, ANSWERS, 1), chosen[:, :, None])
    return answers, active


def _different_values(sizes: Tensor, noise: Noise, count: int) -> Int[Tensor, "n c"]:
    """Draw `count` different values for each factor. `sizes` has the number of values of each factor."""
    order = noise.uniform(len(sizes), int(sizes.max()))
    outside = torch.arange(order.shape[1]) >= sizes[:, None]
    return (order + 2 * outside).argsort(1)[:, :count]


def _draw_context(sizes: Tensor, noise: Noise, correct: Tensor, active: Tensor) -> Int[Tensor, "n 8 k"]:
    """Draw the first eight panels of matrices whose last panel is the correct answer."""
    n, k = correct.shape
    rows = noise.integers(sizes, n, WIDTH, WIDTH, k)
    misleading = _is_misleading(rows) & ~active & (sizes > 1)
    while misleading.any():
        rows = torch.where(misleading[:, None, None], noise.integers(sizes, n, WIDTH, WIDTH, k), rows)
        misleading = _is_misleading(rows) & ~active & (sizes > 1)
    constant = torch.cat([rows[:, :2, :1], correct[:, None, None]], 1).expand(n, WIDTH, WIDTH, k)
    return torch.where(active[:, None, None], constant, rows).flatten(1, 2)[:, :CONTEXT]


def _is_misleading(rows: Int[Tensor, "n r c k"]) -> Bool[Tensor, "n k"]:
    """Return whether a factor is constant in both of the first two rows, or has three different values in both."""
    a, b, c = rows[:, :2].unbind(2)
    constant = (a == b) & (b == c)
    distinct = (a != b) & (b != c) & (a != c)
    return constant.all(1) | distinct.all(1)
