"""ModelCentrality: rank models, without labels, by how well each encoder recovers the latents of the other models."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from unbraid.metrics.arrays import input_error
from unbraid.metrics.factor_vae import vote_accuracy, vote_counts


def model_centrality(similarities: Float[np.ndarray, "r r"] | ArrayLike) -> Float[np.ndarray, " r"]:
    r"""Score each of r models by its mean similarity to the other models.

    .. math:: s_i = \frac{1}{r - 1} \sum_{j \ne i} \frac{A_{ij} + A_{ji}}{2}

    :math:`A_{ij}` is the FactorVAE score of the encoder of model j on examples that model i decodes, with the latents
    of model i as factors (see `vote_similarity`). The model with the highest score is the medoid of the models and the
    one to select.

    The scores lie in [0, 1] if the similarities do. A model scores 1 if its encoder finds the latents of all other
    models, and if the encoders of all other models find the latents of this model.

    Limitations: As with `udr`, the score measures agreement and not correctness. If most models are entangled in the
    same way, they score high. A latent that a decoder ignores cannot be found by any encoder, so unused latents lower
    the score.

    Reference: Lin et al. (2020), arXiv:1906.06034.

    Args:
        similarities: Array of shape (r, r), the matrix A. The diagonal is ignored. NaN marks a pair that was not
            compared. If one of the two entries of a pair is NaN, the pair is left out of the means of both models.

    Returns:
        The score of each model.

    Raises:
        UserError: If the array is not square or has fewer than 2 rows, or if a model is compared with no other model.

    Example:
        >>> model_centrality([[0, 0.8, 0.2], [1.0, 0, 0.4], [0.2, 0.2, 0]]).round(6).tolist()
        [0.55, 0.6, 0.25]
    """
    table = np.array(similarities, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or len(table) < 2:
        rule = "Similarities must be a square array with at least 2 rows."
        raise input_error(rule, f"shape {table.shape}", "Pass one row and one column per model.")
    symmetric = (table + table.T) / 2
    np.fill_diagonal(symmetric, np.nan)
    known = ~np.isnan(symmetric)
    if not known.any(axis=1).all():
        raise input_error("Every model must be compared with another.", "a row without numbers", "Compare more pairs.")
    return np.asarray(np.where(known, symmetric, 0.0).sum(axis=1) / known.sum(axis=1))


def vote_similarity(codes: Float[np.ndarray, "g n d"], fixed: Int[np.ndarray, " g"], k: int) -> float:
    r"""Return the FactorVAE score of the codes of examples that another model decoded.

    The latents of the other model take the place of the factors. In each group of examples, one of these latents was
    fixed.

    .. math:: \frac{1}{|T|} \sum_{t \in T} \left[ v(i_t) = j_t \right], \quad
        i_t = \arg\min_i \frac{\mathrm{Var}_t(c_i)}{\mathrm{Var}(c_i)}

    In group t, all n examples have the same value of latent :math:`j_t` of the model that decoded them. The vote of the
    group goes to the column :math:`i_t` of `codes` whose variance within the group is smallest, relative to its
    variance over all groups. v(i) is the latent of the other model that was fixed most often in the groups that voted
    for i. Half of the groups define v. T is the set of the other groups. Constant columns get no votes.

    The score lies in [0, 1]. Random guessing scores about 1/k. If all codes are constant, the score is 0.

    Deviations: Lin et al. use the same 1,000 groups of 100 examples both to define v and to test it, which overstates
    the score if there are few groups. They estimate the overall variance of each latent from additional examples.
    Here, it is computed from the examples of all groups.

    Reference: Kim and Mnih (2018), arXiv:1802.05983, for the score; Lin et al. (2020), arXiv:1906.06034, for its use.

    Args:
        codes: The codes of g groups of n examples, with d latents.
        fixed: Which of the k latents of the other model was fixed in each group.
        k: The number of latents of the other model.

    Returns:
        The score.

    Example:
        >>> codes = np.stack([np.indices((2, 3)).reshape(2, -1).T.astype(float)] * 4)
        >>> codes[[0, 2], :, 0], codes[[1, 3], :, 1] = 0.5, 0.5
        >>> vote_similarity(codes, np.array([0, 1, 0, 1]), 2)
        1.0
    """
    flat = codes.reshape(-1, codes.shape[-1])
    local, whole = codes.var(axis=1, ddof=1), flat.var(axis=0, ddof=1)
    active = np.ptp(flat, axis=0) > 0
    train, test = (vote_counts(local[part], whole, fixed[part], active, k) for part in _halves(fixed))
    return vote_accuracy(train, test)


def _halves(fixed: Int[np.ndarray, " g"]) -> tuple[Int[np.ndarray, " a"], Int[np.ndarray, " b"]]:
    """Divide the groups into two halves. Groups with the same fixed latent are assigned to the halves alternately."""
    rank = np.empty(len(fixed), dtype=np.int64)
    for latent in np.unique(fixed):
        rows = np.flatnonzero(fixed == latent)
        rank[rows] = np.arange(len(rows))
    return np.flatnonzero(rank % 2 == 0), np.flatnonzero(rank % 2 == 1)
