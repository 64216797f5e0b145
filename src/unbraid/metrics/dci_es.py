"""DCI-ES: disentanglement, completeness, informativeness, explicitness and size."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int

from unbraid.errors import UserError, unknown_name_message
from unbraid.metrics.arrays import Codes, Factors, check_at_least
from unbraid.metrics.dci import completeness, disentanglement
from unbraid.metrics.labels import Column, Continuous, Labels, as_codes_and_labels, as_test_arrays
from unbraid.metrics.probes import FEATURES, WIDTHS, Curves, fit_curves
from unbraid.metrics.regression import prediction_score
from unbraid.metrics.trees.boosting import as_float32

DEPTHS = (1, 2, 3, 4, 6, 8, 10, 12, 16)
FAMILIES = {"trees": DEPTHS, "mlp": WIDTHS, "rff": FEATURES}  # kinds of probes, and their default sizes


def dci_es(
    codes: Codes,
    factors: Factors,
    test_codes: Codes,
    test_factors: Factors,
    continuous: Continuous = None,
    *,
    depths: Sequence[int] = DEPTHS,
    probes: str = "trees",
    sizes: Sequence[int] | None = None,
    seed: int = 0,
) -> dict[str, float]:
    r"""Measure how explicit a representation is: how little capacity a probe needs to predict the factors.

    .. math:: E = \frac{1}{k} \sum_j \left( 1 - \frac{\int (\ell_j(\kappa) - \min \ell_j)\, d\kappa}
        {\frac12 (\kappa_T - \kappa_1)\, b_j} \right), \qquad S = \frac{k}{d}, \qquad
        I = \frac{1}{k} \sum_j (1 - \min \ell_j)

    There are three kinds of probes, and each kind has its own axis of capacity :math:`\kappa`. Capacity ranges from
    :math:`\kappa_1`, that of the smallest probe, to :math:`\kappa_T`, that of the largest:

    - "trees" (default): decision trees with the given depths. Capacity is the depth.
    - "mlp": a linear probe, and networks with two hidden layers of ReLU units. Capacity is the logarithm of the number
      of parameters of a network, as a mean over factors.
    - "rff": linear probes on random Fourier features, the cosines and sines of :math:`2 \pi \omega \cdot c` with
      random frequencies :math:`\omega \sim N(0, 0.08^2)`. Capacity is the logarithm of the number of features.

    Networks and features receive standardised latents. Linear probes are logistic regressions. The linear probe of
    "mlp" has no penalty, and the linear probes of "rff" have a squared penalty with C = 1.

    :math:`b_j` is the error of the best constant prediction. :math:`\ell_j(\kappa)` is the lowest test error of the
    probes of capacity :math:`\kappa` or less, or :math:`b_j` if :math:`b_j` is lower. The formula of informativeness I
    is an exception: its :math:`\min \ell_j` is the lowest test error of the probes, even if :math:`b_j` is lower. The
    integral, the area under the loss-capacity curve, is computed by the trapezoidal rule. Disentanglement and
    completeness are computed as in `dci`, from the importances of the latents to the probes of one capacity: the
    capacity with the lowest mean error over all factors. The importances are impurity decreases for trees. For other
    probes, they are the rises of the test error when the values of one latent are permuted among the test examples.

    Explicitness E lies in [-1, 1]. 1 means that the probes with the least capacity are as good as all others. 0 means
    that the error falls linearly with capacity. Negative values mean that only probes with the most capacity are good.
    A representation without information also has explicitness 1, because no probe is better than the first. Read E
    together with `mean_informativeness`, which is the mean of :math:`1 - \ell_j(\kappa) / b_j` over capacities and
    factors: 0 means that no probe is better than a constant prediction, and 1 means that the probes with the least
    capacity are always right. Size S is the number k of factors divided by the number d of latents. It is 1 if there
    are as many latents as factors, and lower if there are more latents. Scores of different probes or sizes must not be
    compared.

    A test value that does not occur in the training examples is always counted as an error. For 10,000 training and
    5,000 test examples with 10 latents and 5 factors with 3 to 40 values, one core needs less than a minute for "mlp"
    or "rff", and a few seconds for "trees".

    Continuous factors: Regressions take the place of classifiers, and the error is 1 minus the coefficient of
    determination, limited to [0, 1]. For each factor, only the rows that have a label for it are used.

    Limitations: A tree of depth t has at most :math:`2^t` leaves, so factors with many values need deep trees even if a
    latent holds them exactly, and perfect codes have an explicitness below 1. Compare scores with those of perfect
    codes on the same factors. Trees cut along single latents, so rotated codes score lower. The scores of "mlp" hardly
    change if codes are rotated, except disentanglement and completeness. Random features vary slowly along each
    latent. With "rff", factors with many values therefore have high errors, unless they are declared continuous.

    Deviations: For "trees", the paper uses random forests of 100 trees with growing depth, and here there are single
    trees. Their cuts minimise the entropy and not the Gini impurity, because the Gini impurity is the same for all cuts
    between equally frequent values of a perfect latent. Networks and features have the forms of the authors' code, but
    fewer sizes: up to 243 instead of 3,603 units, and up to 1,024 instead of 131,072 features. Networks are trained for
    about 1,500 steps of Adam with 256 examples each, instead of about 23,000 steps with 128. The linear probes on
    features are fitted by L-BFGS instead of Adam. As in the code of the authors, the denominator of E contains
    :math:`b_j` and not :math:`b_j` minus the lowest possible error, and :math:`\kappa` is a logarithm for networks and
    features. The authors select the training step of a network on validation examples. Here the last step is used. The
    importances are not Shapley values. `mean_informativeness` is not in the paper. It is the headline score, because
    the explicitness of noise is 1.

    Reference: Eastwood et al. (2023), arXiv:2210.00364.

    Args:
        codes: Array of shape (n, d), one row per example and one column per latent.
        factors: Array of shape (n, k), one row per example and one column per factor. Discrete factors are
            integers. NaN is a missing label.
        test_codes: Array of shape (m, d), the codes of the test examples.
        test_factors: Array of shape (m, k), the factors of the test examples.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        depths: Depths of the trees, at least two, in increasing order.
        probes: Kind of probes: "trees", "mlp" (networks) or "rff" (random Fourier features).
        sizes: For "mlp", the number of units in each hidden layer of each network, where 0 means a linear probe. For
            "rff", the number of features of each probe. At least two, in increasing order. By default, (0, 14, 28, 47,
            75, 131, 243) units, and the powers of two from 16 to 1,024 features.
        seed: Random seed that breaks ties between equally good cuts, and draws initial weights, batches, frequencies
            and permutations.

    Returns:
        `mean_informativeness`, `explicitness`, `size`, `disentanglement`, `completeness` and `informativeness`.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, if a factor is constant in training, if there are fewer than 2 latents
            or 2 factors, if the kind of probes is unknown, if there are fewer than 2 depths or sizes or they do not
            increase, or if larger networks do not have more parameters than smaller ones.

    Example:
        >>> factors = np.indices((2, 2)).reshape(2, -1).T
        >>> scores = dci_es(factors, factors, factors, factors)
        >>> scores["explicitness"], scores["mean_informativeness"], scores["size"]
        (1.0, 1.0, 1.0)
    """
    chosen = _check_sizes(probes, depths, sizes)
    table, labels = as_codes_and_labels(codes, factors, continuous, min_codes=2, min_factors=2)
    test_table, test_labels = as_test_arrays(test_codes, test_factors, table, labels)
    fit = _tree_curves if probes == "trees" else partial(fit_curves, probes)
    errors, capacities, importances = fit(table, labels, test_table, test_labels, chosen, seed)
    best = importances(int(errors.mean(axis=1).argmin()))
    baselines = np.array([_baseline(column) for column in labels.columns()])
    curves = np.minimum.accumulate(np.minimum(errors, baselines))
    return {
        "mean_informativeness": float(np.mean(1 - _mean_over_capacity(curves, capacities) / baselines)),
        "explicitness": explicitness_of_curves(curves, capacities, baselines),
        "size": len(baselines) / table.shape[1],
        "disentanglement": disentanglement(best)[0],
        "completeness": completeness(best)[0],
        "informativeness": float(np.mean(1 - errors.min(axis=0))),
    }


class Probes(NamedTuple):
    """The results of the trees of one factor: their test errors and the importances of the latents, for each depth."""

    errors: Float[np.ndarray, " t"]
    importances: Float[np.ndarray, "t d"]


def _check_sizes(probes: str, depths: Sequence[int], sizes: Sequence[int] | None) -> Sequence[int]:
    """Return the sizes of the probes, or raise a `UserError` if they are not at least two increasing numbers."""
    if probes not in FAMILIES:
        raise UserError(unknown_name_message("kind of probes", probes, FAMILIES))
    if probes == "trees" and sizes is not None:
        raise UserError(f"The sizes of trees must be given as 'depths'. Got sizes={list(sizes)} instead.")
    name, chosen = ("depths", depths) if probes == "trees" else ("sizes", FAMILIES[probes] if sizes is None else sizes)
    low = 0 if probes == "mlp" else 1
    check_at_least(low, **{name: min(chosen, default=low - 1)})
    if len(chosen) < 2 or any(a >= b for a, b in itertools.pairwise(chosen)):
        raise UserError(f"The '{name}' must be at least 2 increasing numbers. Got {list(chosen)} instead.")
    return chosen


def _tree_curves(
    codes: Float[np.ndarray, "n d"],
    labels: Labels,
    test_codes: Float[np.ndarray, "m d"],
    test_labels: Labels,
    depths: Sequence[int],
    seed: int,
) -> Curves:
    """Fit the trees of all factors. Their capacity is their depth."""
    train, test = as_float32(codes), as_float32(test_codes)
    probes = [
        _fit_probes(train, column, test, test_column, depths, seed)
        for column, test_column in zip(labels.columns(), test_labels.columns(), strict=True)
    ]
    errors = np.stack([probe.errors for probe in probes], axis=1)
    return Curves(
        errors,
        np.asarray(depths, np.float64),
        lambda index: np.stack([probe.importances[index] for probe in probes], axis=1),
    )


def _fit_probes(
    codes: Float32[np.ndarray, "n d"],
    column: Column,
    test_codes: Float32[np.ndarray, "m d"],
    test_column: Column,
    depths: Sequence[int],
    seed: int,
) -> Probes:
    """Fit the trees of one factor.

    Only the deepest tree is fitted. Cuts are chosen greedily, so the first levels of this tree are the less deep trees.
    """
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    kind, criterion = (
        (DecisionTreeRegressor, "squared_error") if column.continuous else (DecisionTreeClassifier, "entropy")
    )
    model = kind(criterion=criterion, max_depth=max(depths), random_state=seed).fit(codes[column.rows], column.values)
    tree = model.tree_
    values = tree.value[:, 0, 0] if column.continuous else model.classes_[tree.value[:, 0].argmax(axis=1)]
    nodes = _nodes_by_depth(tree, test_codes[test_column.rows])
    errors = [1 - prediction_score(values[nodes[min(depth, len(nodes) - 1)]], test_column) for depth in depths]
    return Probes(np.array(errors), np.stack([_importances(tree, codes.shape[1], depth) for depth in depths]))


def _nodes_by_depth(tree: Any, codes: Float32[np.ndarray, "m d"]) -> Int[np.ndarray, "levels m"]:
    """Return the node of each row at each depth of a scikit-learn tree. A row stays in its leaf at larger depths."""
    rows, nodes = np.arange(len(codes)), [np.zeros(len(codes), dtype=np.int64)]
    for _ in range(tree.max_depth):
        node = nodes[-1]
        left = codes[rows, np.maximum(0, tree.feature[node])] <= tree.threshold[node]
        child = np.where(left, tree.children_left[node], tree.children_right[node])
        nodes.append(np.where(child >= 0, child, node))
    return np.stack(nodes).astype(np.int64)  # because the node numbers of scikit-learn have the type long long


def _importances(tree: Any, d: int, depth: int) -> Float[np.ndarray, " d"]:
    """Return each latent's share of the impurity decrease by cuts in the first `depth` levels.

    If no cut decreases the impurity, all shares are 0.
    """
    levels = np.zeros(tree.node_count, dtype=np.int64)
    weighted = tree.impurity * tree.weighted_n_node_samples
    gains = np.zeros(d)
    for node in np.flatnonzero(tree.children_left >= 0):  # a node has a smaller number than its children
        left, right = tree.children_left[node], tree.children_right[node]
        levels[[left, right]] = levels[node] + 1
        if levels[node] < depth:
            gains[tree.feature[node]] += weighted[node] - weighted[left] - weighted[right]
    return np.asarray(gains / (gains.sum() or 1.0))


def _baseline(column: Column) -> float:
    """Return the error of the best constant prediction for the training examples of one factor."""
    if column.continuous:
        return 1.0
    return 1 - float(np.unique(column.values, return_counts=True)[1].max()) / len(column.values)


def explicitness_of_curves(
    curves: Float[np.ndarray, "t k"],
    capacities: Sequence[float] | Float[np.ndarray, " t"],
    baselines: Float[np.ndarray, " k"],
) -> float:
    """Return the explicitness of loss-capacity curves that do not increase, averaged over factors.

    >>> explicitness_of_curves(np.array([[1.0], [0.5], [0.0]]), [1, 2, 3], np.ones(1))
    0.0
    """
    areas = _mean_over_capacity(curves, capacities) - curves[-1]
    return float(np.mean(1 - 2 * areas / baselines))


def _mean_over_capacity(
    curves: Float[np.ndarray, "t k"], capacities: Sequence[float] | Float[np.ndarray, " t"]
) -> Float[np.ndarray, " k"]:
    """Return the mean of each curve over capacity, by the trapezoidal rule."""
    steps = np.diff(np.asarray(capacities, dtype=np.float64))
    return np.asarray(steps @ (curves[:-1] + curves[1:]) / 2 / steps.sum())
