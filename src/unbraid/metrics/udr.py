"""Unsupervised disentanglement ranking: which of several models agree with the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from unbraid.metrics.arrays import Codes, as_codes, at_least, refusal

ALPHA = 0.1  # weight of the Lasso's penalty in the paper


@dataclass(frozen=True)
class Ranking:
    """Scores of r models with m latents in all; higher is better.

    `pairwise[i, j]` is how far model i predicts model j by single latents, `model_scores` the medians of its columns,
    `correlations` the matrix of all latents, in the order of the models: rows predict columns.
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
    r"""How far the latents of each model are, one to one, those of the other models: a ranking without labels.

    .. math:: \mathrm{median}_{i \ne j} \; \tfrac12 \left( \mathrm{mean}_b \frac{\max_a R_{ab}^2}{\sum_a R_{ab}}
        + \mathrm{mean}_a \frac{\max_b R_{ab}^2}{\sum_b R_{ab}} \right)

    for model j, with :math:`R_{ab}` the absolute weight of latent a of model i in the Lasso (penalty .1, standardised
    latents) that predicts latent b of model j, or their absolute rank correlation; a and b are informative latents.

    0: nothing in common. 1: the same latents up to order, sign and, with ranks, monotone curves; the Lasso shrinks
    weights, so that it reaches .9 only. Row t of all representations must belong to the same example; models may differ
    in width. A latent is informative where its `kl` from the prior, a mean over examples, exceeds `threshold`. Without
    `kl` half its variance takes that place, which never exceeds the divergence of a mean latent from a standard normal.
    Codes that are not scaled like a VAE's need their own threshold: 0 keeps all that vary. Exactly constant latents are
    never informative. Rows and columns of the others are 0 in `correlations`.

    Beware: it measures agreement, not truth. Models that share a rotated solution, or are copies of one another, score
    as high as disentangled ones, and a single good model among bad ones scores low. Latents duplicated inside a model
    share the weight in an order that the Lasso settles by position.

    Deviations: the reference code raises where a model has no informative latent; here all its pairs and its score are
    0. The Lasso is solved from covariances to 1e-10, so that values differ from scikit-learn's in the seventh digit.
    One threshold serves for zeroing latents and for dropping them, where the reference fixes the first at .01.

    Reference: Duan et al. (2020), arXiv:1905.12614.

    >>> codes = np.indices((4, 5)).reshape(2, -1).T
    >>> udr([codes, -codes[:, ::-1], codes**3], method="spearman").model_scores.round(6).tolist()
    [1.0, 1.0, 1.0]
    """
    at_least(0, threshold=threshold)
    if method not in ("lasso", "spearman"):
        raise refusal("The 'method' of udr must be 'lasso' or 'spearman'.", repr(method), "Choose one of them.")
    models = _models(representations)
    kept = [_informative(codes, row, threshold) for codes, row in zip(models, _divergences(models, kl), strict=True)]
    standard = _standardised(np.concatenate(models, axis=1), np.concatenate(kept), method)
    covariance = standard.T @ standard / len(standard)
    edges = np.cumsum([0, *(codes.shape[1] for codes in models)])
    blocks = [slice(a, b) for a, b in pairwise(edges.tolist())]
    if method == "lasso":
        found = np.concatenate([lasso(covariance[part, part], covariance[part], ALPHA) for part in blocks])
    else:
        found = covariance
    correlations = np.abs(found)
    scores = _scores(correlations, blocks, kept)
    return Ranking(_medians(scores), scores, correlations)


def _models(representations: Sequence[Codes]) -> list[Float[np.ndarray, "n _"]]:
    """The tables of codes, at least two and of equal length."""
    models = [as_codes(codes, f"Representation {i}") for i, codes in enumerate(representations)]
    if len(models) < 2:
        raise refusal("A ranking needs at least 2 representations.", len(models), "Pass the codes of more models.")
    lengths = [len(codes) for codes in models]
    if len(set(lengths)) > 1:
        raise refusal("Representations must have the same rows.", f"lengths {lengths}", "Encode the same examples.")
    return models


