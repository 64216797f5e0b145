"""Slow loops for the estimators of the methods, written from the sums in the papers."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def normal_density(z: float, mean: float, logvar: float) -> float:
    """Return the density of a normal distribution."""
    return math.exp(-((z - mean) ** 2) / (2 * math.exp(logvar))) / math.sqrt(2 * math.pi * math.exp(logvar))


def total_correlation(mean: Tensor, logvar: Tensor, z: Tensor, weight: list[list[float]]) -> float:
    """Return the mean of log q(z) - sum_k log q(z_k), both mixtures over the batch with the given weights."""
    b, d = mean.shape
    total = 0.0
    for i in range(b):
        dens = [
            [normal_density(float(z[i, k]), float(mean[j, k]), float(logvar[j, k])) for k in range(d)] for j in range(b)
        ]
        joint = math.log(sum(weight[i][j] * math.prod(dens[j]) for j in range(b)))
        total += joint - sum(math.log(sum(weight[i][j] * dens[j][k] for j in range(b))) for k in range(d))
    return total / b


def weighted_tc(mean: Tensor, logvar: Tensor, z: Tensor, n: int) -> float:
    """Return the estimate with weight 1 / (B N) for every example of the batch."""
    b = len(mean)
    return total_correlation(mean, logvar, z, [[1 / (b * n)] * b for _ in range(b)])


def stratified_tc(mean: Tensor, logvar: Tensor, z: Tensor, n: int) -> float:
    """Return the estimate with 1 / N for the example itself, (N - M) / (N M) for the next, 1 / M for the rest."""
    b = len(mean)
    m = b - 1
    weight = [[1 / m] * b for _ in range(b)]
    for i in range(b):
        weight[i][i] = 1 / n
        weight[i][(i + 1) % b] = (n - m) / (n * m)
    return total_correlation(mean, logvar, z, weight)


def covariance(x: Tensor) -> Tensor:
    """Return E[x x'] - E[x] E[x]', entry by entry."""
    b, d = x.shape
    rows = [[sum(float(x[i, a] * x[i, c]) for i in range(b)) / b - float(x[:, a].mean() * x[:, c].mean())
             for c in range(d)] for a in range(d)]  # fmt: skip
    return torch.tensor(rows, dtype=x.dtype)
