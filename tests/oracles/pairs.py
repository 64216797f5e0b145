"""Slow loops for the methods of pairs, written from their definitions, one number at a time."""

from __future__ import annotations

import math

Normal = tuple[float, float]  # mean and variance
Row = list[Normal]  # one per latent


def kl(p: Normal, q: Normal) -> float:
    """Return KL(p || q), the sum of p log(p / q) on a fine grid over twelve standard deviations of p."""
    (m, v), (mq, vq), steps = p, q, 20_000
    s, total = math.sqrt(v), 0.0
    for i in range(steps):
        x = m + s * (-12 + 24 * (i + 0.5) / steps)
        log_p = -((x - m) ** 2) / (2 * v) - 0.5 * math.log(2 * math.pi * v)
        log_q = -((x - mq) ** 2) / (2 * vq) - 0.5 * math.log(2 * math.pi * vq)
        total += math.exp(log_p) * (log_p - log_q) * 24 * s / steps
    return total


def laplace_cross_entropy(q: Normal, centre: float, rate: float) -> float:
    """Return the integral of -q(z) log(rate / 2 exp(-rate |z - centre|)) on a fine grid, split at its kink."""
    (m, v), steps = q, 20_000
    s = math.sqrt(v)
    kink = min(max(centre, m - 12 * s), m + 12 * s)
    total = 0.0
    for low, high in ((m - 12 * s, kink), (kink, m + 12 * s)):
        for i in range(steps):
            z = low + (high - low) * (i + 0.5) / steps
            density = math.exp(-((z - m) ** 2) / (2 * v)) / math.sqrt(2 * math.pi * v)
            total -= density * (math.log(rate / 2) - rate * abs(z - centre)) * (high - low) / steps
    return total


def over_midpoint(first: Row, second: Row) -> list[bool]:
    """Return whether twice the KL of each latent reaches the midpoint of the smallest and the largest of the pair."""
    delta = [2 * kl(p, q) for p, q in zip(first, second, strict=True)]
    return [d >= (min(delta) + max(delta)) / 2 for d in delta]


def among_largest(first: Row, second: Row, count: int) -> list[bool]:
    """Return which are the `count` latents with the largest KL."""
    delta = [kl(p, q) for p, q in zip(first, second, strict=True)]
    chosen = sorted(range(len(delta)), key=lambda j: -delta[j])[:count]
    return [j in chosen for j in range(len(delta))]


def arithmetic_mean(p: Normal, q: Normal) -> Normal:
    """Return the mean of the means and the mean of the variances."""
    return (p[0] + q[0]) / 2, (p[1] + q[1]) / 2


def precision_weighted_mean(p: Normal, q: Normal) -> Normal:
    """Return the mean of the means with the precisions as weights, and the inverse of the mean precision."""
    a, b = 1 / p[1], 1 / q[1]
    return (a * p[0] + b * q[0]) / (a + b), 1 / ((a + b) / 2)


def transition_loss(first: list[Row], second: list[Row], rate: float) -> float:
    """Return both cross-entropies of every pair, averaged over pairs, minus the entropy averaged over images."""
    cross = entropies = 0.0
    for row_1, row_2 in zip(first, second, strict=True):
        for p, q in zip(row_1, row_2, strict=True):
            cross += laplace_cross_entropy(p, q[0], rate) + laplace_cross_entropy(q, p[0], rate)
            entropies += sum(0.5 * math.log(2 * math.pi * math.e * v) for _, v in (p, q))
    return cross / len(first) - entropies / (2 * len(first))