def _divergences(
    models: list[Float[np.ndarray, "n _"]], kl: Sequence[ArrayLike] | None
) -> list[Float[np.ndarray, " _"]]:
    """One number a latent: the divergences given, or half the variance."""
    if kl is None:
        return [codes.var(axis=0) / 2 for codes in models]
    rows = [np.asarray(row, dtype=np.float64) for row in kl]
    shapes, wanted = [row.shape for row in rows], [codes.shape[1:] for codes in models]
    if shapes != wanted or not all(np.isfinite(row).all() for row in rows):
        remedy = "Pass the mean divergence of each latent of each model."
        raise refusal(f"'kl' must hold finite rows of the shapes {wanted}.", f"shapes {shapes}", remedy)
    return rows


def _informative(
    codes: Float[np.ndarray, "n d"], divergence: Float[np.ndarray, " d"], threshold: int | float
) -> Bool[np.ndarray, " d"]:
    return np.asarray((divergence > threshold) & (np.ptp(codes, axis=0) > 0))


def _standardised(
    codes: Float[np.ndarray, "n m"], kept: Bool[np.ndarray, " m"], method: str
) -> Float[np.ndarray, "n m"]:
    """Codes, or their ranks, with mean 0 and variance 1; zeros for those not kept."""
    from scipy.stats import rankdata

    standard = np.zeros_like(codes)
    live = codes[:, kept] if method == "lasso" else rankdata(codes[:, kept], axis=0)
    live = (live - live.min(axis=0)) / np.ptp(live, axis=0)  # a tiny spread must not square to 0
    standard[:, kept] = (live - live.mean(axis=0)) / live.std(axis=0)
    return standard


def lasso(
    gram: Float[np.ndarray, "d d"], cross: Float[np.ndarray, "d m"], alpha: float, *, tolerance: float = 1e-10
) -> Float[np.ndarray, "d m"]:
    r"""Weights of m Lasso regressions on the same d standardised inputs, from covariances.

    .. math:: \min_w \tfrac12 w' G w - w' g + \alpha \|w\|_1

    for each column g of `cross`, by coordinate descent over all columns at once, until no weight moves by more than
    `tolerance`. Inputs of variance 0 get weight 0.

    >>> lasso(np.eye(2), np.array([[0.5], [-0.05]]), 0.1).tolist()
    [[0.4], [0.0]]
    """
    weights = np.zeros_like(cross)
    live = np.flatnonzero(np.diag(gram) > 0)
    for _ in range(100_000):  # collinear inputs converge slowly; standardised ones need tens of sweeps
        moved = 0.0
        for a in live:
            slope = cross[a] - gram[a] @ weights + gram[a, a] * weights[a]
            new = (slope - np.clip(slope, -alpha, alpha)) / gram[a, a]
            moved = max(moved, float(np.abs(new - weights[a]).max()))
            weights[a] = new
        if moved <= tolerance:
            break
    return weights


def relative_strength(correlations: Float[np.ndarray, "d e"]) -> float:
    """How nearly a matrix of absolute correlations pairs its rows and columns; 0 where it has none.

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


def _scores(
    correlations: Float[np.ndarray, "m m"], blocks: list[slice], kept: list[Bool[np.ndarray, " _"]]
) -> Float[np.ndarray, "r r"]:
    scores = np.zeros((len(blocks), len(blocks)))
    for i, rows in enumerate(blocks):
        for j, columns in enumerate(blocks):
            if i != j:
                scores[i, j] = relative_strength(correlations[rows, columns][kept[i]][:, kept[j]])
    return scores


def _medians(scores: Float[np.ndarray, "r r"]) -> Float[np.ndarray, " r"]:
    return np.array([np.median(np.delete(column, i)) for i, column in enumerate(scores.T)])
