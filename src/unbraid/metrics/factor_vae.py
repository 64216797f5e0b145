"""FactorVAE score."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int, Real

from unbraid.metrics.arrays import Codes, Factors, check_at_least
from unbraid.metrics.interventions import check_draws, interventions_by_factor, split_rows
from unbraid.metrics.labels import Continuous, as_codes_and_labels


def factor_vae(
    codes: Codes,
    factors: Factors,
    continuous: Continuous = None,
    draws: str = "disjoint",
    *,
    batch: int = 64,
    train: int = 10_000,
    test: int = 5_000,
    prune: int | float = 0.05,
    seed: int = 0,
) -> dict[str, float]:
    r"""Measure how accurately a majority vote identifies the fixed factor from the latent that varies least.

    .. math:: \frac{1}{\text{test}} \sum_t \left[ v(i_t) = j_t \right], \quad
        i_t = \arg\min_i \frac{\mathrm{Var}_t(c_i)}{\mathrm{Var}(c_i)}, \quad
        v(i) = \arg\max_j \#\{ s \in \text{train} : i_s = i, j_s = j \}

    For each vote t, a factor :math:`j_t` is fixed and `batch` rows with the same value of this factor are drawn. The
    vote goes to the latent :math:`i_t` whose variance over these rows is smallest relative to its variance over all
    rows. :math:`v(i)` is the factor that was fixed most often in the training votes for latent i.

    The score lies in [0, 1]. 1 means that the latent that varies least always tells which factor is fixed.
    Random guessing scores 1/k. 0 means that no latent is active (see `prune`).

    The arrays must hold the whole dataset and not a sample of it. Each vote draws a factor and a row, and then `batch`
    rows, with replacement, among the rows that have the same value of the factor. A row whose value occurs in no other
    row is never drawn. If fewer than `batch` rows share a value, rows are repeated. Repeated rows make the variances
    within a vote smaller, by about the same ratio for all latents, and make small variances noisier. This biases the
    scores of datasets in which few rows share a value.

    Training votes draw from one half of the rows and test votes from the other half, so no row is used for both. The
    split is random and stratified by one factor, the one with the most values. Each value of this factor that occurs at
    least 4 times therefore has rows in both halves. With ``draws="reference"``, all votes draw from all rows, as in
    published scores. With these draws, if few rows share a value of a factor, test votes repeat training votes, and
    codes without information score above 1/k.

    Continuous factors: A continuous factor is fixed within a bin: the rows of a vote fall into the same bin. There are
    10 bins with equal counts. Rows without a label for a factor are not drawn when this factor is fixed.

    Limitations: A rotated representation may still score 1, so a high score is no evidence of axis alignment. Latents
    that hold noise and duplicated latents do not lower the score. The scale of the codes matters, because a latent
    whose standard deviation is below `prune` is ignored.

    Deviations: The variances :math:`\mathrm{Var}(c_i)` are computed from all rows and not from 10,000 of them.
    `num_active_dims` is the number of active latents, whereas disentanglement_lib (the library of Locatello et al.)
    returns the number of all latents. A constant latent is never active.

    Reference: Kim and Mnih (2018), arXiv:1802.05983. Pruning and the numbers of votes follow Locatello et al. (2019),
    arXiv:1811.12359.

    Args:
        codes: Array of shape (n, d), the codes of the whole dataset, one row per example and one column per latent.
        factors: Array of shape (n, k), the factors of the same examples, one column per factor. Discrete factors are
            integers. NaN is a missing label.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        draws: "disjoint" to draw training and test votes from different halves of the rows, or "reference" to draw both
            from all rows.
        batch: Number of rows per vote.
        train: Number of votes that assign a factor to each latent.
        test: Number of votes on which the assignment is tested.
        prune: Minimum standard deviation of an active latent, in units of the codes.
        seed: Random seed for the draws.

    Returns:
        `eval_accuracy`, the score; `train_accuracy`, the accuracy on the training votes; and `num_active_dims`, the
        number of active latents.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, if a factor is constant, or if there is a factor for which more than
            half of the rows have a value that occurs in no other row.

    Example:
        >>> factors = np.indices((3, 4)).reshape(2, -1).T
        >>> factor_vae(factors, factors, train=100, test=50)
        {'train_accuracy': 1.0, 'eval_accuracy': 1.0, 'num_active_dims': 2.0}
    """
    check_at_least(2, batch=batch)
    check_at_least(1, train=train, test=test)
    check_at_least(0, prune=prune)
    check_draws(draws)
    table, labels = as_codes_and_labels(codes, factors, continuous)
    values, rng = labels.binned(), np.random.default_rng(seed)
    global_variances = table.var(axis=0, ddof=1)
    active = (np.sqrt(global_variances) >= prune) & (np.ptp(table, axis=0) > 0)
    if draws == "reference":
        fixed, local = intervention_variances(table, values, train + test, batch, rng)
    else:
        halves = [
            intervention_variances(table[rows], values[rows], count, batch, rng, least=0.0)
            for rows, count in zip(split_rows(values, rng), (train, test), strict=True)
        ]
        fixed, local = (np.concatenate(part) for part in zip(*halves, strict=True))
    k = values.shape[1]
    parts = slice(train), slice(train, None)
    train_votes, test_votes = (vote_counts(local[part], global_variances, fixed[part], active, k) for part in parts)
    return {
        "train_accuracy": vote_accuracy(train_votes, train_votes),
        "eval_accuracy": vote_accuracy(train_votes, test_votes),
        "num_active_dims": float(active.sum()),
    }


def intervention_variances(
    codes: Float[np.ndarray, "n d"],
    factors: Int[np.ndarray, "n k"],
    count: int,
    batch: int,
    rng: np.random.Generator,
    *,
    least: float = 0.5,
) -> tuple[Int[np.ndarray, " m"], Float[np.ndarray, "m d"]]:
    """Draw `count` factors to fix. Return these factors, and the variances of the latents while each factor is fixed.

    Each variance is computed over `batch` random rows that have the same value of the fixed factor. At least the
    fraction `least` of the labelled rows must share their value of the fixed factor with another row.

    >>> fixed, local = intervention_variances(np.eye(4), np.array([[0], [0], [1], [1]]), 5, 8, np.random.default_rng(0))
    >>> fixed.tolist(), local.shape
    ([0, 0, 0, 0, 0], (5, 4))
    """
    from unbraid.metrics.row_statistics import row_variances

    table, fixed = np.ascontiguousarray(codes), rng.integers(factors.shape[1], size=count)
    rows = rng.integers(len(codes), size=count)
    local = np.empty((count, codes.shape[1]))
    for groups, draws in interventions_by_factor(factors, fixed, least):
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
    """Count how often each latent varied least while each of k factors was fixed. Inactive latents get no votes.

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
    """Return the fraction of test votes that go to a latent whose assigned factor is the fixed one.

    Each latent is assigned the factor with the most training votes for it. Without test votes, the result is 0.

    >>> vote_accuracy(np.array([[9, 1], [0, 5]]), np.array([[3, 0], [1, 4]]))
    0.875
    """
    correct = test[train.argmax(axis=0), np.arange(test.shape[1])]
    return float(correct.sum() / max(1, test.sum()))
