"""Statistics of the codes of one run: information and gap per factor, and the number of active latents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unbraid.data.dataset import FactorData
from unbraid.metrics.information import discretise, mutual_information
from unbraid.metrics.mig import gap_per_factor

BINS = 20
ACTIVE_VARIANCE = 0.8  # a latent is active below this mean posterior variance: Zietlow et al. (2021), arXiv:2102.06822


def information_per_factor(codes: Any, factors: Any, names: Sequence[str], bins: int = BINS) -> dict[str, float]:
    r"""The mutual information of each factor with its most informative code, in nats.

    .. math:: \max_i I(c_i; v_j)

    Codes are discretised into `bins` bins of equal width, as in the MIG. The value is at most the information that all
    codes have together about the factor, and smaller than that if several codes share the factor. A code of pure noise
    has (bins - 1)(values - 1) / 2n nats on average, not 0.

    Args:
        codes: Codes of n examples, (n, d).
        factors: Values of the k factors of the same examples as integers, (n, k).
        names: Names of the k factors.
        bins: Number of bins per code.

    Returns:
        Nats by factor name.

    >>> import numpy as np
    >>> factors = np.indices((2, 4)).reshape(2, -1).T
    >>> {name: round(nats, 3) for name, nats in information_per_factor(factors[:, 1:], factors, ["shape", "x"]).items()}
    {'shape': 0.0, 'x': 1.386}
    """
    nats = mutual_information(discretise(codes, bins), factors).max(axis=0)
    return dict(zip(names, nats.tolist(), strict=True))


def factor_gaps(codes: Any, factors: Any, names: Sequence[str], bins: int = BINS) -> dict[str, float]:
    r"""The mutual information gap of each factor that varies, by factor name. The MIG is the mean of these gaps.

    .. math:: (I(c_{i_1}; v_j) - I(c_{i_2}; v_j)) / H(v_j)

    The result is empty if there is only one code, because a gap needs two. The values differ slightly from `mig` of the
    same run, which uses a different sample of the same number of examples.
    """
    varying = [j for j in range(len(names)) if len(set(factors[:, j].tolist())) > 1]
    if codes.shape[1] < 2 or not varying:
        return {}
    return dict(
        zip([names[j] for j in varying], gap_per_factor(codes, factors[:, varying], bins=bins).tolist(), strict=True)
    )


def count_active_latents(variances: Any, data: FactorData) -> dict[str, float]:
    r"""The number of active latents, :math:`E_x[\sigma^2(x)] < 0.8`, and the number of factors that vary in the data.

    Args:
        variances: Mean posterior variance of each latent, (d,), or None for a method without a normal posterior.
        data: The dataset that was encoded.

    Returns:
        `units` (active latents) and `factors`. There is no `factors` for data without labels, and the result is empty
        if `variances` is None.
    """
    if variances is None:
        return {}
    factors = {"factors": sum(size > 1 for size in data.sizes)} if data.names else {}
    return {"units": int((variances < ACTIVE_VARIANCE).sum()), **factors}
