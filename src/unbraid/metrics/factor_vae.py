"""FactorVAE score."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int, Real

from unbraid.metrics.arrays import Codes, Factors, at_least, labelled
from unbraid.metrics.interventions import fixed_factors


def factor_vae(
    codes: Codes,
    factors: Factors,
    *,
    batch: int = 64,
    train: int = 10_000,
    test: int = 5_000,
    prune: int | float = 0.05,
    seed: int = 0,
) -> dict[str, float]:
    r"""How often the code that varies least while one factor is held fixed names that factor.

    .. math:: \frac{1}{\text{test}} \sum_t \left[ v(i_t) = j_t \right], \quad
        i_t = \arg\min_i \frac{\mathrm{Var}_t(c_i)}{\mathrm{Var}(c_i)}, \quad
        v(i) = \arg\max_j \#\{ s \in \text{train} : i_s = i, j_s = j \}

    1/k: chance. 1: for every factor there is a code that it alone fixes. 0: no code is active.

    Codes and factors are a whole table. A vote draws a factor :math:`j_t`, a row, and `batch` rows (with replacement)
    that share that row's value of the factor. Where fewer than `batch` rows share a value, repeated rows shrink all
    local variances alike and make small ones noisier: a bias to remember for sparse tables. Rows whose value no other
    row has are left out; where that is more than half of the rows for some factor, the table is refused with the number
    of rows and values that could be drawn. `prune` is an absolute standard deviation: codes below it never win.

    Beware: a rotated code may still reach 1, so a high score is no evidence of axis alignment; noise and duplicated
    codes cost nothing; scaling matters, since a squeezed code (standard deviation below `prune`) is ignored.

    Deviations: global variances come from the whole table, not from 10,000 points of it; `num_active_dims` is the
    number of codes kept, where the reference code returns the number of all codes; a constant is never kept.

    Reference: Kim and Mnih (2018), arXiv:1802.05983; pruning and sizes as in Locatello et al. (2019), arXiv:1811.12359.

    >>> factors = np.indices((3, 4)).reshape(2, -1).T
    >>> factor_vae(factors, factors, train=100, test=50)
    {'train_accuracy': 1.0, 'eval_accuracy': 1.0, 'num_active_dims': 2.0}
    """
    at_least(2, batch=batch)
    at_least(1, train=train, test=test)
    at_least(0, prune=prune)
    table, values = labelled(codes, factors)
    spread = table.var(axis=0, ddof=1)
    active = (np.sqrt(spread) >= prune) & (np.ptp(table, axis=0) > 0)
    fixed, local = interventions(table, values, train + test, batch, np.random.default_rng(seed))
    k = values.shape[1]
    learnt, held = (votes(local[part], spread, fixed[part], active, k) for part in (slice(train), slice(train, None)))
    return {
        "train_accuracy": accuracy(learnt, learnt),
        "eval_accuracy": accuracy(learnt, held),
        "num_active_dims": float(active.sum()),
    }


def interventions(
    codes: Float[np.ndarray, "n d"], factors: Int[np.ndarray, "n k"], count: int, batch: int, rng: np.random.Generator
) -> tuple[Int[np.ndarray, " m"], Float[np.ndarray, "m d"]]:
    """Draw `count` factors to hold fixed, and the variances of the codes of `batch` rows that share a value of it.

    >>> fixed, local = interventions(np.eye(4), np.array([[0], [0], [1], [1]]), 5, 8, np.random.default_rng(0))
    >>> fixed.tolist(), local.shape
    ([0, 0, 0, 0, 0], (5, 4))
    """
    from unbraid.metrics.gather import variances

    table, fixed = np.ascontiguousarray(codes), rng.integers(factors.shape[1], size=count)
    rows = rng.integers(len(codes), size=count)
    local = np.empty((count, codes.shape[1]))
    for groups, mine in fixed_factors(factors, fixed):
        drawn = groups.mates(groups.settled(rows[mine], rng), batch, rng)
        local[mine] = variances(table, drawn)
    return fixed, local


def votes(
    local_variances: Real[np.ndarray, "m d"],
    global_variances: Real[np.ndarray, " d"],
    factor: Int[np.ndarray, " m"],
    active: Bool[np.ndarray, " d"],
    k: int,
) -> Int[np.ndarray, "k d"]:
    r"""How often each code varied least while each of k factors was held fixed; inactive codes get no vote.

    >>> votes(np.array([[0.1, 1.0], [2.0, 0.1]]), np.ones(2), np.array([0, 1]), np.array([True, True]), 2).tolist()
    [[1, 0], [0, 1]]
    """
    counts = np.zeros((k, len(active)), dtype=np.int64)
    if active.any():
        ratios = np.full(local_variances.shape, np.inf)
        ratios[:, active] = local_variances[:, active] / global_variances[active]
        np.add.at(counts, (factor, ratios.argmin(axis=1)), 1)
    return counts


def accuracy(learnt: Int[np.ndarray, "k d"], held: Int[np.ndarray, "k d"]) -> float:
    """Share of the held votes that name the factor most often learnt for their code; 0 without votes.

    >>> accuracy(np.array([[9, 1], [0, 5]]), np.array([[3, 0], [1, 4]]))
    0.875
    """
    right = held[learnt.argmax(axis=0), np.arange(held.shape[1])]
    return float(right.sum() / max(1, held.sum()))
