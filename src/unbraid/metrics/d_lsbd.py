"""D_LSBD, a measure of linear symmetry-based disentanglement of cyclic factors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Complex, Float, Int, Real

from unbraid.errors import UserError
from unbraid.metrics.arrays import Codes, Factors, check_at_least, input_error
from unbraid.metrics.information import consecutive_labels
from unbraid.metrics.labels import Continuous, Labels, as_codes_and_labels
from unbraid.metrics.settings import setting_numbers

Periods = Sequence[float | None] | None

ROUNDING = 1e-12  # differences below this share of the largest code are treated as rounding errors
FULL_TURN = 2 * np.pi - 1e-9  # angles that exceed the smallest angle by this much or more belong to a further turn
FLAT = 1e-9  # a direction does not vary if its standard deviation is below this share of the largest one


def d_lsbd(
    codes: Codes, factors: Factors, continuous: Continuous = None, periods: Periods = None, *, frequencies: int = 10
) -> dict[str, float]:
    r"""Measure how far the codes of cyclic factors are from circles on which each factor acts as a rotation.

    .. math:: D = \frac{1}{k} \sum_j \min_{\omega} \; E \left\| R(\omega \theta_j)^{-1} w_j
        - E[R(\omega \theta_j)^{-1} w_j] \right\|^2

    where k is the number of cyclic factors, :math:`\theta_j` is the angle of cyclic factor j, R is a rotation of the
    plane, :math:`\omega` is an integer frequency with :math:`1 \le |\omega| \le` `frequencies`, and E is the mean over
    rows. :math:`w_j` are the codes as points in a plane. To compute them, the codes are averaged over factor j with all
    other factors fixed, and this mean is subtracted. The differences are projected onto the two directions with the
    largest variance and scaled to a variance of 1/2 in each direction.

    If rotating an object by an angle rotates its code by a multiple of this angle, the inverse rotation moves all codes
    to the same point, and their dispersion (the mean squared distance in the formula) is 0. The score lies in [0, 1],
    and low values are better. 0 means that each cyclic factor has a plane in which it moves the code around a circle at
    a constant speed, and that this plane does not depend on the other cyclic factors. 1 means that no rotation
    describes the codes.

    The planes are computed separately for each combination of values of the factors that are not cyclic, as the authors
    do for objects of different identity, and the dispersions are averaged. The arrays must hold the whole dataset,
    because only complete lines are used. A complete line is a set of rows that differ in factor j only and that
    together have all values of factor j. If several rows have the same values of all factors, all of them are used. If
    the values of a discrete factor cover more than one turn, rows with values beyond the first turn are left out.

    Continuous factors: A continuous factor is sorted into 10 bins of equal counts to find lines. Its angle is that of
    its exact value if its period is given, and otherwise that of its bin. Only rows with a label for every factor are
    used.

    Limitations: The factors must be known to be cyclic, and equal steps of a factor must be equal angles. If a cyclic
    factor is encoded linearly in one latent, its score is about 0.7, because the latent jumps after a full turn. A
    factor with 2 values always has a perfect circle. The plane is that of the largest variance, so a circle that is
    smaller than other variations of the codes is not found, and scaling single latents changes the score. In a table
    with few complete lines, each plane is fitted to few codes, so the score is lower than on the whole grid.

    Deviations: If the codes vary in one direction only, the second coordinate of :math:`w_j` is 0 and the first has a
    variance of 1. If they do not vary at all, the score is 1. The sign of the frequency may differ between combinations
    of the factors that are not cyclic, because the orientation of a plane is arbitrary. The authors' code does not
    treat these three cases.

    Reference: Tonnaer et al. (2022), "Quantifying and Learning Linear Symmetry-Based Disentanglement",
    arXiv:2011.06070, section 4.

    Args:
        codes: Array of shape (n, d), the codes of the whole dataset, one row per example and one column per latent.
        factors: Array of shape (n, k), the factors of the same examples, one column per factor. Discrete factors are
            integers. NaN is a missing label.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        periods: For each factor, the difference of two values that are a full turn apart, or None if the factor is not
            cyclic. By default all factors are treated as cyclic, and their values divide a turn equally.
        frequencies: The largest frequency.

    Returns:
        `d_lsbd`, the mean over cyclic factors; and `d_lsbd_factor_0` and so on, the score of each cyclic factor.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, if a factor is constant, if no factor is cyclic, if a period is not
            positive, or if there is no complete line along a cyclic factor.

    Example:
        >>> factors = np.indices((8, 6)).reshape(2, -1).T
        >>> angles = 2 * np.pi * factors / (8, 6)
        >>> codes = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
        >>> round(d_lsbd(codes, factors)["d_lsbd"], 6)
        0.0
    """
    check_at_least(1, frequencies=frequencies)
    table, labels = as_codes_and_labels(codes, factors, continuous)
    turns = as_periods(periods, labels)
    complete = labels.require_complete_rows()
    table, values = table[complete], labels.binned()[complete]
    cyclic = [turn is not None for turn in turns]
    group = setting_numbers(values[:, ~np.array(cyclic)])
    scores = {}
    for j, turn in enumerate(turns):
        if turn is not None:
            angles = _angles(labels.values[complete, j], values[:, j], turn)
            once = slice(None) if labels.continuous[j] else np.flatnonzero(angles < angles.min() + FULL_TURN)
            rows = np.arange(len(values))[once][complete_lines(values[once], j)]
            line = setting_numbers(np.delete(values, j, axis=1)[rows])
            arrays = subtract_group_means(table[rows], line), angles[rows], group[rows]
            scores[f"d_lsbd_factor_{j}"] = _dispersion(*arrays, frequencies)
    return {"d_lsbd": float(np.mean(list(scores.values()))), **scores}


def _angles(exact: Real[np.ndarray, " n"], binned: Int[np.ndarray, " n"], period: float) -> Float[np.ndarray, " n"]:
    """Return the angle of each label in radians. If the period is NaN, the values or bins divide a turn equally."""
    index = consecutive_labels(binned)
    return np.asarray(2 * np.pi * (index / (index.max() + 1) if np.isnan(period) else exact / period))


def as_periods(periods: Periods, labels: Labels) -> list[float | None]:
    """Return one entry per factor: its period, None if it is not cyclic, or NaN if its values divide a turn equally.

    >>> as_periods([None, 4], Labels(np.zeros((2, 2)), (False, False)))
    [None, 4.0]
    """
    k = len(labels.continuous)
    if periods is None:
        return [float("nan")] * k
    if len(periods) != k:
        raise UserError(
            f"'periods' must hold one number or None per factor. Got {len(periods)} for {k} factors instead. Pass {k} "
            "values."
        )
    if all(period is None for period in periods):
        rule = "D_LSBD needs at least one cyclic factor, such as an angle or a hue."
        remedy = "Choose data such as dsprites or cars3d, or pass the period of a factor."
        raise input_error(rule, "only factors that are not cyclic", remedy)
    if wrong := [period for period in periods if period is not None and not period > 0]:
        raise UserError(f"A period must be a positive number. Got {wrong[0]} instead.")
    return [None if period is None else float(period) for period in periods]


def complete_lines(values: Int[np.ndarray, "n k"], j: int) -> Bool[np.ndarray, " n"]:
    """Return whether each row is in a complete line: its values of the other factors occur with all values of factor j.

    >>> grid = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [2, 0]])
    >>> complete_lines(grid, 0).tolist()  # the value 2 of the first factor occurs only with the value 0 of the second
    [True, False, True, False, True]
    """
    index = consecutive_labels(values[:, j])
    size = int(index.max()) + 1
    line = setting_numbers(np.delete(values, j, axis=1))
    cells = np.unique(line * size + index)
    found = np.bincount(cells // size) == size
    if not found.any():
        rule = f"Some combination of the other factors must occur with all values of the cyclic factor column {j}."
        raise input_error(rule, f"no such combination among {len(found)}", "Pass the whole table, or drop a factor.")
    return np.asarray(found[line])


def subtract_group_means(codes: Float[np.ndarray, "n d"], group: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n d"]:
    """Return the codes minus the mean of the codes with the same group number. Rounding errors are replaced by 0.

    >>> subtract_group_means(np.array([[1.0, 0.3], [3.0, 0.3], [5.0, 0.3]]), np.array([0, 0, 1])).tolist()
    [[-1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]
    """
    counts = np.bincount(group)
    means = np.stack([np.bincount(group, column) for column in codes.T], axis=1) / counts[:, None]
    centred = codes - means[group]
    return np.where(np.abs(centred) <= ROUNDING * np.abs(codes).max(axis=0), 0.0, centred)


def plane_of_largest_variance(codes: Float[np.ndarray, "n d"]) -> Complex[np.ndarray, " n"] | None:
    """Return the coordinates of centred codes in the two directions of largest variance, as complex numbers.

    Each direction is scaled to a variance of 1/2 (ddof 1). If the codes vary in one direction only, this direction is
    scaled to a variance of 1. If the codes do not vary at all, return None.
    """
    left, deviations, _ = np.linalg.svd(codes, full_matrices=False)
    if deviations[0] == 0 or len(codes) < 2:
        return None
    scale = np.sqrt(len(codes) - 1)
    if len(deviations) < 2 or deviations[1] <= FLAT * deviations[0]:
        return np.asarray(scale * left[:, 0] + 0j)
    return np.asarray(scale * np.sqrt(0.5) * (left[:, 0] + 1j * left[:, 1]))


def _dispersion(
    codes: Float[np.ndarray, "n d"], angles: Float[np.ndarray, " n"], group: Int[np.ndarray, " n"], frequencies: int
) -> float:
    """Return the smallest dispersion over all frequencies, after the inverse rotation and averaged over groups."""
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order])) + 1
    parts = [spectrum(codes[rows], angles[rows], frequencies) for rows in np.split(order, starts)]
    return float(np.mean(parts, axis=0).min())


def spectrum(
    codes: Float[np.ndarray, "n d"], angles: Float[np.ndarray, " n"], frequencies: int
) -> Float[np.ndarray, " frequencies"]:
    """Return the dispersion of centred codes after the inverse rotation, for each of the frequencies 1, 2, ...

    For each frequency, this is the smaller of the dispersions for the two directions of rotation.
    """
    plane = plane_of_largest_variance(codes)
    if plane is None:
        return np.ones(frequencies)
    turned = np.exp(-1j * np.outer(np.arange(1, frequencies + 1), angles))
    means = np.maximum(np.abs(turned @ plane), np.abs(turned.conj() @ plane)) / len(plane)
    return np.asarray(np.maximum(np.mean(np.abs(plane) ** 2) - means**2, 0.0))
