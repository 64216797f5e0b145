"""Similarities of codes by plain loops over pairs and tuples of examples."""

from __future__ import annotations

import itertools
import math

Table = list[list[float]]


def kernel(codes: Table) -> Table:
    """Return the inner product of each pair of rows."""
    return [[sum(x * y for x, y in zip(a, b, strict=True)) for b in codes] for a in codes]


def centred_hsic(k: Table, m: Table) -> float:
    """Return the sum of the products of two kernels after the means of rows and columns are subtracted."""
    n = len(k)

    def centred(table: Table) -> Table:
        rows = [sum(row) / n for row in table]
        total = sum(rows) / n
        return [[table[i][j] - rows[i] - rows[j] + total for j in range(n)] for i in range(n)]

    a, b = centred(k), centred(m)
    return sum(a[i][j] * b[i][j] for i in range(n) for j in range(n))


def unbiased_hsic(k: Table, m: Table) -> float:
    """Return the mean over all tuples of different examples, which is the definition of the unbiased estimator."""
    n = len(k)

    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    pairs = mean([k[i][j] * m[i][j] for i, j in itertools.permutations(range(n), 2)])
    triples = mean([k[i][j] * m[i][q] for i, j, q in itertools.permutations(range(n), 3)])
    quadruples = mean([k[i][j] * m[q][r] for i, j, q, r in itertools.permutations(range(n), 4)])
    return pairs - 2 * triples + quadruples


def cka(a: Table, b: Table) -> float:
    """Return linear CKA from centred kernels."""
    k, m = kernel(a), kernel(b)
    return centred_hsic(k, m) / math.sqrt(centred_hsic(k, k) * centred_hsic(m, m))


def debiased_cka(a: Table, b: Table) -> float:
    """Return linear CKA from unbiased estimates."""
    k, m = kernel(a), kernel(b)
    return unbiased_hsic(k, m) / math.sqrt(unbiased_hsic(k, k) * unbiased_hsic(m, m))
