"""Theorem 1: a factorised prior has completely entangled twins that no likelihood can tell from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from pandas import DataFrame
from scipy.special import ndtr, ndtri

from unbraid.analysis import plots
from unbraid.analysis.results_table import Array, Result, refuse, score_name
from unbraid.metrics import TRAITS
from unbraid.metrics.protocol import Rows, chosen

Function = Callable[[Array], Array]
LARGEST = 1 - 2.0**-53  # the largest probability below one
SMALLEST = float(np.finfo(float).tiny)


class Marginal(NamedTuple):
    """The distribution of one latent: its distribution function, the inverse, and the density where it is needed."""

    cdf: Function
    icdf: Function
    density: Function | None = None


Marginals = str | Sequence[Sequence[Any]]


def householder(d: int, alpha: float = 0.25) -> Array:
    r"""The orthogonal matrix without zeros of the proof: a reflection.

    .. math:: A = I - 2 v v^T, \quad v_1 = \sqrt\alpha, \; v_i = \sqrt{(1 - \alpha) / (d - 1)}

    with :math:`0 < \alpha < 1/2`. Then :math:`v^T v = 1` and no :math:`v_i^2` is 0 or 1/2, so that neither
    :math:`A_{ii} = 1 - 2 v_i^2` nor :math:`A_{ij} = -2 v_i v_j` is zero. (The proof's text has :math:`-v_i v_j`.)
    The more latents, the nearer it is to the identity; `rotation` mixes all of them alike.

    Reference: Locatello et al. (2019), arXiv:1811.12359, appendix A.

    >>> householder(2).round(3).tolist()
    [[0.5, -0.866], [-0.866, -0.5]]
    """
    if d < 2:
        refuse("A code must have at least 2 latents to be entangled.", f"{d}", "Add a latent.")
    if not 0 < alpha < 0.5:
        refuse("The 'alpha' parameter must lie between 0 and 0.5.", f"{alpha}", "Take 0.25, for example.")
    v = np.full(d, np.sqrt((1 - alpha) / (d - 1)))
    v[0] = np.sqrt(alpha)
    return np.asarray(np.eye(d) - 2 * np.outer(v, v))


def rotation(d: int, seed: int = 0) -> Array:
    """A uniformly drawn orthogonal matrix: another member of the family, which mixes all latents alike."""
    if d < 2:
        refuse("A code must have at least 2 latents to be entangled.", f"{d}", "Add a latent.")
    q, r = np.linalg.qr(np.random.default_rng([seed, d]).normal(size=(d, d)))
    return np.asarray(q * np.sign(np.diag(r)))


def entangle(z: Any, marginals: Marginals = "normal", matrix: Array | None = None) -> Array:
    r"""Latents mapped one to one onto latents of the same distribution, each of which depends on all.

    .. math:: f(u) = g^{-1}(h^{-1}(A\, h(g(u)))), \quad g_i = F_i, \; h_i = \Phi^{-1}

    For z of independent entries with distribution functions F_i, (n, d), the entries of f(z) are again independent with
    the same distributions, while every :math:`\partial f_i / \partial u_j` is nonzero almost everywhere.
    `marginals` is "normal" (then f(z) = Az, exactly) or for each latent a pair of functions: distribution function and
    inverse, with the density as a third where a Jacobian is wanted. `matrix` is `householder(d)` if none is given.

    Limits: where a distribution function rounds to 0 or 1, z is pulled to the nearest value that can be told apart.
    Reference: Locatello et al. (2019), arXiv:1811.12359, theorem 1 and appendix A.

    >>> entangle([[1.0, 0.0]]).round(3).tolist()
    [[0.5, -0.866]]
    """
    codes, mixing = prepared(z, matrix)
    functions = each(marginals, codes.shape[1])
    return from_normal(to_normal(codes, functions) @ mixing.T, functions)


def disentangle(z: Any, marginals: Marginals = "normal", matrix: Array | None = None) -> Array:
    """The inverse of `entangle` with the same marginals and matrix."""
    codes, mixing = prepared(z, matrix)
    functions = each(marginals, codes.shape[1])
    return from_normal(to_normal(codes, functions) @ mixing, functions)


def jacobian(z: Any, marginals: Marginals = "normal", matrix: Array | None = None) -> Array:
    r"""The derivatives of `entangle` at each row of z, (n, d, d).

    .. math:: \frac{\partial f_i}{\partial u_j} = \frac{\varphi(y_i)}{p_i(f_i)} A_{ij} \frac{p_j(u_j)}{\varphi(x_j)},
        \quad x = h(g(u)), \; y = A x

    Its determinant is :math:`\pm \prod_i p_i(u_i) / p_i(f_i)`, and :math:`\pm 1` for normal marginals.
    """
    codes, mixing = prepared(z, matrix)
    functions = each(marginals, codes.shape[1])
    if functions is None:
        return np.broadcast_to(mixing, (len(codes), *mixing.shape)).copy()
    x = to_normal(codes, functions)
    y = x @ mixing.T
    out, into = density(from_normal(y, functions), functions) / bell(y), density(codes, functions) / bell(x)
    return np.asarray(mixing * into[:, None, :] / out[:, :, None])


def prepared(z: Any, matrix: Array | None) -> tuple[Array, Array]:
    """Codes as rows of floats, and a matrix that is orthogonal and has no zeros."""
    codes = np.asarray(z, float)
    if codes.ndim != 2:
        refuse("Latents must be a table (n, d).", f"shape {codes.shape}", "Pass one row a point.")
    d = codes.shape[1]
    mixing = householder(d) if matrix is None else np.asarray(matrix, float)
    if mixing.shape != (d, d) or not np.allclose(mixing @ mixing.T, np.eye(d), atol=1e-8):
        refuse(
            f"The matrix must be orthogonal, ({d}, {d}).", f"shape {mixing.shape}", "Take 'householder' or 'rotation'."
        )
    if (mixing == 0).any():
        refuse(
            "The matrix must have no zeros, or some latents stay apart.", "zeros", "Take 'householder' or 'rotation'."
        )
    return codes, mixing


def each(marginals: Marginals, d: int) -> list[Marginal] | None:
    """The functions of each latent; None for standard normal latents, which need none."""
    if isinstance(marginals, str):
        if marginals != "normal":
            refuse("Marginals must be 'normal' or functions.", repr(marginals), "Pass d pairs (cdf, inverse cdf).")
        return None
    if len(marginals) != d or not all(2 <= len(functions) <= 3 for functions in marginals):
        refuse(f"Marginals must be {d} pairs or triples of functions.", f"{len(marginals)}", "Pass one a latent.")
    return [Marginal(*functions) for functions in marginals]


def to_normal(z: Array, functions: list[Marginal] | None) -> Array:
    """Latents made standard normal, each by its own distribution function."""
    if functions is None:
        return z
    uniform = np.stack([marginal.cdf(column) for marginal, column in zip(functions, z.T, strict=True)], 1)
    return np.asarray(ndtri(np.clip(uniform, SMALLEST, LARGEST)))


def from_normal(x: Array, functions: list[Marginal] | None) -> Array:
    """Standard normal latents given their own distributions back."""
    if functions is None:
        return x
    uniform = np.clip(ndtr(x), SMALLEST, LARGEST)
    return np.stack([marginal.icdf(column) for marginal, column in zip(functions, uniform.T, strict=True)], 1)


def density(z: Array, functions: list[Marginal]) -> Array:
    """The density of each latent."""
    columns = []
    for marginal, column in zip(functions, z.T, strict=True):
        if marginal.density is None:
            refuse(
                "A Jacobian needs the density of every latent.", "pairs", "Pass triples (cdf, inverse cdf, density)."
            )
        columns.append(marginal.density(column))
    return np.stack(columns, 1)


def bell(x: Array) -> Array:
    """The standard normal density."""
    return np.asarray(np.exp(-0.5 * x**2) / np.sqrt(2 * np.pi))


def collapse(
    codes: Any,
    factors: Any,
    metrics: Sequence[str] = ("mig", "dci", "sap"),
    *,
    matrix: Array | None = None,
    seed: int = 0,
) -> Result:
    """Scores of codes before and after they are entangled as theorem 1 says, for a standard normal prior.

    The matrix is `rotation(d, seed)` if none is given. A model with the turned codes is as likely as the one before
    (`entangled`), so that nothing but labels can choose between the two.

    Table: a row a metric: `metric`, `before`, `after`.
    Reference: Locatello et al. (2019), arXiv:1811.12359, theorem 1.
    """
    before = np.asarray(codes, float)
    turned = entangle(before, matrix=rotation(before.shape[1], seed) if matrix is None else matrix)
    labels = np.asarray(factors)
    lines = []
    for metric in chosen(metrics):
        pair = [headline_score(metric, part, labels, seed) for part in (before, turned)]
        lines.append({"metric": metric, "before": pair[0], "after": pair[1]})
    found = DataFrame(lines)
    said = [f"{score_name(row.metric)} from {row.before:.2f} to {row.after:.2f}" for row in found.itertuples()]
    text = f"Turning the codes, which changes no likelihood, moves {', '.join(said)}."
    return Result(found, draw_collapse(found), text)


def headline_score(metric: str, codes: Array, factors: Any, seed: int) -> float:
    """The headline of one metric of a table of codes, two thirds of it to fit and one third to test."""
    rows = Rows.split(codes, factors, 2 * len(codes), len(codes), seed)
    return float(rows.score([metric], seed).whole()[metric][TRAITS[metric].headline])


def draw_collapse(found: DataFrame) -> Figure:
    """Two bars a metric."""
    figure, (axes,) = plots.panels(1, size=(4.5, 2.6))
    places = np.arange(len(found))
    for shift, (column, name) in zip((-0.2, 0.2), (("before", "as it was"), ("after", "turned")), strict=True):
        color = plots.PALETTE[0] if column == "before" else plots.PALETTE[1]
        bars = axes.bar(places + shift, found[column], 0.38, color=color, label=name)
        axes.bar_label(bars, fmt=plots.short, size=plots.SMALL)
    axes.set_xticks(places, [score_name(metric) for metric in found["metric"]], size=plots.LABEL)
    axes.legend(fontsize=plots.LABEL, frameon=False)
    plots.label(axes, "Two models with the same likelihood", y="score")
    return figure
