"""Z-max-var score: whether the latent that varies most identifies the only factor that varies."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from unbraid.metrics.arrays import Codes, Factors, check_at_least, input_error
from unbraid.metrics.factor_vae import vote_accuracy, vote_counts
from unbraid.metrics.interventions import CHUNK, check_draws, group_rows, split_rows
from unbraid.metrics.labels import Continuous, as_codes_and_labels
from unbraid.metrics.settings import count_values_by_setting


def z_max_var(
    codes: Codes,
    factors: Factors,
    continuous: Continuous = None,
    draws: str = "disjoint",
    *,
    batch: int = 64,
    train: int = 800,
    test: int = 800,
    prune: int | float = 0.05,
    seed: int = 0,
) -> dict[str, float]:
    r"""Measure how accurately the latent that varies most identifies, by majority vote, the only factor that varies.

    .. math:: \frac{1}{\text{test}} \sum_t \left[ v(i_t) = j_t \right], \quad
        i_t = \arg\max_i \frac{\mathrm{Var}_t(c_i)}{\mathrm{Var}(c_i)}, \quad
        v(i) = \arg\max_j \#\{ s \in \text{train} : i_s = i, j_s = j \}

    For each vote t, a factor :math:`j_t` is drawn, and `batch` rows are drawn that have the same values of all other
    factors. The vote goes to the latent :math:`i_t` whose variance over these rows is largest relative to its variance
    over all rows. :math:`v(i)` is the factor that varied most often in the training votes for latent i.

    The score lies in [0, 1]. 1 means that for every factor there is a latent that varies most if and only if this
    factor varies. Random guessing scores 1/k. 0 means that no latent is active.

    The arrays must hold the whole dataset and not a sample of it. A combination of values of the other factors is used
    if at least half of the values of factor :math:`j_t` occur with it. If a combination has fewer than `batch` rows,
    rows are repeated. Training votes draw from one half of the rows and test votes from the other half, so no row is
    used for both. In each half, only combinations with at least two values of factor :math:`j_t` are used. With
    ``draws="reference"``, all votes draw from all rows.

    Continuous factors: A continuous factor is sorted into 10 bins with equal counts. The other factors are fixed within
    their bins. Only rows that have a label for every factor are used.

    Limitations: A latent that holds noise varies in every batch, so it gets votes for all factors and lowers the score.
    A rotated representation may score high, because the latent that varies most may still identify the factor. The
    score needs rows that differ in one factor only. Tables with more than three random continuous factors rarely hold
    such rows.

    Deviations: The variances :math:`\mathrm{Var}(c_i)` are computed from all rows. The score is the accuracy, as in the
    paper. The implementation of Carbonneau et al. (2022), arXiv:2012.09276, returns (accuracy - 1/k) / (1 - 1/k). It
    draws batches of 200 rows and also uses combinations with only 2 rows. Its numbers of votes are the defaults here.

    Reference: Kim et al. (2019), arXiv:1902.01568. Latents are active under the same condition as in `factor_vae`.

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
            integers and not declared continuous, if a factor is constant, if there are fewer than 2 factors, or if
            some factor does not vary enough in any combination of values of the other factors.

    Example:
        >>> factors = np.indices((3, 4)).reshape(2, -1).T
        >>> z_max_var(factors, factors, train=100, test=50)
        {'train_accuracy': 1.0, 'eval_accuracy': 1.0, 'num_active_dims': 2.0}
    """
    check_at_least(2, batch=batch)
    check_at_least(1, train=train, test=test)
    check_at_least(0, prune=prune)
    check_draws(draws)
    table, labels = as_codes_and_labels(codes, factors, continuous, min_factors=2)
    complete, rng = labels.require_complete_rows(), np.random.default_rng(seed)
    table, values = np.ascontiguousarray(table[complete]), labels.binned()[complete]
    variances, k = table.var(axis=0, ddof=1), values.shape[1]
    active = (np.sqrt(variances) >= prune) & (np.ptp(table, axis=0) > 0)
    counts = np.zeros((2, k, table.shape[1]), dtype=np.int64)
    votes = [rng.multinomial(total, np.full(k, 1 / k)) for total in (train, test)]
    every_row = np.arange(len(values))
    halves = split_rows(values, rng) if draws == "disjoint" else (every_row, every_row)
    for j in range(k):
        for part, rows in enumerate(_rows_by_part(values, j, halves)):
            local = _variances_while_one_factor_varies(table, values, j, rows, int(votes[part][j]), batch, rng)
            # `vote_counts` finds the smallest variance. With negated variances, it finds the largest one.
            counts[part] += vote_counts(-local, variances, np.full(len(local), j), active, k)
    return {
        "train_accuracy": vote_accuracy(counts[0], counts[0]),
        "eval_accuracy": vote_accuracy(counts[0], counts[1]),
        "num_active_dims": float(active.sum()),
    }


def _rows_by_part(
    values: Int[np.ndarray, "n k"], j: int, halves: tuple[Int[np.ndarray, " a"], Int[np.ndarray, " b"]]
) -> list[Int[np.ndarray, " m"]]:
    """Return, for each half, the rows from which batches can be drawn in which only factor j varies."""
    setting, counts = count_values_by_setting(values, j)
    usable = (2 * counts >= len(np.unique(values[:, j])))[setting]
    parts = []
    for half in halves:
        rows = half[usable[half]]
        if len(rows):
            own_setting, own_counts = count_values_by_setting(values[rows], j)
            rows = rows[own_counts[own_setting] > 1]
        if not len(rows):
            rule = f"Factor column {j} must vary alone, over half of its values, in some combination of the others."
            got = f"{len(counts)} combinations, of which none suffices for training or for evaluation,"
            raise input_error(rule, got, "Pass the whole table, or drop that factor.")
        parts.append(rows)
    return parts


def _variances_while_one_factor_varies(
    codes: Float[np.ndarray, "n d"],
    values: Int[np.ndarray, "n k"],
    j: int,
    rows: Int[np.ndarray, " m"],
    count: int,
    batch: int,
    rng: np.random.Generator,
) -> Float[np.ndarray, "count d"]:
    """Draw `count` batches of the given rows in which only factor j varies, and return the variances of the latents."""
    from unbraid.metrics.row_statistics import row_variances

    groups = group_rows(count_values_by_setting(values[rows], j)[0], j, least=0.0)
    first, parts = rng.integers(len(rows), size=count), []
    for i in range(0, count, CHUNK):
        drawn = groups.draw_from_same_group(first[i : i + CHUNK], batch, rng)
        parts.append(row_variances(codes, rows[drawn]))
    return np.concatenate([np.empty((0, codes.shape[1])), *parts])
