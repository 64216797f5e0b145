"""How the examples of a step are drawn: functions of the data and of one run's noise, on the data's device.

Singles are an index (n,); pairs and sequences are indices (n, 2) and (n, t), with what changed between them. Nothing
waits for the device and nothing depends on values, so that a stack of runs draws under ``vmap``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError, unknown
from unbraid.noise import Noise


class Pairs(NamedTuple):
    """Two examples each, and which factors were let go between them (a new value may equal the old one)."""

    examples: Int[Tensor, "n 2"]
    changed: Bool[Tensor, "n k"]


class Drawn(NamedTuple):
    """The examples of a step, (b,), and for pairs which factors were let go between them, (b / 2, k).

    Of pairs the first half are the first examples and the second half their partners.
    """

    examples: Int[Tensor, " b"]
    changed: Bool[Tensor, "n k"] | None = None

    @classmethod
    def of(cls, pairs: Pairs) -> Drawn:
        return cls(pairs.examples.T.flatten(), pairs.changed)


def single(data: FactorData, noise: Noise, n: int) -> Int[Tensor, " n"]:
    """Independent examples, uniform over the factor grid, as in the large study: no epochs, no held-out part."""
    return data.draw(noise, n)


def pairs(data: FactorData, noise: Noise, n: int, *, k: int | None = None) -> Pairs:
    """Pairs that differ in few factors, by the dynamics of the weakly supervised study.

    Either one factor or K of them, at even odds, get a new uniform value, which may equal the old one. K is `k`, or
    uniform on 1 .. factors - 1 for each pair where `k` is None. Reference: Locatello et al. (2020), arXiv:2002.02886.
    """
    factors = _drawn(data, noise, n)
    most = len(data.sizes) - 1
    count = noise.integers(max(most, 1), n) + 1 if k is None else torch.full((n,), _within(k, data), device=data.device)
    count = torch.where(noise.integers(2, n) == 0, torch.ones_like(count), count)
    changed = _some(noise, n, count, torch.ones_like(data.grid[0], dtype=torch.bool))
    return _paired(data, factors, torch.where(changed, _drawn(data, noise, n), factors), changed)


def uniform_transitions(data: FactorData, noise: Noise, n: int) -> Pairs:
    """Pairs in which K factors, K uniform on 1 .. factors - 1, jump to another value.

    Reference: Klindt et al. (2021), arXiv:2007.10930, the "uniform" setting.
    """
    factors, sizes = _drawn(data, noise, n), data.grid[0]
    count = noise.integers(max(len(data.sizes) - 1, 1), n) + 1
    changed = _some(noise, n, count, sizes > 1)
    return _paired(data, factors, torch.where(changed, _another(noise, factors, sizes), factors), changed)


def laplace_transitions(
    data: FactorData, noise: Noise, n: int, *, rate: int | float = 1.0, held: Sequence[str] | None = None
) -> Pairs:
    r"""Pairs whose factors move a little, most of them not at all, at least one of them in every pair.

    .. math:: p(x' | x) \propto \exp(-|x' - x| \, \text{rate} / \log \text{size})

    over the values of each factor that is not held. `held` are the categorical factors unless said. Given that anything
    moves: the first factor to move is drawn, those before it stay, those after it are free; no draw is thrown away.
    Reference: Klindt et al. (2021), arXiv:2007.10930, the "Laplace" setting.
    """
    free = _free(data, held)
    factors = _drawn(data, noise, n)
    columns = list(factors.unbind(1))
    tables = {j: _laplace(data.sizes[j], rate, data.device) for j in free}
    stays = [tables[j].diagonal()[columns[j]] for j in free]
    first = _first_move(noise, torch.stack(stays, 1))
    for place, (j, stay) in enumerate(zip(free, stays, strict=True)):
        x = columns[j]
        chance = torch.where(first == place, 0.0, stay)
        new = _choose(noise, tables[j][x].scatter(1, x[:, None], chance[:, None]))
        columns[j] = torch.where(first <= place, new, x)
    after = torch.stack(columns, 1)
    return _paired(data, factors, after, after != factors)


def sharing(data: FactorData, noise: Noise, n: int, *, shared: Sequence[str]) -> Pairs:
    """Pairs that agree in the named factors and are independent in the others: the same subject, or the same pose."""
    keep = torch.zeros_like(data.grid[0], dtype=torch.bool)
    for name in shared:
        keep = keep | (torch.arange(len(data.sizes), device=data.device) == _position(data, name))
    factors = _drawn(data, noise, n)
    changed = (~keep).expand(n, -1)
    return _paired(data, factors, torch.where(changed, _drawn(data, noise, n), factors), changed)


def walk(
    data: FactorData, noise: Noise, n: int, *, length: int = 8, held: Sequence[str] | None = None
) -> Int[Tensor, "n t"]:
    """Random walks over the grid: at every step one factor, drawn anew, moves by one value, back from the ends.

    `held` are the categorical factors unless said; factors of one value never move.
    """
    sizes, place = data.grid[0], torch.arange(len(data.sizes), device=data.device)
    free = torch.stack([place == j for j in _free(data, held)]).any(0)
    factors, steps = _drawn(data, noise, n), []
    for _ in range(length):
        steps.append(data.place(factors))
        moving = _some(noise, n, torch.ones(n, dtype=torch.int64, device=data.device), free)
        step = 2 * noise.integers(2, n, len(data.sizes)) - 1
        outside = (factors + step < 0) | (factors + step >= sizes)
        factors = torch.where(moving, factors + torch.where(outside, -step, step), factors)
    return torch.stack(steps, 1)


def neighbours(data: FactorData, noise: Noise, n: int) -> Pairs:
    """Walks of two examples: one factor that is not categorical moves by one value."""
    examples = walk(data, noise, n, length=2)
    before, after = (data.unplace(column) for column in examples.unbind(1))
    return Pairs(examples, before != after)


def consecutive(data: FactorData, noise: Noise, n: int) -> Pairs:
    """A row of the data and the next one, every such pair equally often: the data are a series and need no grid.

    What changed are the labels in which the two rows differ; data without labels have none.
    """
    row = noise.integers(len(data) - 1, n)
    return Pairs(torch.stack([row, row + 1], 1), data.unplace(row) != data.unplace(row + 1))


def joint(sizes: tuple[int, int], spread: int | float, device: torch.device) -> Float[Tensor, "a b"]:
    r"""The distribution of two factors that go together.

    .. math:: p(a, b) \propto \exp(-(a - b)^2 / 2 \, \text{spread}^2)

    with both factors scaled to [0, 1]; a spread of .2 is a strong correlation, one of 10 next to none.
    Reference: Traeuble et al. (2021), arXiv:2006.07886, eq. 1.
    """
    a, b = (torch.linspace(0, 1, size, dtype=torch.float64, device=device) for size in sizes)
    weights = (-((a[:, None] - b) ** 2) / (2 * spread**2)).exp()
    return weights / weights.sum()


PAIRS: dict[str, Callable[..., Pairs]] = {
    "pairs": pairs,
    "uniform": uniform_transitions,
    "laplace": laplace_transitions,
    "sharing": sharing,
    "walk": neighbours,
    "consecutive": consecutive,
}


def _drawn(data: FactorData, noise: Noise, n: int) -> Int[Tensor, "n k"]:
    return data.unplace(data.draw(noise, n))


def _paired(data: FactorData, before: Tensor, after: Tensor, changed: Tensor) -> Pairs:
    return Pairs(torch.stack([data.place(before), data.place(after)], 1), changed)


def _some(noise: Noise, n: int, count: Int[Tensor, " n"], free: Bool[Tensor, " k"]) -> Bool[Tensor, "n k"]:
    """`count` of the free factors (or all, if there are fewer) in every row, any set of them equally likely."""
    key = torch.where(free, noise.uniform(n, len(free)), 2.0)
    rank = key.argsort(1).argsort(1)
    return (rank < count[:, None]) & free


def _another(noise: Noise, factors: Int[Tensor, "n k"], sizes: Int[Tensor, " k"]) -> Int[Tensor, "n k"]:
    """A uniform value other than the one that is there."""
    return (factors + 1 + noise.integers((sizes - 1).clamp(min=1), *factors.shape)) % sizes


def _laplace(size: int, rate: int | float, device: torch.device) -> Float[Tensor, "size size"]:
    """Rows of probabilities of the next value."""
    value = torch.arange(size, device=device)
    weights = (-(value - value[:, None]).abs() * (rate / math.log(size))).exp()
    return weights / weights.sum(1, keepdim=True)


def _first_move(noise: Noise, stay: Float[Tensor, "n k"]) -> Int[Tensor, " n"]:
    """The first of the factors to move, given that one does, when factor j stays with chance `stay`."""
    earlier = torch.cat([torch.ones_like(stay[:, :1]), stay.cumprod(1)[:, :-1]], 1)
    return _choose(noise, earlier * (1 - stay))


def _choose(noise: Noise, weights: Float[Tensor, "n m"]) -> Int[Tensor, " n"]:
    """A column for every row, with chances proportional to the weights."""
    total = weights.cumsum(1)
    return (noise.uniform(len(weights), 1) * total[:, -1:] > total[:, :-1]).sum(1)


def _free(data: FactorData, held: Sequence[str] | None) -> list[int]:
    """The factors of several values that are not held, which the categorical ones are unless said."""
    kept = [_position(data, name) for name in (data.categorical if held is None else held)]
    free = [j for j, size in enumerate(data.sizes) if j not in kept and size > 1]
    if not free:
        raise UserError(
            f"At least one factor of {data.name} must be free to move. Got all held: {', '.join(data.names)}."
        )
    return free


def _within(k: int, data: FactorData) -> int:
    if not 1 <= k <= len(data.sizes):
        raise UserError(
            f"The number k of changed factors must be 1 to {len(data.sizes)} for {data.name}. Got {k} instead."
        )
    return k


def _position(data: FactorData, name: str) -> int:
    if name not in data.names:
        raise UserError(unknown(f"factor of {data.name}", name, list(data.names)))
    return data.names.index(name)
