"""Puzzles: the rule solves all of them, and the answers alone solve none of them."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from oracles.reasoning import CONTEXT_BLIND, blind_guess, published_answers, solve_by_rule
from unbraid.errors import UserError
from unbraid.noise import Noise
from unbraid.reasoning.puzzles import Puzzles, draw_puzzles, factor_sets, identifying_sets

DSPRITES, SHAPES3D, FEW = (3, 3, 1, 4, 4), (10, 10, 10, 4, 4, 4), (4, 2, 3)
ALTERNATIVES = ("easy", "hard")


def drawn(sizes: tuple[int, ...], alternatives: str, n: int, relations: tuple[int, ...] = (1, 2, 3)) -> Puzzles:
    noise = Noise.from_seed(torch.tensor(5), torch.tensor(0))
    return draw_puzzles(sizes, noise, n, relations, alternatives)


@pytest.mark.parametrize("alternatives", ALTERNATIVES)
@pytest.mark.parametrize(("sizes", "relations"), [(DSPRITES, (1, 2, 3)), (SHAPES3D, (1, 2, 3)), (FEW, (2, 3))])
def test_the_rule_has_exactly_one_solution(
    sizes: tuple[int, ...], relations: tuple[int, ...], alternatives: str
) -> None:
    puzzles = drawn(sizes, alternatives, 300, relations)
    for context, answers, position in zip(*(part.tolist() for part in puzzles[:3]), strict=True):
        assert solve_by_rule(context, answers) == [position]
    assert set(puzzles.active.sum(1).tolist()) == set(relations)
    every = torch.cat([puzzles.context, puzzles.answers], 1).flatten(0, 1)
    assert (every.amin(0) == 0).all()
    assert tuple((every.amax(0) + 1).tolist()) == sizes


def test_other_factors_are_neither_constant_nor_distinct_in_both_rows() -> None:
    puzzles = drawn(DSPRITES, "easy", 400)
    for context, active in zip(puzzles.context.tolist(), puzzles.active.tolist(), strict=True):
        for f in range(5):
            counts = [len({context[3 * row + column][f] for column in range(3)}) for row in range(2)]
            assert (counts == [1, 1]) == (active[f] or DSPRITES[f] == 1)
            assert counts != [3, 3]


@pytest.mark.parametrize("reader", CONTEXT_BLIND)
@pytest.mark.parametrize("alternatives", ALTERNATIVES)
def test_the_answers_alone_give_chance(alternatives: str, reader: str) -> None:
    n, choose = 3_000, random.Random(0)
    puzzles = drawn(DSPRITES, alternatives, n)
    rows = zip(puzzles.answers.tolist(), puzzles.position.tolist(), strict=True)
    solved = sum(blind_guess(CONTEXT_BLIND[reader], answers, choose) == position for answers, position in rows)
    assert abs(solved / n - 1 / 6) < 4 * (5 / 36 / n) ** 0.5


def test_a_reader_of_published_answers_solves_more_than_chance() -> None:
    """The published way to draw wrong answers leaves the correct one as the odd one out, which is why we deviate.

    The factors are those of the paper's dSprites. The share is stated in docs/guides/reasoning.md.
    """
    n, choose, solved = 4_000, random.Random(0), 0
    for _ in range(n):
        active = choose.sample(range(6), choose.choice((1, 2, 3)))
        answers = published_answers((5, 6, 3, 3, 4, 4), active, choose)
        solved += blind_guess(CONTEXT_BLIND["most factors with a value of its own"], answers, choose) == 0
    assert solved / n == pytest.approx(0.235, abs=0.025)


def test_hard_answers_form_a_grid_over_two_active_factors() -> None:
    puzzles = drawn(SHAPES3D, "hard", 200, (2, 3))
    for answers, active in zip(puzzles.answers.tolist(), puzzles.active.tolist(), strict=True):
        values = [{answer[f] for answer in answers} for f in range(6) if active[f]]
        assert sorted(map(len, values))[-2:] == [2, 3]
        assert len({tuple(answer[f] for f in range(6) if active[f]) for answer in answers}) == 6


def test_sets_that_identify_an_answer_equal_their_loops() -> None:
    answers = torch.randint(3, (20, 6, 4), generator=torch.Generator().manual_seed(0))
    sets = factor_sets(torch.tensor([3, 3, 1, 3]), 2)
    assert [row.nonzero()[:, 0].tolist() for row in sets] == [list(s) for s in itertools.combinations((0, 1, 3), 2)]
    found = identifying_sets(answers, sets)
    for n, i, s in itertools.product(range(20), range(6), range(3)):
        names = sets[s].nonzero()[:, 0].tolist()
        others = [answers[n, j, names].tolist() for j in range(6) if j != i]
        assert found[n, i, s] == (answers[n, i, names].tolist() not in others)


def test_the_same_seed_draws_the_same_puzzles() -> None:
    for first, second in zip(drawn(DSPRITES, "easy", 50), drawn(DSPRITES, "easy", 50), strict=True):
        assert torch.equal(first, second)


@pytest.mark.parametrize(
    ("sizes", "alternatives", "relations", "message"),
    [
        ((4, 1, 4), "easy", (3,), "needs 3 factors with at least 2 values. Got 2 such factors"),
        ((2, 2), "easy", (1,), "enough values for six different answers. Got factors with 2, 2 values"),
        ((2, 2, 2), "hard", (2,), "Hard alternatives need a factor with at least 3 values"),
    ],
)
def test_unsuitable_factors_are_rejected(
    sizes: tuple[int, ...], alternatives: str, relations: tuple[int, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        drawn(sizes, alternatives, 20, relations)
