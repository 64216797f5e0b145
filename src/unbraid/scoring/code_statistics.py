"""Statistics of the codes of one run: information and gap per factor, and the number of active latents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unbraid.data.dataset import FactorData
from unbraid.metrics.arrays import as_codes
from unbraid.metrics.factor_information import factor_information
from unbraid.metrics.labels import Continuous, as_flags, as_labels
from unbraid.metrics.mig import gap_per_factor

BINS = 20
ACTIVE_VARIANCE = 0.8  # maximum mean posterior variance of an active latent: Zietlow et al. (2021), arXiv:2102.06822


def information_per_factor(
    codes: Any, factors: Any, names: Sequence[str], continuous: Continuous = None, bins: int = BINS
) -> dict[str, float]:
    r"""Estimate the mutual information of each factor with its most informative latent, in nats.

    .. math:: \max_i I(c_i; v_j)

    :math:`c_i` is latent i, :math:`v_j` is factor j, and I is the mutual information. Latents and continuous factors
    are discretised into `bins` bins of equal width, as in the MIG. The value is at most the information that all
    latents together have about the factor. It is smaller if several latents represent the factor together. The estimate
    for a latent of pure noise is not 0 but (bins - 1)(values - 1) / 2n nats on average, where `values` is the number of
    values of the factor.

    Args:
        codes: Codes of n examples, (n, d).
        factors: Values of the k factors of the same examples, (n, k). NaN is a missing label. The estimate for a factor
            leaves out the rows in which the label of this factor is missing.
        names: Names of the k factors.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        bins: Number of bins per latent.

    Returns:
        The mutual information in nats by factor name.

    >>> import numpy as np
    >>> factors = np.indices((2, 4)).reshape(2, -1).T
    >>> {name: round(nats, 3) for name, nats in information_per_factor(factors[:, 1:], factors, ["shape", "x"]).items()}
    {'shape': 0.0, 'x': 1.386}
    """
    nats = factor_information(as_codes(codes), as_labels(factors, continuous), bins).matrix.max(axis=0)
    return dict(zip(names, nats.tolist(), strict=True))


def information_shares(codes: Any, factors: Any, continuous: Continuous = None, bins: int = BINS) -> tuple[Any, Any]:
    """Compute the information of each column of codes about each factor as a fraction of the entropy of the factor.

    Args:
        codes: Codes of n examples, (n, d).
        factors: Values of the k factors, (n, k), as in `information_per_factor`.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        bins: Number of bins per column of codes.

    Returns:
        The fractions, (d, k), and their floor, (k,). The floor is the mean fraction that codes without information
        about the factors have. It is computed from the same codes in a random order.

    >>> factors = np.random.default_rng(0).integers(4, size=(400, 1))
    >>> shares, floor = information_shares(factors, factors)
    >>> shares.round(3).tolist(), bool(0 < floor[0] < 0.02)
    ([[1.0]], True)
    """
    table, labels = as_codes(codes), as_labels(factors, continuous)
    shuffled = table[np.random.default_rng(0).permutation(len(table))]
    found, chance = (factor_information(rows, labels, bins) for rows in (table, shuffled))
    entropies = np.maximum(found.entropies, 1e-12)
    return found.matrix / entropies, (chance.matrix / entropies).mean(axis=0)


def factor_gaps(
    codes: Any, factors: Any, names: Sequence[str], continuous: Continuous = None, bins: int = BINS
) -> dict[str, float]:
    r"""Compute the mutual information gap of each factor that varies, by factor name. The MIG is the mean of the gaps.

    .. math:: (I(c_{i_1}; v_j) - I(c_{i_2}; v_j)) / H(v_j)

    :math:`c_i` is latent i, :math:`v_j` is factor j, I is the mutual information and H is the entropy. :math:`i_1` and
    :math:`i_2` are the latents with the most and the second most information about factor j. The result is empty if
    there is only one latent, because a gap needs two. The mean of the gaps differs slightly from the metric `mig` of
    the same run, because `mig` uses a different sample of the same number of examples.
    """
    flags = as_flags(continuous, len(names))
    varying = varying_columns(factors)
    if codes.shape[1] < 2 or not varying:
        return {}
    gaps = gap_per_factor(codes, factors[:, varying], [flags[j] for j in varying], bins=bins)
    return dict(zip([names[j] for j in varying], gaps.tolist(), strict=True))


def varying_columns(factors: Any) -> list[int]:
    """Return the columns of factors with at least two different labels."""
    return [j for j, column in enumerate(factors.T) if len(np.unique(column[~np.isnan(column)])) > 1]


def count_active_latents(variances: Any, data: FactorData) -> dict[str, float]:
    r"""Count the active latents, whose mean posterior variance is below 0.8, and the factors that vary in the data.

    Args:
        variances: Mean posterior variance of each latent, (d,), or None for a method without a normal posterior.
        data: The dataset that was encoded.

    Returns:
        The number of active latents (`units`) and the number of factors (`factors`). Data without labels have no
        `factors`. The result is empty if `variances` is None.
    """
    if variances is None:
        return {}
    factors = {"factors": sum(size > 1 for size in data.sizes)} if data.names else {}
    return {"units": int((variances < ACTIVE_VARIANCE).sum()), **factors}
