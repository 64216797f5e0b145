"""Unsupervised disentanglement ranking (UDR): rank models by their agreement with each other, without labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from unbraid.metrics.arrays import Codes, as_codes, check_at_least, input_error

ALPHA = 0.1  # weight of the Lasso penalty, as in the paper


@dataclass(frozen=True)
class Ranking:
    """Scores of r models with m latents in total. Higher scores are better.

    Attributes:
        model_scores: Score of each model, which is the median of its column of `pairwise` without the diagonal entry.
        pairwise: Entry (i, j) is the degree to which single latents of model i predict single latents of model j.
        correlations: Absolute Lasso weights or rank correlations of all latents, in the order of the models. Rows
            predict columns.
    """

    model_scores: Float[np.ndarray, " r"]
    pairwise: Float[np.ndarray, "r r"]
    correlations: Float[np.ndarray, "m m"]


def udr(
    representations: Sequence[Codes],
    kl: Sequence[ArrayLike] | None = None,
    *,
    method: str = "lasso",
    threshold: int | float = 0.01,
) -> Ranking:
    r"""Rank models, without labels, by how closely the latents of each model match those of the others one to one.

    .. math:: \mathrm{median}_{i \ne j} \; \tfrac12 \left( \mathrm{mean}_b \frac{\max_a R_{ab}^2}{\sum_a R_{ab}}
        + \mathrm{mean}_a \frac{\max_b R_{ab}^2}{\sum_b R_{ab}} \right)

    This is the score of model j. The median runs over the other models i, a runs over the informative latents of model
    i, and b runs over those of model j. :math:`R_{ab}` is the absolute weight of latent a in the Lasso (penalty 0.1,
    standardised latents) that predicts latent b from all latents of model i, or the absolute rank correlation of a and
    b.

    The scores lie in [0, 1]. 0 means that the latents of a model are unrelated to those of the others. 1 means that the
    latents are equal up to order, sign and, with rank correlations, monotonic maps. The Lasso shrinks weights, so its
    scores reach only 0.9.

    A latent is informative if its mean KL divergence from the prior exceeds `threshold`. If `kl` is not given, half of
    the variance of the latent is used instead. If the codes are the means of Gaussian posteriors, this is a lower bound
    of the divergence from a standard normal prior. Codes that are not scaled like those of a VAE need their own
    threshold. A threshold of 0 keeps all latents that vary. Exactly constant latents are never informative. In the
    attribute `correlations` of the result, the rows and columns of latents that are not informative are 0.

    Limitations: The score measures agreement and not correctness. Models that share a rotated solution, or are copies
    of one another, score as high as disentangled ones, and a single good model among bad ones scores low. If latents
    are duplicated inside a model, the way in which the Lasso divides the weight among the copies depends on their
    order.

    Deviations: The authors' code raises an error if a model has no informative latent. Here its score and all its
    pairwise scores are 0. The Lasso is solved from covariances with a tolerance of 1e-10, so weights differ from those
    of scikit-learn in the seventh digit. The authors' code has two thresholds: one for setting latents to zero, which
    is fixed at 0.01, and one for excluding latents from the score. Here `threshold` is used for both.

    Reference: Duan et al. (2020), arXiv:1905.12614.

    Args:
        representations: One array of codes of shape (n, d) per model. Row t of all arrays must belong to the same
            example. The number of latents d may differ between models.
        kl: For each model, an array of shape (d,) with the KL divergence of each latent from the prior, averaged over
            examples.
        method: "lasso" or "spearman".
        threshold: Value that the divergence of an informative latent must exceed.

    Returns:
        A `Ranking` with the score of each model, the score of each pair of models, and the correlations or weights
        between the latents of each pair.

    Raises:
        UserError: If there are fewer than 2 representations, if their numbers of rows differ, if `kl` does not match
            them, if they are not finite 2-d arrays of numbers, or if an option is invalid.

    Example:
        >>> codes = np.indices((4, 5)).reshape(2, -1).T
        >>> udr([codes, -codes[:, ::-1], codes**3], method="spearman").model_scores.round(6).tolist()
        [1.0, 1.0, 1.0]
    """
    check_at_least(0, threshold=threshold)
    if method not in ("lasso", "spearman"):
        raise input_error("The 'method' of udr must be 'lasso' or 'spearman'.", repr(method), "Choose one of them.")
    models = _check_models(representations)
    informative = [
        _is_informative(codes, row, threshold) for codes, row in zip(models, _divergences(models, kl), strict=True)
    ]
    standard = _standardise(np.concatenate(models, axis=1), np.concatenate(informative), method)
    covariance = standard.T @ standard / len(standard)
    edges = np.cumsum([0, *(codes.shape[1] for codes in models)])
    blocks = [slice(a, b) for a, b in pairwise(edges.tolist())]
    if method == "lasso":
        weights = np.concatenate([lasso(covariance[part, part], covariance[part], ALPHA) for part in blocks])
    else:
        weights = covariance
    correlations = np.abs(weights)
    scores = _pairwise_scores(correlations, blocks, informative)
    return Ranking(_column_medians(scores), scores, correlations)


def _check_models(representations: Sequence[Codes]) -> list[Float[np.ndarray, "n _"]]:
    """Return the codes of each model as float64. Raise an error if there are fewer than 2 models or lengths differ."""
    models = [as_codes(codes, f"Representation {i}") for i, codes in enumerate(representations)]
    if len(models) < 2:
        raise input_error("A ranking needs at least 2 representations.", len(models), "Pass the codes of more models.")
    lengths = [len(codes) for codes in models]
    if len(set(lengths)) > 1:
        raise input_error("Representations must have the same rows.", f"lengths {lengths}", "Encode the same examples.")
    return models


def _divergences(
    models: list[Float[np.ndarray, "n _"]], kl: Sequence[ArrayLike] | None
) -> list[Float[np.ndarray, " _"]]:
    """Return the given divergence of each latent of each model, or half of the variance if `kl` is None."""
    if kl is None:
        return [codes.var(axis=0) / 2 for codes in models]
    rows = [np.asarray(row, dtype=np.float64) for row in kl]
    shapes, wanted = [row.shape for row in rows], [codes.shape[1:] for codes in models]
    if shapes != wanted or not all(np.isfinite(row).all() for row in rows):
        remedy = "Pass the mean divergence of each latent of each model."
        raise input_error(f"'kl' must contain finite arrays of the shapes {wanted}.", f"shapes {shapes}", remedy)
    return rows


def _is_informative(
    codes: Float[np.ndarray, "n d"], divergence: Float[np.ndarray, " d"], threshold: int | float
) -> Bool[np.ndarray, " d"]:
    """Return whether each latent varies and has a divergence above the threshold."""
    return np.asarray((divergence > threshold) & (np.ptp(codes, axis=0) > 0))


def _standardise(
    codes: Float[np.ndarray, "n m"], informative: Bool[np.ndarray, " m"], method: str
) -> Float[np.ndarray, "n m"]:
    """Return codes (or ranks, for "spearman") with mean 0 and variance 1, and with uninformative columns set to 0."""
    from scipy.stats import rankdata

    standard = np.zeros_like(codes)
    columns = codes[:, informative] if method == "lasso" else rankdata(codes[:, informative], axis=0)
    columns = (columns - columns.min(axis=0)) / np.ptp(columns, axis=0)  # the variance of a tiny range would underflow
    standard[:, informative] = (columns - columns.mean(axis=0)) / columns.std(axis=0)
    return standard


def lasso(
    gram: Float[np.ndarray, "d d"], cross: Float[np.ndarray, "d m"], alpha: float, *, tolerance: float = 1e-10
) -> Float[np.ndarray, "d m"]:
    r"""Fit m Lasso regressions on the same d standardised inputs, given only covariances, and return the weights.

    .. math:: \min_w \tfrac12 w' G w - w' g + \alpha \|w\|_1

    G is `gram`, which holds the covariances of the inputs. The problem is solved for each column g of `cross`, which
    holds the covariances of the inputs with one output. Coordinate descent runs over all columns at once, until no
    weight changes by more than `tolerance`. Inputs with variance 0 have weight 0.

    >>> lasso(np.eye(2), np.array([[0.5], [-0.05]]), 0.1).tolist()
    [[0.4], [0.0]]
    """
    weights = np.zeros_like(cross)
    varying = np.flatnonzero(np.diag(gram) > 0)
    for _ in range(100_000):  # tens of sweeps are usually enough, but collinear inputs converge slowly
        largest_change = 0.0
        for a in varying:
            slope = cross[a] - gram[a] @ weights + gram[a, a] * weights[a]
            new = (slope - np.clip(slope, -alpha, alpha)) / gram[a, a]
            largest_change = max(largest_change, float(np.abs(new - weights[a]).max()))
            weights[a] = new
        if largest_change <= tolerance:
            break
    return weights


def relative_strength(correlations: Float[np.ndarray, "d e"]) -> float:
    """Return the degree to which a matrix of absolute correlations matches rows and columns one to one.

    An empty matrix scores 0.

    >>> relative_strength(np.array([[1.0, 0.0], [0.0, 0.5]]))
    0.75
    """
    if not correlations.size:
        return 0.0
    means = []
    for axis in (0, 1):
        total, largest = correlations.sum(axis=axis), correlations.max(axis=axis)
        means.append(np.mean(largest**2 / np.where(total > 0, total, 1)))
    return float(np.mean(means))


def _pairwise_scores(
    correlations: Float[np.ndarray, "m m"], blocks: list[slice], informative: list[Bool[np.ndarray, " _"]]
) -> Float[np.ndarray, "r r"]:
    """Return the score of each ordered pair of models. The diagonal is 0."""
    scores = np.zeros((len(blocks), len(blocks)))
    for i, rows in enumerate(blocks):
        for j, columns in enumerate(blocks):
            if i != j:
                scores[i, j] = relative_strength(correlations[rows, columns][informative[i]][:, informative[j]])
    return scores


def _column_medians(scores: Float[np.ndarray, "r r"]) -> Float[np.ndarray, " r"]:
    """Return the median of each column without its diagonal entry."""
    return np.array([np.median(np.delete(column, i)) for i, column in enumerate(scores.T)])
