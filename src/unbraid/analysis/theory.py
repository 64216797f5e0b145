"""Theorem 1 of Locatello et al. (2019): every model with a factorised prior has an equivalent entangled model.

Both models have the same likelihood, so they cannot be distinguished without labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from pandas import DataFrame
from scipy.special import ndtr, ndtri

from unbraid.analysis import plots
from unbraid.analysis.results_table import Array, Result, reject, score_name
from unbraid.metrics import TRAITS
from unbraid.metrics.protocol import Rows, resolve_metric_names

Function = Callable[[Array], Array]
MAX_PROBABILITY = 1 - 2.0**-53  # the largest probability below one
MIN_PROBABILITY = float(np.finfo(float).tiny)


class Marginal(NamedTuple):
    """The distribution function of one latent, its inverse, and its density. Only `jacobian` needs the density."""

    cdf: Function
    icdf: Function
    density: Function | None = None


Marginals = str | Sequence[Sequence[Any]]


def householder(d: int, alpha: float = 0.25) -> Array:
    r"""Return the orthogonal matrix without zeros that is used in the proof of theorem 1. It is a reflection.

    .. math:: A = I - 2 v v^T, \quad v_1 = \sqrt\alpha, \; v_i = \sqrt{(1 - \alpha) / (d - 1)}

    :math:`v^T v = 1`, and no :math:`v_i^2` is 0 or 1/2, so neither :math:`A_{ii} = 1 - 2 v_i^2` nor
    :math:`A_{ij} = -2 v_i v_j` is zero. (The proof in the paper has :math:`-v_i v_j`, without the factor 2.) With many
    latents, the matrix is close to the identity. Use `rotation` to mix all latents equally.

    Reference: Locatello et al. (2019), arXiv:1811.12359, appendix A.

    Args:
        d: Number of latents, at least 2.
        alpha: A number between 0 and 0.5.

    Returns:
        The matrix A, (d, d).

    Raises:
        UserError: If an argument is out of range.

    >>> householder(2).round(3).tolist()
    [[0.5, -0.866], [-0.866, -0.5]]
    """
    if d < 2:
        reject("A code must have at least 2 latents to be entangled.", f"{d}", "Add a latent.")
    if not 0 < alpha < 0.5:
        reject("The 'alpha' parameter must lie between 0 and 0.5.", f"{alpha}", "Use 0.25, for example.")
    v = np.full(d, np.sqrt((1 - alpha) / (d - 1)))
    v[0] = np.sqrt(alpha)
    return np.asarray(np.eye(d) - 2 * np.outer(v, v))


def rotation(d: int, seed: int = 0) -> Array:
    """Return a uniformly distributed random orthogonal matrix, which mixes all latents equally.

    Args:
        d: Number of latents, at least 2.
        seed: Random seed.

    Returns:
        The matrix, (d, d).

    Raises:
        UserError: If d is less than 2.
    """
    if d < 2:
        reject("A code must have at least 2 latents to be entangled.", f"{d}", "Add a latent.")
    q, r = np.linalg.qr(np.random.default_rng([seed, d]).normal(size=(d, d)))
    return np.asarray(q * np.sign(np.diag(r)))


def entangle(z: Any, marginals: Marginals = "normal", matrix: Array | None = None) -> Array:
    r"""Map latents to entangled latents with the same distribution, each of which depends on all original latents.

    .. math:: f(u) = g^{-1}(h^{-1}(A\, h(g(u)))), \quad g_i = F_i, \; h_i = \Phi^{-1}

    Here u is one row of z, F_i is the distribution function of latent i, and :math:`\Phi` is that of the standard
    normal distribution. The map is one to one. If the entries of z are independent with distribution functions F_i, the
    entries of f(z) are independent with the same distributions. Nevertheless, every
    :math:`\partial f_i / \partial u_j` is nonzero almost everywhere. If the value of a distribution function rounds to
    0 or 1, the nearest probability strictly between 0 and 1 is used.

    Reference: Locatello et al. (2019), arXiv:1811.12359, theorem 1 and appendix A.

    Args:
        z: Latents, (n, d).
        marginals: "normal" for standard normal latents, for which f(z) = Az exactly. Otherwise a sequence with a pair
            for each latent: its distribution function and the inverse. The density may be given as a third function.
        matrix: An orthogonal matrix A without zeros, (d, d). By default `householder(d)`.

    Returns:
        The mapped latents f(z), (n, d).

    Raises:
        UserError: If z is not two-dimensional, or if the marginals or the matrix are invalid.

    >>> entangle([[1.0, 0.0]]).round(3).tolist()
    [[0.5, -0.866]]
    """
    codes, mixing = check_inputs(z, matrix)
    functions = marginal_functions(marginals, codes.shape[1])
    return from_normal(to_normal(codes, functions) @ mixing.T, functions)


def disentangle(z: Any, marginals: Marginals = "normal", matrix: Array | None = None) -> Array:
    """Invert `entangle`.

    Args:
        z: Latents that were mapped by `entangle`, (n, d).
        marginals: The marginals that were passed to `entangle`.
        matrix: The matrix that was passed to `entangle`.

    Returns:
        The original latents, (n, d).

    Raises:
        UserError: As in `entangle`.
    """
    codes, mixing = check_inputs(z, matrix)
    functions = marginal_functions(marginals, codes.shape[1])
    return from_normal(to_normal(codes, functions) @ mixing, functions)


def jacobian(z: Any, marginals: Marginals = "normal", matrix: Array | None = None) -> Array:
    r"""Compute the Jacobian of `entangle` at each row of z.

    .. math:: \frac{\partial f_i}{\partial u_j} = \frac{\varphi(y_i)}{p_i(f_i)} A_{ij} \frac{p_j(u_j)}{\varphi(x_j)},
        \quad x = h(g(u)), \; y = A x

    The functions f, g and h are those of `entangle`, p_i is the density of latent i, and :math:`\varphi` is the
    standard normal density. The determinant of the Jacobian is :math:`\pm \prod_i p_i(u_i) / p_i(f_i)`, which is
    :math:`\pm 1` for normal marginals.

    Args:
        z: Latents, (n, d).
        marginals: "normal", or a sequence with three functions for each latent: its distribution function, the inverse
            and the density.
        matrix: The matrix A, as in `entangle`.

    Returns:
        The Jacobians, (n, d, d).

    Raises:
        UserError: As in `entangle`, or if a density is missing.
    """
    codes, mixing = check_inputs(z, matrix)
    functions = marginal_functions(marginals, codes.shape[1])
    if functions is None:
        return np.broadcast_to(mixing, (len(codes), *mixing.shape)).copy()
    x = to_normal(codes, functions)
    y = x @ mixing.T
    output_ratio = marginal_densities(from_normal(y, functions), functions) / normal_density(y)
    input_ratio = marginal_densities(codes, functions) / normal_density(x)
    return np.asarray(mixing * input_ratio[:, None, :] / output_ratio[:, :, None])


def check_inputs(z: Any, matrix: Array | None) -> tuple[Array, Array]:
    """Return latents as an array of floats, (n, d), and the matrix, which is `householder(d)` by default.

    Raise a UserError if the latents are not two-dimensional, or if the matrix is not orthogonal or has zeros.
    """
    codes = np.asarray(z, float)
    if codes.ndim != 2:
        reject("Latents must be an array (n, d).", f"shape {codes.shape}", "Pass one row per example.")
    d = codes.shape[1]
    mixing = householder(d) if matrix is None else np.asarray(matrix, float)
    remedy = "Use 'householder' or 'rotation'."
    if mixing.shape != (d, d) or not np.allclose(mixing @ mixing.T, np.eye(d), atol=1e-8):
        reject(f"The matrix must be orthogonal with shape ({d}, {d}).", f"shape {mixing.shape}", remedy)
    if (mixing == 0).any():
        reject("The matrix must have no zeros, because all latents must be mixed.", "zeros", remedy)
    return codes, mixing


def marginal_functions(marginals: Marginals, d: int) -> list[Marginal] | None:
    """Return the functions of each latent, or None for standard normal latents, which need no functions."""
    if isinstance(marginals, str):
        if marginals != "normal":
            reject("Marginals must be 'normal' or functions.", repr(marginals), "Pass (cdf, inverse) per latent.")
        return None
    if len(marginals) != d or not all(2 <= len(functions) <= 3 for functions in marginals):
        reject(f"Marginals must be {d} pairs or triples of functions.", f"{len(marginals)}", "Pass one per latent.")
    return [Marginal(*functions) for functions in marginals]


def to_normal(z: Array, functions: list[Marginal] | None) -> Array:
    """Transform each latent to a standard normal distribution by its distribution function."""
    if functions is None:
        return z
    uniform = np.stack([marginal.cdf(column) for marginal, column in zip(functions, z.T, strict=True)], 1)
    return np.asarray(ndtri(np.clip(uniform, MIN_PROBABILITY, MAX_PROBABILITY)))


def from_normal(x: Array, functions: list[Marginal] | None) -> Array:
    """Transform standard normal latents back to their own distributions."""
    if functions is None:
        return x
    uniform = np.clip(ndtr(x), MIN_PROBABILITY, MAX_PROBABILITY)
    return np.stack([marginal.icdf(column) for marginal, column in zip(functions, uniform.T, strict=True)], 1)


def marginal_densities(z: Array, functions: list[Marginal]) -> Array:
    """Return the density of each latent at each row of z, (n, d)."""
    columns = []
    for marginal, column in zip(functions, z.T, strict=True):
        if marginal.density is None:
            reject(
                "A Jacobian needs the density of every latent.", "pairs", "Pass triples (cdf, inverse cdf, density)."
            )
        columns.append(marginal.density(column))
    return np.stack(columns, 1)


def normal_density(x: Array) -> Array:
    """Return the standard normal density."""
    return np.asarray(np.exp(-0.5 * x**2) / np.sqrt(2 * np.pi))


def collapse(
    codes: Any,
    factors: Any,
    metrics: Sequence[str] = ("mig", "dci", "sap"),
    *,
    matrix: Array | None = None,
    seed: int = 0,
) -> Result:
    """Score codes before and after they are entangled as in theorem 1, for a standard normal prior.

    A model with the rotated codes has the same likelihood (see `entangled_twin`), so the two models cannot be
    distinguished without labels.

    Reference: Locatello et al. (2019), arXiv:1811.12359, theorem 1.

    Args:
        codes: Codes, (n, d).
        factors: Values of the factors as integers, (n, k).
        metrics: Names of metrics.
        matrix: An orthogonal matrix without zeros, (d, d). By default `rotation(d, seed)`.
        seed: Random seed for the matrix and the metrics.

    Returns:
        A result whose table has one row per metric: `metric`, `before`, `after`.

    Raises:
        UserError: If a metric is unknown or cannot be computed, or if the matrix is invalid.
    """
    before = np.asarray(codes, float)
    rotated = entangle(before, matrix=rotation(before.shape[1], seed) if matrix is None else matrix)
    labels = np.asarray(factors)
    lines = []
    for metric in resolve_metric_names(metrics):
        pair = [headline_score(metric, part, labels, seed) for part in (before, rotated)]
        lines.append({"metric": metric, "before": pair[0], "after": pair[1]})
    summary = DataFrame(lines)
    changes = [f"{score_name(row.metric)} from {row.before:.2f} to {row.after:.2f}" for row in summary.itertuples()]
    text = f"Rotating the codes, which does not change the likelihood, changes {', '.join(changes)}."
    return Result(summary, draw_collapse(summary), text)


def headline_score(metric: str, codes: Array, factors: Any, seed: int) -> float:
    """Return the headline score of a metric.

    Metrics with a test sample are fitted to two thirds of the rows and tested on one third. Other metrics use all rows.
    """
    rows = Rows.sample_disjoint(codes, factors, 2 * len(codes), len(codes), seed)
    return float(rows.score([metric], seed).values_or_raise()[metric][TRAITS[metric].headline])


def draw_collapse(summary: DataFrame) -> Figure:
    """Draw two bars per metric, for the scores before and after the rotation."""
    figure, (axes,) = plots.panel_figure(1, size=(4.5, 2.6))
    positions = np.arange(len(summary))
    for shift, (column, name) in zip((-0.2, 0.2), (("before", "original"), ("after", "rotated")), strict=True):
        color = plots.PALETTE[0] if column == "before" else plots.PALETTE[1]
        bars = axes.bar(positions + shift, summary[column], 0.38, color=color, label=name)
        axes.bar_label(bars, fmt=plots.format_score, size=plots.SMALL)
    axes.set_xticks(positions, [score_name(metric) for metric in summary["metric"]], size=plots.LABEL)
    axes.legend(fontsize=plots.LABEL, frameon=False)
    plots.set_labels(axes, "Two models with the same likelihood", y="score")
    return figure
