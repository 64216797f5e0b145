"""The Z-max-var score with loops over votes."""

from __future__ import annotations

import random
from collections import Counter
from statistics import variance

from oracles.metrics import Rows, column


def most_varying_code(codes: Rows, factors: Rows, varied: int, batch: int, draw: random.Random) -> int:
    """Return the code that varies most over rows that differ in one factor only, relative to its variance."""
    first = draw.choice(factors)
    same = [
        row
        for row, labels in zip(codes, factors, strict=True)
        if all(a == b for j, (a, b) in enumerate(zip(labels, first, strict=True)) if j != varied)
    ]
    rows = [draw.choice(same) for _ in range(batch)]
    return max(range(len(codes[0])), key=lambda i: variance(column(rows, i)) / variance(column(codes, i)))


def z_max_var(codes: Rows, factors: Rows, batch: int, train: int, test: int, seed: int = 0) -> float:
    """Return the accuracy of the majority vote, with independent draws."""
    draw, k = random.Random(seed), len(factors[0])
    pairs = []
    for _ in range(train + test):
        varied = draw.randrange(k)
        pairs.append((most_varying_code(codes, factors, varied, batch, draw), varied))
    counts = Counter(pairs[:train])
    assigned = {i: max(range(k), key=lambda j: counts[i, j]) for i in range(len(codes[0]))}
    return sum(assigned[i] == varied for i, varied in pairs[train:]) / test
