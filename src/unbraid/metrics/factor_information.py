"""Information that latents have about discrete and continuous factors, estimated from bins or nearest neighbours."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from unbraid.errors import UserError, unknown_name_message
from unbraid.metrics.arrays import input_error
from unbraid.metrics.information import discretise, entropy, mutual_information
from unbraid.metrics.labels import Column, Labels

ESTIMATORS = ("plug-in", "miller-madow", "neighbours")
NEIGHBOURS = 3  # number of nearest neighbours, as Kraskov et al. (2004) recommend


class FactorInformation(NamedTuple):
    """Information of d latents about k factors.

    Attributes:
        matrix: Information of each latent about each factor. It is at most the entropy of the factor.
        entropies: Entropy of each factor. Divide `matrix` by it to normalise the information. It is 1 if `matrix` is
            already normalised.
        code_entropies: Entropy of each binned latent (row). Column j is computed from the rows that have a label for
            factor j.
    """

    matrix: Float[np.ndarray, "d k"]
    entropies: Float[np.ndarray, " k"]
    code_entropies: Float[np.ndarray, "d k"]


def factor_information(
    codes: Float[np.ndarray, "n d"], labels: Labels, bins: int, estimator: str = "plug-in"
) -> FactorInformation:
    """Estimate the information of each latent about each factor.

    Latents and continuous factors are sorted into `bins` equal-width bins. For each factor, only the rows that have a
    label for it are used.

    Args:
        codes: The codes.
        labels: The factors.
        bins: Number of bins.
        estimator: "plug-in" for nats from relative frequencies; "miller-madow" for nats from relative frequencies with
            the bias correction of Miller (1955); "neighbours" for shares in [0, 1] from nearest neighbours, see
            `neighbour_shares`.

    Returns:
        The information and the entropies.

    Raises:
        UserError: If the estimator is unknown.
    """
    check_estimator(estimator)
    code_bins, corrected = discretise(codes, bins), estimator == "miller-madow"
    if labels.plain:
        matrix = mutual_information(code_bins, labels.values, corrected=corrected)
        entropies = entropy(labels.values, corrected=corrected)
        code_entropies = np.repeat(entropy(code_bins, corrected=corrected)[:, None], len(entropies), axis=1)
    else:
        parts = [_column_information(code_bins, column, bins, corrected) for column in labels.columns()]
        matrix, entropies, code_entropies = (np.stack(part, axis=-1) for part in zip(*parts, strict=True))
    if estimator == "neighbours":
        matrix, entropies = neighbour_shares(codes, labels), np.ones(len(entropies))
    return FactorInformation(matrix, entropies, code_entropies)


def check_estimator(estimator: str) -> None:
    """Raise a `UserError` if the estimator is unknown."""
    if estimator not in ESTIMATORS:
        raise UserError(unknown_name_message("estimator", estimator, ESTIMATORS))


def _column_information(
    code_bins: np.ndarray[tuple[int, int], np.dtype[np.int64]], column: Column, bins: int, corrected: bool
) -> tuple[Float[np.ndarray, " d"], np.float64, Float[np.ndarray, " d"]]:
    """Return the information of each latent about one factor, and the entropies of the factor and the latents."""
    values = column.values[:, None]
    labels = discretise(values, bins) if column.continuous else values
    used = code_bins[column.rows]
    matrix = mutual_information(used, labels, corrected=corrected)
    return matrix[:, 0], entropy(labels, corrected=corrected)[0], entropy(used, corrected=corrected)


def neighbour_shares(
    codes: Float[np.ndarray, "n d"], labels: Labels, *, neighbours: int = NEIGHBOURS, seed: int = 0
) -> Float[np.ndarray, "d k"]:
    r"""Return how much each latent tells about each factor, as a share in [0, 1], from nearest neighbours.

    .. math:: \frac{I(c_i; v_j)}{H(v_j)} \text{ for a discrete factor,} \qquad
        1 - e^{-2 I(c_i; v_j)} \text{ for a continuous factor}

    The information of two continuous variables has no upper bound, and the entropy of a continuous factor depends on
    its unit, so the ratio of the two is not a share in [0, 1]. The second formula is therefore used for continuous
    factors. It is 0 if latent and factor are independent, and approaches 1 if the latent is a function of the factor.
    It is the squared correlation if latent and factor are jointly Gaussian.

    >>> x = np.random.default_rng(0).normal(size=(1000, 1))
    >>> from unbraid.metrics.labels import as_labels
    >>> bool(neighbour_shares(x, as_labels(x, [True]))[0, 0] > 0.99)
    True
    """
    nats = neighbour_information(codes, labels, neighbours=neighbours, seed=seed)
    shares = [
        1 - np.exp(-2 * nats[:, j]) if column.continuous else nats[:, j] / entropy(column.values[:, None])
        for j, column in enumerate(labels.columns())
    ]
    return np.asarray(np.minimum(1.0, np.stack(shares, axis=1)))


def neighbour_information(
    codes: Float[np.ndarray, "n d"], labels: Labels, *, neighbours: int = NEIGHBOURS, seed: int = 0
) -> Float[np.ndarray, "d k"]:
    """Estimate the mutual information of each latent and each factor, in nats, from nearest neighbours.

    The estimators are those of scikit-learn: Kraskov et al. (2004) for a continuous factor, and Ross (2014) for a
    discrete one. scikit-learn adds small random noise to break ties. Constant latents have no information.

    Raises:
        UserError: If a continuous factor has at most `neighbours` labels, or if all values of a discrete one differ.
    """
    from sklearn.feature_selection import mutual_info_classif, mutual_info_regression

    for j, column in enumerate(labels.columns()):
        _check_neighbours(column, j, neighbours)
    options = {"discrete_features": False, "n_neighbors": neighbours, "random_state": seed}
    matrix = np.stack(
        [
            (mutual_info_regression if column.continuous else mutual_info_classif)(
                codes[column.rows], column.values, **options
            )
            for column in labels.columns()
        ],
        axis=1,
    )
    matrix[np.ptp(codes, axis=0) == 0] = 0.0
    return np.asarray(matrix)


def _check_neighbours(column: Column, j: int, neighbours: int) -> None:
    """Raise a `UserError` if nearest neighbours of the rows with a label of factor j do not exist."""
    count, remedy = len(column.values), "Pass more examples, or estimate the information from bins."
    if column.continuous and count <= neighbours:
        rule = f"A continuous factor needs more than {neighbours} labels to find {neighbours} nearest neighbours."
        raise input_error(rule, f"{count} in factor column {j}", remedy)
    if not column.continuous and len(np.unique(column.values)) == count:
        rule = "Some value of each discrete factor must occur twice, because neighbours are rows with the same value."
        raise input_error(rule, f"{count} different values in factor column {j}", remedy)
