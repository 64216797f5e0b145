"""Shared drawing: heat maps with numbers, medians with quartiles, one look for a method in every figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pandas import DataFrame

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#999999")  # Okabe and Ito's
MARKERS = "osD^vPX*"
TITLE, LABEL, SMALL = 10, 9, 8
METHOD_NAMES = {
    "beta_vae": "beta-VAE",
    "factor_vae": "FactorVAE",
    "beta_tcvae": "beta-TCVAE",
    "dip_vae_i": "DIP-VAE-I",
    "dip_vae_ii": "DIP-VAE-II",
    "annealed_vae": "AnnealedVAE",
}

Look = dict[str, Any]


def method_name(method: str) -> str:
    """A method's name for a figure."""
    return METHOD_NAMES.get(method, method)


def looks(names: Iterable[str]) -> dict[str, Look]:
    """A colour and a marker a name; the paper's methods come in its order and have the same in every figure."""
    wanted = list(dict.fromkeys(names))
    order = [*METHOD_NAMES, *(name for name in wanted if name not in METHOD_NAMES)]
    if not set(wanted) & set(METHOD_NAMES):
        order = wanted
    n, m = len(PALETTE), len(MARKERS)
    styles = {name: {"color": PALETTE[i % n], "marker": MARKERS[i % m]} for i, name in enumerate(order)}
    return {name: look for name, look in styles.items() if name in wanted}


def panels(
    count: int, *, across: int = 4, size: tuple[float, float] = (3.0, 2.6), **share: Any
) -> tuple[Figure, list[Axes]]:
    """A figure with so many axes, `across` in a row, the first row shorter; `size` is that of one, in inches."""
    columns = min(count, across)
    rows = -(-count // columns)
    first = count - (rows - 1) * columns
    figure, grid = matrix(rows, columns, size=size, **share)
    for spare in grid[0, first:]:
        spare.set_visible(False)
    return figure, [*grid[0, :first], *grid[1:].flat]


def outer(axes: Axes) -> None:
    """Keep the names of rows and columns of a heat map only at the left and lower edge of its figure."""
    place = axes.get_subplotspec()
    if place is not None and not place.is_first_col():
        axes.set_yticklabels([])
    if place is not None and not place.is_last_row():
        axes.set_xticklabels([])


def matrix(rows: int, columns: int, *, size: tuple[float, float] = (2.0, 1.7), **share: Any) -> tuple[Figure, Any]:
    """A figure with a matrix of axes, and the axes as an array."""
    figure = Figure(figsize=(max(size[0] * columns, 4.5), max(size[1] * rows + 0.5, 2.8)), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, **share)
    for axes in grid.flat:
        axes.tick_params(labelsize=SMALL)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, grid


def label(axes: Axes, title: str = "", x: str = "", y: str = "") -> None:
    """Title and names of the axes, in the sizes of all figures."""
    if title:
        axes.set_title(title, size=TITLE)
    if x:
        axes.set_xlabel(x, size=LABEL)
    if y:
        axes.set_ylabel(y, size=LABEL)


def edges(grid: Any, titles: Sequence[str], sides: Sequence[str], x: str) -> None:
    """Titles above the first row of a matrix of axes, names beside the first column, `x` below the last row."""
    for axes, title in zip(grid[0], titles, strict=True):
        label(axes, title)
    for axes, side in zip(grid[:, 0], sides, strict=True):
        label(axes, y=side)
    for axes in grid[-1]:
        label(axes, x=x)


def heat(
    axes: Axes,
    frame: DataFrame,
    *,
    low: float = -1.0,
    high: float = 1.0,
    cmap: str = "RdBu_r",
    form: Callable[[float], str] | None = None,
) -> None:
    """A matrix as shades and numbers, its index down and its columns across; NaN is grey with a dash."""
    values = frame.to_numpy(float)
    shades = colormaps[cmap].with_extremes(bad="#E8E8E8")
    axes.imshow(np.ma.masked_invalid(values), vmin=low, vmax=high, cmap=shades, aspect="auto")
    for i, j in np.ndindex(*values.shape):
        value = values[i, j]
        text = (form or short)(value) if np.isfinite(value) else "–"
        axes.text(j, i, text, ha="center", va="center", size=SMALL, color=ink(shades, (value - low) / (high - low)))
    axes.set_xticks(range(len(frame.columns)), list(frame.columns), rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(frame.index)), list(frame.index))
    axes.tick_params(length=0, labelsize=SMALL)
    axes.spines[:].set_visible(False)


def ink(shades: Any, place: float) -> str:
    """Black or white, whichever is read better on a shade."""
    if not np.isfinite(place):
        return "black"
    red, green, blue, _ = shades(min(max(place, 0.0), 1.0))
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


def short(value: float) -> str:
    """Two decimals without a leading zero.

    >>> short(0.5), short(-0.126), short(1.0), short(-0.001)
    ('.50', '-.13', '1.00', '.00')
    """
    text = f"{value:.2f}".replace("0.", ".", 1)
    return ".00" if text == "-.00" else text


def percent(share: float) -> str:
    """A share in per cent, rounded.

    >>> percent(0.549)
    '55 %'
    """
    return f"{100 * share:.0f} %"


def band(axes: Axes, frame: DataFrame, x: str, look: Look) -> None:
    """The median as a line with markers, the quartiles as a band."""
    frame = frame.sort_values(x)
    axes.plot(frame[x], frame["median"], linewidth=1.4, markersize=3.5, **look)
    axes.fill_between(frame[x], frame["low"], frame["high"], color=look["color"], alpha=0.15, linewidth=0)


def violins(axes: Axes, groups: Sequence[Any], looks: Sequence[Look]) -> None:
    """A violin a group with its median; groups without a value leave a gap."""
    filled = [(i, group) for i, group in enumerate(groups) if len(group)]
    if filled:
        places, samples = zip(*filled, strict=True)
        drawn: dict[str, Any] = axes.violinplot(
            list(samples), list(places), widths=0.85, showmedians=True, showextrema=False
        )
        drawn["cmedians"].set(color="black", linewidth=1.0)
        for place, body in zip(places, drawn["bodies"], strict=True):
            body.set(facecolor=looks[place]["color"], edgecolor="none", alpha=0.75)
    axes.set_xlim(-0.6, len(groups) - 0.4)


def legend(figure: Figure, names: dict[str, Look], columns: int | None = None, above: bool = False) -> None:
    """One legend below the whole figure, or above it."""
    marks = [Line2D([], [], linewidth=1.6, markersize=5, label=name, **look) for name, look in names.items()]
    width = max(1, min(len(marks), columns or int(figure.get_figwidth() / 1.35)))
    figure.legend(
        handles=marks,
        loc="outside upper center" if above else "outside lower center",
        ncols=width,
        frameon=False,
        fontsize=LABEL,
    )
