"""Functions that draw the examples of a training step.

Single examples are indices of shape (n,), and sequences are indices of shape (n, t). Pairs are indices of shape (n, 2)
together with the factors that changed. If factors of the data are correlated (the option correlate), only the first
examples of pairs have their distribution: factors change without regard to the others.

Everything is computed on the device of the data. No function waits for the device or branches on values, because runs
that are trained together (a stack) draw their examples under ``vmap``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unbraid.data.dataset import FactorData, factor_index
from unbraid.data.samplers import SubsetSampler
from unbraid.errors import UserError
from unbraid.noise import Noise


class Pairs(NamedTuple):
    """Pairs of examples that differ in some factors.

    Attributes:
        examples: Indices of the two examples of each pair.
        changed: Whether each factor was drawn again for the second example. The new value may equal the old one.
    """

    examples: Int[Tensor, "n 2"]
    changed: Bool[Tensor, "n k"]


class DrawnExamples(NamedTuple):
    """The examples of a training step.

    Attributes:
        examples: Indices of the examples. For pairs, the first half contains the first example of each pair, and the
            second half contains the second example of each pair.
        changed: For pairs, whether each factor was drawn again for the second example, of shape (b / 2, k). None for
            single examples.
        labels: Labels for methods that learn from labels, in a form that the method chooses. None for other methods.
        drawn_groups: The number of groups of examples that belong together, such as triplets. None for single examples,
            for pairs, and for examples with one row of labels per group.
    """

    examples: Int[Tensor, " b"]
    changed: Bool[Tensor, "n k"] | None = None
    labels: Tensor | None = None
    drawn_groups: int | None = None

    @property
    def groups(self) -> int:
        """The number of groups of examples that belong together: pairs, triplets, rows of labels, or single examples.

        The batch consists of blocks with one example of each group.
        """
        if self.drawn_groups is not None:
            return self.drawn_groups
        rows = next((rows for rows in (self.changed, self.labels) if rows is not None), self.examples)
        return len(rows)

    @classmethod
    def from_pairs(cls, pairs: Pairs) -> DrawnExamples:
        """Combine n pairs into one batch of 2 n examples."""
        return cls(pairs.examples.T.flatten(), pairs.changed)


def pairs(data: FactorData, noise: Noise, n: int, *, k: int | None = None) -> Pairs:
    """Draw pairs that differ in few factors, as in the study of weakly supervised methods by Locatello et al.

    With probability 1/2, one factor is drawn again. Otherwise, K factors are drawn again. A new value has the
    distribution of the factor in the data, which is uniform without the option correlate, and may equal the old one.

    Args:
        data: A dataset with a full grid of factors.
        noise: Source of randomness.
        n: Number of pairs.
        k: The number K. If it is None, K is drawn for each pair, uniformly from 1 .. (number of factors) - 1.

    Returns:
        The pairs.

    Raises:
        UserError: If `k` is not between 1 and the number of factors.

    Reference: Locatello et al. (2020), arXiv:2002.02886.
    """
    factors = draw_factors(data, noise, n)
    if k is None:
        count = noise.integers(max(len(data.sizes) - 1, 1), n) + 1
    else:
        count = torch.full((n,), _check_k(k, data), device=data.device)
    count = torch.where(noise.integers(2, n) == 0, torch.ones_like(count), count)
    changed = _choose_factors(noise, n, count, torch.ones_like(data.grid[0], dtype=torch.bool))
    return _make_pairs(data, factors, torch.where(changed, draw_factors(data, noise, n), factors), changed)


def uniform_transitions(data: FactorData, noise: Noise, n: int) -> Pairs:
    """Draw pairs in which K factors change. A new value is uniform over all values except the old one.

    K is drawn for each pair, uniformly from 1 .. (number of factors) - 1.

    Args:
        data: A dataset with a full grid of factors.
        noise: Source of randomness.
        n: Number of pairs.

    Returns:
        The pairs.

    Reference: Klindt et al. (2021), arXiv:2007.10930, the "uniform" setting.
    """
    factors, sizes = draw_factors(data, noise, n), data.grid[0]
    count = noise.integers(max(len(data.sizes) - 1, 1), n) + 1
    changed = _choose_factors(noise, n, count, sizes > 1)
    return _make_pairs(data, factors, torch.where(changed, _draw_other_values(noise, factors, sizes), factors), changed)


def laplace_transitions(
    data: FactorData, noise: Noise, n: int, *, rate: int | float = 1.0, fixed: Sequence[str] | None = None
) -> Pairs:
    r"""Draw pairs whose factors change by small amounts. In every pair, at least one factor changes.

    The new value x' of each factor that is not fixed has the distribution

    .. math:: p(x' | x) \propto \exp(-|x' - x| \, \text{rate} / \log \text{size})

    conditioned on a change of at least one factor. Here x is the old value, and size is the number of values of the
    factor. To avoid rejection sampling, the function first draws which factor is the first one that changes. Factors
    before it do not change, and factors after it are drawn without the condition. The authors' code differs in the rare
    pairs in which no factor would change: it chooses one of the free factors uniformly, and only this factor changes.

    The authors' code instead draws all new values without the condition. If no factor has changed, it changes one
    factor, which is chosen at random. This concerns 0.2 % of the pairs of dSprites, 2 % of SmallNORB and 9 % of Cars3D.

    Args:
        data: A dataset with a full grid of factors.
        noise: Source of randomness.
        n: Number of pairs.
        rate: Rate of the Laplace distribution. A larger rate gives smaller changes.
        fixed: Names of the factors that never change. None means the categorical factors.

    Returns:
        The pairs.

    Raises:
        UserError: If no factor can change, or if a name is unknown.

    Reference: Klindt et al. (2021), arXiv:2007.10930, the "Laplace" setting.
    """
    free = _free_factors(data, fixed)
    factors = draw_factors(data, noise, n)
    columns = list(factors.unbind(1))
    tables = {j: _laplace_probabilities(data.sizes[j], rate, data.device) for j in free}
    stay_probabilities = [tables[j].diagonal()[columns[j]] for j in free]
    first = _first_changed_factor(noise, torch.stack(stay_probabilities, 1))
    for order, (j, stay) in enumerate(zip(free, stay_probabilities, strict=True)):
        x = columns[j]
        probability = torch.where(first == order, 0.0, stay)
        new = _draw_columns(noise, tables[j][x].scatter(1, x[:, None], probability[:, None]))
        columns[j] = torch.where(first <= order, new, x)
    after = torch.stack(columns, 1)
    return _make_pairs(data, factors, after, after != factors)


def pairs_sharing(data: FactorData, noise: Noise, n: int, *, shared: Sequence[str]) -> Pairs:
    """Draw pairs that agree in some factors and are independent in the others.

    Args:
        data: A dataset with a full grid of factors.
        noise: Source of randomness.
        n: Number of pairs.
        shared: Names of the factors in which the two examples of a pair agree.

    Returns:
        The pairs.

    Raises:
        UserError: If a name is unknown.
    """
    keep = torch.zeros_like(data.grid[0], dtype=torch.bool)
    for name in shared:
        keep = keep | (torch.arange(len(data.sizes), device=data.device) == factor_index(data, name))
    factors = draw_factors(data, noise, n)
    changed = (~keep).expand(n, -1)
    return _make_pairs(data, factors, torch.where(changed, draw_factors(data, noise, n), factors), changed)


def random_walks(
    data: FactorData, noise: Noise, n: int, *, length: int = 8, fixed: Sequence[str] | None = None
) -> Int[Tensor, "n t"]:
    """Draw random walks over the grid. In each step, one random factor changes by one.

    A factor that would leave its range changes in the opposite direction instead.

    Args:
        data: A dataset with a full grid of factors.
        noise: Source of randomness.
        n: Number of walks.
        length: Number of examples in each walk.
        fixed: Names of the factors that never change. None means the categorical factors.

    Returns:
        Indices, int64 of shape (n, length).

    Raises:
        UserError: If no factor can change, or if a name is unknown.
    """
    sizes, position = data.grid[0], torch.arange(len(data.sizes), device=data.device)
    free = torch.stack([position == j for j in _free_factors(data, fixed)]).any(0)
    factors, steps = draw_factors(data, noise, n), []
    for _ in range(length):
        steps.append(data.index_of(factors))
        moving = _choose_factors(noise, n, torch.ones(n, dtype=torch.int64, device=data.device), free)
        step = 2 * noise.integers(2, n, len(data.sizes)) - 1
        outside = (factors + step < 0) | (factors + step >= sizes)
        factors = torch.where(moving, factors + torch.where(outside, -step, step), factors)
    return torch.stack(steps, 1)


def neighbour_pairs(data: FactorData, noise: Noise, n: int) -> Pairs:
    """Draw pairs in which one factor changes by one. Categorical factors never change."""
    examples = random_walks(data, noise, n, length=2)
    before, after = (data.factors_at(column) for column in examples.unbind(1))
    return Pairs(examples, before != after)


def consecutive_pairs(data: FactorData, noise: Noise, n: int) -> Pairs:
    """Draw pairs of examples that are successive in time. The data need not be a full grid.

    The dataset determines which examples these are (`FactorData.draw_consecutive`). By default, a pair is a row of the
    data and the next row, and all rows are equally likely. A factor counts as changed if its label differs between the
    two examples.
    """
    examples = data.draw_consecutive(noise, n)
    before, after = (data.factors_at(column) for column in examples.unbind(1))
    return Pairs(examples, before != after)


def factor_distances(data: FactorData, a: Int[Tensor, " n"], b: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    r"""Return the distance between the factors of examples, :math:`\sum_j |v_j - v'_j| / (\text{size}_j - 1)`.

    Here :math:`v_j` and :math:`v'_j` are the values of factor j in the two examples, and :math:`\text{size}_j` is the
    number of its values. A categorical factor contributes 0 if both values are equal, and 1 otherwise.

    Args:
        data: A dataset with factors.
        a: Indices of n examples.
        b: Indices of n other examples.

    Returns:
        The distance between each example of `a` and the corresponding example of `b`, of shape (n,).
    """
    categorical = torch.stack([torch.full((), name in data.categorical, device=data.device) for name in data.names])
    difference = (data.factors_at(a) - data.factors_at(b)).abs()
    scaled = difference / (data.grid[0] - 1).clamp(min=1)
    return torch.where(categorical, (difference > 0).to(scaled.dtype), scaled).sum(1)


def triplets(data: FactorData, noise: Noise, n: int) -> Int[Tensor, "n 3"]:
    """Draw triplets of independent examples, ordered so that the second is nearer to the first than the third is.

    Args:
        data: A dataset with factors. It need not be a full grid.
        noise: Source of randomness.
        n: Number of triplets.

    Returns:
        Indices of the examples of each triplet. How near two examples are is measured by `factor_distances`.
    """
    anchor, one, other = data.draw(noise, 3 * n).chunk(3)
    ordered = factor_distances(data, anchor, one) <= factor_distances(data, anchor, other)
    near, far = torch.where(ordered, one, other), torch.where(ordered, other, one)
    return torch.stack([anchor, near, far], 1)


PAIRS: dict[str, Callable[..., Pairs]] = {
    "pairs": pairs,
    "uniform": uniform_transitions,
    "laplace": laplace_transitions,
    "sharing": pairs_sharing,
    "walk": neighbour_pairs,
    "consecutive": consecutive_pairs,
}


def draw_factors(data: FactorData, noise: Noise, n: int) -> Int[Tensor, "n k"]:
    """Draw the factor values of n examples, of which some are to be changed afterwards.

    Raises:
        UserError: If only a part of the examples is drawn, because changed factors could give an example outside it.
    """
    if isinstance(data.sampler, SubsetSampler):
        raise UserError(
            "Pairs and walks change factors, so all combinations of factor values must be available. Got "
            f"{data.name} instead, of which only a part is drawn. Remove the options subset and holdout."
        )
    return data.factors_at(data.draw(noise, n))


def _make_pairs(data: FactorData, before: Tensor, after: Tensor, changed: Tensor) -> Pairs:
    return Pairs(torch.stack([data.index_of(before), data.index_of(after)], 1), changed)


def _choose_factors(noise: Noise, n: int, count: Int[Tensor, " n"], free: Bool[Tensor, " k"]) -> Bool[Tensor, "n k"]:
    """Choose a random subset of the free factors in each row. All subsets of the same size are equally likely.

    The size of the subset is `count`. If there are fewer free factors than `count`, all of them are chosen.
    """
    key = torch.where(free, noise.uniform(n, len(free)), 2.0)
    rank = key.argsort(1).argsort(1)
    return (rank < count[:, None]) & free


def _draw_other_values(noise: Noise, factors: Int[Tensor, "n k"], sizes: Int[Tensor, " k"]) -> Int[Tensor, "n k"]:
    """Draw a value for each factor, uniformly from all values except the current one."""
    return (factors + 1 + noise.integers((sizes - 1).clamp(min=1), *factors.shape)) % sizes


def _laplace_probabilities(size: int, rate: int | float, device: torch.device) -> Float[Tensor, "size size"]:
    """Return the probabilities of the next value (column) given the current value (row)."""
    value = torch.arange(size, device=device)
    weights = (-(value - value[:, None]).abs() * (rate / math.log(size))).exp()
    return weights / weights.sum(1, keepdim=True)


def _first_changed_factor(noise: Noise, stay: Float[Tensor, "n k"]) -> Int[Tensor, " n"]:
    """Draw the first factor that changes, given that at least one factor changes.

    Factor j keeps its value with probability `stay[:, j]`.
    """
    earlier = torch.cat([torch.ones_like(stay[:, :1]), stay.cumprod(1)[:, :-1]], 1)
    return _draw_columns(noise, earlier * (1 - stay))


def _draw_columns(noise: Noise, weights: Float[Tensor, "n m"]) -> Int[Tensor, " n"]:
    """Draw a column index for each row, with probabilities proportional to the weights in that row."""
    total = weights.cumsum(1)
    return (noise.uniform(len(weights), 1) * total[:, -1:] > total[:, :-1]).sum(1)


def _free_factors(data: FactorData, fixed: Sequence[str] | None) -> list[int]:
    """Return the indices of the factors that have several values and are not fixed."""
    excluded = [factor_index(data, name) for name in (data.categorical if fixed is None else fixed)]
    free = [j for j, size in enumerate(data.sizes) if j not in excluded and size > 1]
    if not free:
        raise UserError(
            f"At least one factor of {data.name} must be free to change. Got only fixed factors instead: "
            f"{', '.join(data.names)}."
        )
    return free


def _check_k(k: int, data: FactorData) -> int:
    if not 1 <= k <= len(data.sizes):
        raise UserError(
            f"The number k of changed factors must be 1 to {len(data.sizes)} for {data.name}. Got {k} instead."
        )
    return k
