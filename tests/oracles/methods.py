"""Slow literal loops for the estimators of the methods, written from the papers' sums."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def density(z: float, mean: float, logvar: float) -> float:
    """A normal density."""
    return math.exp(-((z - mean) ** 2) / (2 * math.exp(logvar))) / math.sqrt(2 * math.pi * math.exp(logvar))


def tc(mean: Tensor, logvar: Tensor, z: Tensor, weight: list[list[float]]) -> float:
    """Mean of log q(z) - sum_k log q(z_k), both mixtures over the batch with given weights."""
    b, d = mean.shape
    total = 0.0
    for i in range(b):
        dens = [[density(float(z[i, k]), float(mean[j, k]), float(logvar[j, k])) for k in range(d)] for j in range(b)]
        joint = math.log(sum(weight[i][j] * math.prod(dens[j]) for j in range(b)))
        total += joint - sum(math.log(sum(weight[i][j] * dens[j][k] for j in range(b))) for k in range(d))
    return total / b


def weighted_tc(mean: Tensor, logvar: Tensor, z: Tensor, n: int) -> float:
    """Every example of the batch with weight 1 / (B N)."""
    b = len(mean)
    return tc(mean, logvar, z, [[1 / (b * n)] * b for _ in range(b)])


def stratified_tc(mean: Tensor, logvar: Tensor, z: Tensor, n: int) -> float:
    """1 / N for the example itself, (N - M) / (N M) for its successor, 1 / M for the rest."""
    b = len(mean)
    m = b - 1
    weight = [[1 / m] * b for _ in range(b)]
    for i in range(b):
        weight[i][i] = 1 / n
        weight[i][(i + 1) % b] = (n - m) / (n * m)
    return tc(mean, logvar, z, weight)


def covariance(x: Tensor) -> Tensor:
    """E[x x'] - E[x] E[x]', entry by entry."""
    b, d = x.shape
    rows = [[sum(float(x[i, a] * x[i, c]) for i in range(b)) / b - float(x[:, a].mean() * x[:, c].mean())
             for c in range(d)] for a in range(d)]  # fmt: skip
    return torch.tensor(rows, dtype=x.dtype)
