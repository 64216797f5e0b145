"""Statistics of the codes of one run: information and gap per factor, and the number of active latents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unbraid.data.dataset import FactorData
from unbraid.metrics.information import discretise, mutual_information
from unbraid.metrics.mig import gap_per_factor

BINS = 20
ACTIVE_VARIANCE = 0.8  # maximum mean posterior variance of an active latent: Zietlow et al. (2021), arXiv:2102.06822


def information_per_factor(codes: Any, factors: Any, names: Sequence[str], bins: int = BINS) -> dict[str, float]:
    r"""Estimate the mutual information of each factor with its most informative latent, in nats.

    .. math:: \max_i I(c_i; v_j)

    Latents are discretised into `bins` bins of equal width, as in the MIG. The value is at most the information that
    all latents together have about the factor. It is smaller if several latents represent the factor together. The
    estimate for a latent of pure noise is not 0 but (bins - 1)(values - 1) / 2n nats on average, where `values` is the
    number of values of the factor.

    Args:
        codes: Codes of n examples, (n, d).
        factors: Values of the k factors of the same examples as integers, (n, k).
        names: Names of the k factors.
        bins: Number of bins per latent.

    Returns:
        The mutual information in nats by factor name.

    >>> import numpy as np
    >>> factors = np.indices((2, 4)).reshape(2, -1).T
    >>> {name: round(nats, 3) for name, nats in information_per_factor(factors[:, 1:], factors, ["shape", "x"]).items()}
    {'shape': 0.0, 'x': 1.386}
    """
    nats = mutual_information(discretise(codes, bins), factors).max(axis=0)
    return dict(zip(names, nats.tolist(), strict=True))


def factor_gaps(codes: Any, factors: Any, names: Sequence[str], bins: int = BINS) -> dict[str, float]:
    r"""Compute the mutual information gap of each factor that varies, by factor name. The MIG is their mean.

    .. math:: (I(c_{i_1}; v_j) - I(c_{i_2}; v_j)) / H(v_j)

    The result is empty if there is only one latent, because a gap needs two. The mean of the gaps differs slightly from
    the metric `mig` of the same run, which uses a different sample of the same number of examples.
    """
    varying = [j for j in range(len(names)) if len(set(factors[:, j].tolist())) > 1]
    if codes.shape[1] < 2 or not varying:
        return {}
    return dict(
        zip([names[j] for j in varying], gap_per_factor(codes, factors[:, varying], bins=bins).tolist(), strict=True)
    )


def count_active_latents(variances: Any, data: FactorData) -> dict[str, float]:
    r"""Count the active latents, :math:`E_x[\sigma^2(x)] < 0.8`, and the factors that vary in the data.

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
