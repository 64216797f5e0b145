"""Labels as an imprecise annotator would give them: permuted, noisy, coarse or partial.

Labels are integers from 0, with one column per factor. Missing labels are -1 and stay missing.

Reference: Locatello et al. (2020), "Disentangling factors of variations using few labels", arXiv:1905.01258, section 5.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from unbraid.accel.adam import Hyper
from unbraid.noise import Noise

Labels = Int[Tensor, "n k"]


def permuted_labels(labels: Labels, sizes: Sequence[int], noise: Noise) -> Labels:
    """Rename the values of each factor by a random permutation, so that the order of the labels has no meaning.

    >>> labels = torch.tensor([[0], [1], [2], [0], [-1]])
    >>> permuted = permuted_labels(labels, [3], Noise(torch.tensor(0)))
    >>> sorted(permuted[:3, 0].tolist()), bool(permuted[3] == permuted[0]), int(permuted[4])
    ([0, 1, 2], True, -1)
    """
    columns = []
    for column, size in zip(labels.unbind(1), sizes, strict=True):
        renamed = noise.uniform(size).argsort()[column.clamp(min=0)]
        columns.append(torch.where(column < 0, column, renamed))
    return torch.stack(columns, 1)


def noisy_labels(labels: Labels, sizes: Int[Tensor, " k"], probability: Hyper, noise: Noise) -> Labels:
    """Replace each label, with the given probability, by a random value of its factor. It may equal the old value.

    >>> labels = noisy_labels(torch.zeros(10_000, 1, dtype=torch.int64), torch.tensor([4]), 0.4, Noise(torch.tensor(0)))
    >>> round(float((labels != 0).float().mean()), 1)
    0.3
    """
    replaced = noise.uniform(*labels.shape) < probability
    random = noise.integers(sizes, *labels.shape)
    return torch.where(replaced & (labels >= 0), random, labels)


def coarse_labels(labels: Labels, sizes: Int[Tensor, " k"], bins: int) -> Labels:
    """Return labels with at most `bins` values per factor.

    If a factor has more values, consecutive values are merged into `bins` bins of nearly equal size.

    >>> coarse_labels(torch.tensor([[0, 1], [4, 0], [9, 2], [-1, 1]]), torch.tensor([10, 3]), 5).tolist()
    [[0, 1], [2, 0], [4, 2], [-1, 1]]
    """
    binned = labels * bins // sizes
    return torch.where((sizes > bins) & (labels >= 0), binned, labels)


def partial_labels(labels: Labels, observed: int, noise: Noise) -> Labels:
    """Keep the labels of `observed` random factors. The labels of the other factors become missing in all examples.

    >>> labels = partial_labels(torch.zeros(2, 5, dtype=torch.int64), 2, Noise(torch.tensor(0)))
    >>> (labels >= 0).sum(1).tolist()
    [2, 2]
    """
    rank = noise.uniform(labels.shape[1]).argsort().argsort()
    return torch.where(rank < observed, labels, -1)
