"""BetaVAE score."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from unbraid.metrics.arrays import Codes, Factors, at_least, labelled
from unbraid.metrics.interventions import fixed_factors


def beta_vae(
    codes: Codes, factors: Factors, *, batch: int = 64, train: int = 10_000, test: int = 5_000, seed: int = 0
) -> dict[str, float]:
    r"""How often a linear classifier tells, from how little each code changes, which factor was held fixed.

    .. math:: \frac{1}{\text{test}} \sum_t \left[ \arg\max_j \left( w_j \cdot x_t + b_j \right) = j_t \right], \quad
        x_t = \frac{1}{\text{batch}} \sum_{l} \left| c(r_{tl}) - c(r'_{tl}) \right|

    with :math:`r_{tl}, r'_{tl}` two rows that share their value of the factor :math:`j_t`, another value for each
    :math:`l`, and :math:`w, b` a logistic regression fitted to `train` other draws.

    1/k: chance. 0: worse than chance, never seen. 1: the codes that stay still tell every factor. `train_accuracy` is
    that of the draws the classifier was fitted to. Needs at least 2 factors; a factor of one value is refused.

    Codes and factors are a whole table. A draw takes a factor and `batch` pairs: a random row, and a random row (itself
    included) among those that share its value of the factor. Rows whose value no other row has are left out; where that
    is more than half of the rows for some factor, the table is refused with the number of rows and values that could be
    drawn. Where few rows share a value, pairs of a row with itself shrink all differences alike.

    Beware: a rotated code reaches 1 as an aligned one does: the score saturates, and is no evidence of axis alignment.
    Noise and constant codes beside good ones cost nothing, copies are not noticed. Codes are not standardised and the
    regression is penalised: squeezing a code hides it.

    Deviations: pairs are drawn from the rows of a table, not rendered anew; a draw depends on the seed only.

    Reference: Higgins et al. (2017), beta-VAE, ICLR; sizes and the absolute difference's mean as in Locatello et al.
    (2019), arXiv:1811.12359.

    >>> factors = np.indices((3, 4)).reshape(2, -1).T
    >>> beta_vae(factors, factors, train=100, test=50)
    {'train_accuracy': 1.0, 'eval_accuracy': 1.0}
    """
    from unbraid.metrics.linear import logistic_regression

    at_least(1, batch=batch, train=train, test=test)
    table, values = labelled(codes, factors, min_factors=2)
    fixed, features = differences(table, values, train + test, batch, np.random.default_rng(seed))
    model = logistic_regression(features[:train], fixed[:train])
    right = model.predict(features) == fixed
    return {"train_accuracy": float(right[:train].mean()), "eval_accuracy": float(right[train:].mean())}


def differences(
    codes: Float[np.ndarray, "n d"], factors: Int[np.ndarray, "n k"], count: int, batch: int, rng: np.random.Generator
) -> tuple[Int[np.ndarray, " m"], Float[np.ndarray, "m d"]]:
    """Draw `count` factors to hold fixed, and the mean absolute difference of codes over `batch` pairs that share it.

    >>> values = np.array([[0], [0], [1], [1]])
    >>> fixed, features = differences(values.astype(float), values, 3, 8, np.random.default_rng(0))
    >>> fixed.tolist(), features.tolist()
    ([0, 0, 0], [[0.0], [0.0], [0.0]])
    """
    from unbraid.metrics.gather import mean_differences

    table, fixed = np.ascontiguousarray(codes), rng.integers(factors.shape[1], size=count)
    features = np.empty((count, codes.shape[1]))
    for groups, mine in fixed_factors(factors, fixed):
        rows = groups.settled(rng.integers(len(codes), size=len(mine) * batch), rng)
        mates = groups.mates(rows, 1, rng)
        features[mine] = mean_differences(table, rows.reshape(-1, batch), mates.reshape(-1, batch))
    return fixed, features
