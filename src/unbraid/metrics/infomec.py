"""InfoM, InfoE and InfoC: modularity, explicitness and compactness in units of information."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from unbraid.metrics.arrays import Codes, Factors, at_least, labelled
from unbraid.metrics.information import discretise, entropy, mutual_information


def infomec(
    codes: Codes,
    factors: Factors,
    *,
    bins: int = 20,
    neighbours: int = 0,
    prune: int | float = 0.05,
    iterations: int = 1000,
    seed: int = 0,
) -> dict[str, float]:
    r"""How much of what each code tells is of one factor, how much a linear model reads, how few codes tell a factor.

    .. math:: InfoM = \mathrm{mean}_i \, \frac{\max_j N_{ij} / \sum_j N_{ij} - 1/k}{1 - 1/k}, \quad
        InfoC = \mathrm{mean}_j \, \frac{\max_i N_{ij} / \sum_i N_{ij} - 1/d}{1 - 1/d}, \quad
        InfoE = \mathrm{mean}_j \, \frac{H(v_j) - \min_w E[-\log p_w(v_j | c)]}{H(v_j)}, \quad
        N_{ij} = \frac{I(c_i; v_j)}{H(v_j)}

    with :math:`p_w` the multinomial logistic regressions on all codes; i and d in InfoM and InfoC are of active codes,
    those whose range is more than `prune` times the largest range.

    InfoM 0: each code tells equally of all factors. 1: of one. InfoC 0: each factor is told equally by all codes. 1: by
    one. InfoE 0: a linear model learns no more than the frequencies. 1: it knows every factor. A code that tells
    nothing and a factor told by none count 0; with one active code (one factor) whatever is told counts 1 in InfoC
    (InfoM); without active codes all are 0. Constant codes are never active.

    Information is counted on `bins` equal-width bins, or, with `neighbours` above 0, estimated from nearest neighbours
    with scikit-learn's ``mutual_info_classif`` (its jitter drawn from `seed`): the paper's choice for continuous codes,
    with 10 neighbours. Quantised codes need more bins than they have levels. InfoE stops at a gradient of 1e-4.

    Beware: pruning compares ranges, so rescaling one code may change InfoM and InfoC, and an outlier may prune all
    others. The bias of the estimate differs from factor to factor, so pure noise has an InfoM above 0. Duplicated codes
    keep InfoM at 1, a rotated code keeps InfoE at 1, and constant codes leave InfoM to the others: read all three.
    InfoE is measured on the rows it was fitted to, as in the reference: with few rows a value noise scores high.

    Deviations: bins by default. No class weights, so that the model without codes has exactly the entropy; the
    reference code balances classes, which is the same for evenly drawn factors. It also stops after 100 iterations,
    which leaves InfoE of a linear code of 40 values about .1 lower (``iterations=100``).

    Reference: Hsu et al. (2023), arXiv:2305.18378.

    >>> factors = np.indices((3, 4)).reshape(2, -1).T
    >>> {key: round(value, 2) for key, value in infomec(factors, factors).items()}
    {'InfoM': 1.0, 'InfoE': 1.0, 'InfoC': 1.0}
    """
    at_least(0, neighbours=neighbours, prune=prune)
    at_least(1, iterations=iterations)
    table, values = labelled(codes, factors)
    span = np.ptp(table, axis=0)
    active = (span > prune * span.max()) & (span > 0)
    shares = np.zeros((0, values.shape[1]))
    if active.any():
        live = table[:, active]
        told = _nearest(live, values, neighbours, seed) if neighbours else _counted(live, values, bins)
        shares = told / entropy(values)
    explicit = explicitness(table[:, span > 0], values, iterations)
    return {"InfoM": concentration(shares), "InfoE": explicit, "InfoC": concentration(shares.T)}


def concentration(shares: Float[np.ndarray, "d k"]) -> float:
    """The mean over rows of the largest entry's share of its row, scaled so that equal entries give 0.

    A row of zeros counts 0, a positive row of one entry 1, and no rows at all 0.

    >>> concentration(np.array([[1.0, 0.0, 0.0], [2.0, 2.0, 2.0]]))
    0.5
    """
    rows, width = shares.shape
    told = shares[shares.sum(axis=1) > 0]
    if not len(told):
        return 0.0
    if width == 1:
        return float(len(told) / rows)
    largest = told.max(axis=1) / told.sum(axis=1)
    return float(np.sum((largest - 1 / width) / (1 - 1 / width)) / rows)


def explicitness(codes: Float[np.ndarray, "n d"], factors: Int[np.ndarray, "n k"], iterations: int) -> float:
    """The mean over factors of the part of their entropy that a logistic regression on the codes removes.

    >>> explicitness(np.zeros((4, 0)), np.array([[0], [1], [0], [1]]), 100)
    0.0
    """
    if not codes.shape[1]:
        return 0.0
    scaled = (codes - codes.min(axis=0)) / np.ptp(codes, axis=0)  # a tiny spread must not square to 0
    standard = (scaled - scaled.mean(axis=0)) / scaled.std(axis=0)
    left = np.array([_cross_entropy(standard, column, iterations) for column in factors.T])
    return float(np.mean(np.maximum(0.0, 1 - left / entropy(factors))))


def _cross_entropy(codes: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], iterations: int) -> float:
    """Mean negative log-likelihood, in nats, of the unpenalised multinomial logistic regression, on its own rows."""
    from unbraid.metrics.linear import logistic_regression

    places = np.unique(labels, return_inverse=True)[1]
    scores = logistic_regression(codes, places, C=np.inf, iterations=iterations).scores(codes)
    # From scores, since a probability may round to 0 and its log to infinity.
    return float(np.mean(np.logaddexp.reduce(scores, axis=1) - scores[np.arange(len(places)), places]))


def _counted(codes: Float[np.ndarray, "n d"], factors: Int[np.ndarray, "n k"], bins: int) -> Float[np.ndarray, "d k"]:
    return mutual_information(discretise(codes, bins), factors)


def _nearest(
    codes: Float[np.ndarray, "n d"], factors: Int[np.ndarray, "n k"], neighbours: int, seed: int
) -> Float[np.ndarray, "d k"]:
    from sklearn.feature_selection import mutual_info_classif

    options = {"discrete_features": False, "n_neighbors": neighbours, "random_state": seed}
    return np.stack([mutual_info_classif(codes, column, **options) for column in factors.T], axis=1)
