"""FactorVAE score."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int, Real

from unbraid.metrics.arrays import Codes, Factors, as_codes_and_factors, check_at_least
from unbraid.metrics.interventions import interventions_by_factor


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
    r"""The accuracy of a majority vote that finds the fixed factor from the code that varies least.

    .. math:: \frac{1}{\text{test}} \sum_t \left[ v(i_t) = j_t \right], \quad
        i_t = \arg\min_i \frac{\mathrm{Var}_t(c_i)}{\mathrm{Var}(c_i)}, \quad
        v(i) = \arg\max_j \#\{ s \in \text{train} : i_s = i, j_s = j \}

    The score lies in [0, 1]. 1 means that for every factor there is a code that is constant if and only if this factor
    is fixed. Chance is 1/k. 0 means that no code is active.

    The rows are a whole table. Each vote draws a factor :math:`j_t`, a row, and `batch` rows (with replacement) that
    share the value of the factor with that row. If fewer than `batch` rows share a value, repeated rows shrink all
    local variances alike and make small ones noisier; this biases scores on sparse tables. Rows with a value that no
    other row has are left out.

    Limitations: A rotated code may still reach 1, so a high score is no evidence of axis alignment. Noise codes and
    duplicated codes cost nothing. The scale of codes matters, because a code whose standard deviation is below `prune`
    is ignored.

    Deviations: Global variances are computed from the whole table and not from 10,000 points of it. `num_active_dims`
    is the number of active codes; the reference code returns the number of all codes. A constant code is never active.

    Reference: Kim and Mnih (2018), arXiv:1802.05983. Pruning and sizes follow Locatello et al. (2019),
    arXiv:1811.12359.

    Args:
        codes: Array of shape (n, d), the codes of the whole table: one row per point and one column per code dimension.
        factors: Integer array of shape (n, k), the factors of the same rows, one column per factor.
        batch: Number of rows per vote.
        train: Number of votes that assign a factor to each code.
        test: Number of votes on which the assignment is tested.
        prune: Smallest standard deviation of an active code, in units of the codes.
        seed: Seed of the draws.

    Returns:
        `eval_accuracy`, the score; `train_accuracy`, the accuracy on the training votes; and `num_active_dims`, the
        number of active codes.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers, if a factor is constant, or if for some factor more than half of the rows share their value with
            no other row.

    Example:
        >>> factors = np.indices((3, 4)).reshape(2, -1).T
        >>> factor_vae(factors, factors, train=100, test=50)
        {'train_accuracy': 1.0, 'eval_accuracy': 1.0, 'num_active_dims': 2.0}
    """
    check_at_least(2, batch=batch)
    check_at_least(1, train=train, test=test)
    check_at_least(0, prune=prune)
    table, values = as_codes_and_factors(codes, factors)
    spread = table.var(axis=0, ddof=1)
    active = (np.sqrt(spread) >= prune) & (np.ptp(table, axis=0) > 0)
    fixed, local = intervention_variances(table, values, train + test, batch, np.random.default_rng(seed))
    k = values.shape[1]
    parts = slice(train), slice(train, None)
    train_votes, test_votes = (vote_counts(local[part], spread, fixed[part], active, k) for part in parts)
    return {
        "train_accuracy": vote_accuracy(train_votes, train_votes),
        "eval_accuracy": vote_accuracy(train_votes, test_votes),
        "num_active_dims": float(active.sum()),
    }


def intervention_variances(
    codes: Float[np.ndarray, "n d"], factors: Int[np.ndarray, "n k"], count: int, batch: int, rng: np.random.Generator
) -> tuple[Int[np.ndarray, " m"], Float[np.ndarray, "m d"]]:
    """Draw `count` factors to fix, and return them with the variances of codes over `batch` rows that share a value.

    >>> fixed, local = intervention_variances(np.eye(4), np.array([[0], [0], [1], [1]]), 5, 8, np.random.default_rng(0))
    >>> fixed.tolist(), local.shape
    ([0, 0, 0, 0, 0], (5, 4))
    """
    from unbraid.metrics.row_statistics import row_variances

    table, fixed = np.ascontiguousarray(codes), rng.integers(factors.shape[1], size=count)
    rows = rng.integers(len(codes), size=count)
    local = np.empty((count, codes.shape[1]))
    for groups, draws in interventions_by_factor(factors, fixed):
        batches = groups.draw_from_same_group(groups.replace_unshared(rows[draws], rng), batch, rng)
        local[draws] = row_variances(table, batches)
    return fixed, local


def vote_counts(
    local_variances: Real[np.ndarray, "m d"],
    global_variances: Real[np.ndarray, " d"],
    factor: Int[np.ndarray, " m"],
    active: Bool[np.ndarray, " d"],
    k: int,
) -> Int[np.ndarray, "k d"]:
    """Count how often each code varied least while each of k factors was fixed; inactive codes get no vote.

    >>> local = np.array([[0.1, 1.0], [2.0, 0.1]])
    >>> vote_counts(local, np.ones(2), np.array([0, 1]), np.array([True, True]), 2).tolist()
    [[1, 0], [0, 1]]
    """
    counts = np.zeros((k, len(active)), dtype=np.int64)
    if active.any():
        ratios = np.full(local_variances.shape, np.inf)
        ratios[:, active] = local_variances[:, active] / global_variances[active]
        np.add.at(counts, (factor, ratios.argmin(axis=1)), 1)
    return counts


def vote_accuracy(train: Int[np.ndarray, "k d"], test: Int[np.ndarray, "k d"]) -> float:
    """Return the share of test votes for the factor that most training votes of the code have; 0 without votes.

    >>> vote_accuracy(np.array([[9, 1], [0, 5]]), np.array([[3, 0], [1, 4]]))
    0.875
    """
    correct = test[train.argmax(axis=0), np.arange(test.shape[1])]
    return float(correct.sum() / max(1, test.sum()))
