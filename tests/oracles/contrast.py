"""Slow literal loops for contrastive methods, written from their sums."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor


class Regression(NamedTuple):
    """The numbers of the Laplace log-odds: w1, w2 and b of every component, a and m."""

    w1: list[float]
    w2: list[float]
    b: list[float]
    a: float
    m: float


def standardised(h: list[list[float]], epsilon: float) -> list[list[float]]:
    """Every column minus its mean, over the root of its variance plus epsilon."""
    n, d = len(h), len(h[0])
    means = [sum(h[i][k] for i in range(n)) / n for k in range(d)]
    variances = [sum((h[i][k] - means[k]) ** 2 for i in range(n)) / n for k in range(d)]
    return [[(h[i][k] - means[k]) / math.sqrt(variances[k] + epsilon) for k in range(d)] for i in range(n)]


def odds(now: list[float], before: list[float], given: Regression) -> float:
    """r(x_t, x_{t-1}) of one pair."""
    r = given.m
    for k in range(len(now)):
        r -= abs(given.w1[k] * now[k] + given.w2[k] * before[k] + given.b[k])
        r += given.a * now[k] ** 2
    return r


def component_odds(now: list[float], before: list[float], weights: list[Tensor], biases: list[Tensor]) -> float:
    """The sum over components of a network of two numbers, unit by unit; m is not in it."""
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
    """Mean cross-entropy of pairs that belong together (1) and pairs that do not (0)."""
    told = [-math.log(1 / (1 + math.exp(-r))) for r in positive]
    told += [-math.log(1 - 1 / (1 + math.exp(-r))) for r in negative]
    return sum(told) / len(told)


def accuracy(positive: list[float], negative: list[float]) -> float:
    """The share of pairs whose more likely class is theirs."""
    right = sum(1 / (1 + math.exp(-r)) > 0.5 for r in positive) + sum(1 / (1 + math.exp(-r)) <= 0.5 for r in negative)
    return right / (len(positive) + len(negative))
