"""Slow versions of contrastive methods, with loops written from their formulas."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor


class Regression(NamedTuple):
    """The parameters of the Laplace log-odds: w1, w2 and b of each component, and a and m."""

    w1: list[float]
    w2: list[float]
    b: list[float]
    a: float
    m: float


def standardised(h: list[list[float]], epsilon: float) -> list[list[float]]:
    """Return each column minus its mean, divided by the square root of its variance plus epsilon."""
    n, d = len(h), len(h[0])
    means = [sum(h[i][k] for i in range(n)) / n for k in range(d)]
    variances = [sum((h[i][k] - means[k]) ** 2 for i in range(n)) / n for k in range(d)]
    return [[(h[i][k] - means[k]) / math.sqrt(variances[k] + epsilon) for k in range(d)] for i in range(n)]


def log_odds(now: list[float], before: list[float], parameters: Regression) -> float:
    """Return the log-odds r(x_t, x_{t-1}) of one pair."""
    r = parameters.m
    for k in range(len(now)):
        r -= abs(parameters.w1[k] * now[k] + parameters.w2[k] * before[k] + parameters.b[k])
        r += parameters.a * now[k] ** 2
    return r


def component_log_odds(now: list[float], before: list[float], weights: list[Tensor], biases: list[Tensor]) -> float:
    """Return the sum over components of a network with two inputs, computed unit by unit and without m."""
    total = 0.0
    for k in range(len(now)):
        values = [now[k], before[k]]
        for layer, weight in enumerate(weights):
            into, out = weight.shape[1:]
            sums = [sum(values[i] * float(weight[k, i, o]) for i in range(into)) for o in range(out)]
            last = layer == len(weights) - 1
            values = sums if last else [max(0.0, s + float(biases[layer][k, 0, o])) for o, s in enumerate(sums)]
        total += values[0]
    return total


def logistic_loss(positive: list[float], negative: list[float]) -> float:
    """Return the mean cross-entropy of matching pairs (class 1) and other pairs (class 0)."""
    losses = [-math.log(1 / (1 + math.exp(-r))) for r in positive]
    losses += [-math.log(1 - 1 / (1 + math.exp(-r))) for r in negative]
    return sum(losses) / len(losses)


def accuracy(positive: list[float], negative: list[float]) -> float:
    """Return the share of pairs that are classified correctly."""
    correct = sum(1 / (1 + math.exp(-r)) > 0.5 for r in positive) + sum(1 / (1 + math.exp(-r)) <= 0.5 for r in negative)
    return correct / (len(positive) + len(negative))
