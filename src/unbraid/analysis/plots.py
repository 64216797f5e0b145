"""Drawing functions for all figures: heat maps with numbers, medians with quartiles, and one style per method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pandas import DataFrame

# The palette of Okabe and Ito, whose colours people with colour blindness can distinguish.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#999999")
MARKERS = "osD^vPX*"
TITLE, LABEL, SMALL = 10, 9, 8
DISPLAY_NAMES = {
    "beta_vae": "beta-VAE",
    "factor_vae": "FactorVAE",
    "beta_tcvae": "beta-TCVAE",
    "dip_vae_i": "DIP-VAE-I",
    "dip_vae_ii": "DIP-VAE-II",
    "annealed_vae": "AnnealedVAE",
    "info_vae": "InfoVAE",
    "ae": "AE",
    "pca": "PCA",
    "ica": "ICA",
    "ae_ica": "AE + ICA",
    "fsq": "FSQ",
    "tripod": "Tripod",
    "qlae": "QLAE",
    "pcl": "PCL",
    "pmp": "PMP",
    "slow_vae": "SlowVAE",
    "ada_gvae": "Ada-GVAE",
    "ada_mlvae": "Ada-ML-VAE",
    "diffusion_vae": "Diffusion VAE",
    "vae": "VAE",
    "hfs": "HFS",
    "commutative_vae": "Commutative VAE",
    "groupified_vae": "Groupified VAE",
    "group_vae": "Group-VAE",
    "ml_vae": "ML-VAE",
    "joint_vae": "JointVAE",
    "devae": "DeVAE",
    "cascade_vae_c": "CascadeVAE-C",
    "deft": "DEFT",
    "control_vae": "ControlVAE",
    "dynamic_vae": "DynamicVAE",
    "s_vae": "S-VAE",
    "semi_vae": "Semi-supervised VAE",
    "ivae": "iVAE",
    "ice_beem": "ICE-BeeM",
    "cl_ica": "cl-ica",
    "sae": "SAE",
    "triplet_vae": "TVAE",
    "ada_tvae": "Ada-TVAE",
    "u_vitae": "U-VITAE",
    "c_vitae": "C-VITAE",
    "dfc_vae": "DFC-VAE",
    "poincare_vae": "Poincaré VAE",
    "lsbd_vae": "LSBD-VAE",
}
STUDY_METHODS = tuple(DISPLAY_NAMES)[:6]  # the methods of Locatello et al. (2019), in the order of the paper

Style = dict[str, Any]


def display_name(method: str) -> str:
    """Return the name of a method for figures and texts. The name of a variant is kept.

    >>> display_name("beta_vae"), display_name("pmp (without sparsity)")
    ('beta-VAE', 'PMP (without sparsity)')
    """
    name, mark, variant = method.partition(" (")
    return DISPLAY_NAMES.get(name, name) + mark + variant


def line_styles(names: Iterable[str]) -> dict[str, Style]:
    """Return a colour and a marker for each name. Up to 64 names have different styles.

    The methods of Locatello et al. (2019) come first, in the order of the paper. They have the same style in every
    figure.
    """
    wanted = list(dict.fromkeys(names))
    order = [*STUDY_METHODS, *(name for name in wanted if name not in STUDY_METHODS)]
    if not set(wanted) & set(STUDY_METHODS):
        order = wanted
    n, m = len(PALETTE), len(MARKERS)
    styles = {name: {"color": PALETTE[i % n], "marker": MARKERS[(i + i // n) % m]} for i, name in enumerate(order)}
    return {name: style for name, style in styles.items() if name in wanted}


def panel_figure(
    count: int, *, across: int = 4, size: tuple[float, float] = (3.0, 2.6), **share: Any
) -> tuple[Figure, list[Axes]]:
    """Create a figure with `count` axes, at most `across` per row. If the grid is not full, the first row is shorter.

    `size` is the width and height of one panel in inches.
    """
    columns = min(count, across)
    rows = -(-count // columns)
    first = count - (rows - 1) * columns
    figure, grid = grid_figure(rows, columns, size=size, **share)
    for spare in grid[0, first:]:
        spare.set_visible(False)
    return figure, [*grid[0, :first], *grid[1:].flat]


def hide_inner_labels(axes: Axes) -> None:
    """Remove tick labels of a heat map inside a grid.

    Only heat maps in the first column keep the labels of the y axis, and only those in the last row keep the labels of
    the x axis.
    """
    position = axes.get_subplotspec()
    if position is not None and not position.is_first_col():
        axes.set_yticklabels([])
    if position is not None and not position.is_last_row():
        axes.set_xticklabels([])


def grid_figure(rows: int, columns: int, *, size: tuple[float, float] = (2.0, 1.7), **share: Any) -> tuple[Figure, Any]:
    """Create a figure with a grid of axes. Return the figure and an array of its axes, (rows, columns)."""
    figure = Figure(figsize=(max(size[0] * columns, 4.5), max(size[1] * rows + 0.5, 2.8)), layout="constrained")
    return figure, tidy_axes(figure.subplots(rows, columns, squeeze=False, **share))


def tidy_axes(grid: Any) -> Any:
    """Give a grid of axes small tick labels and no lines above and on the right, and return the grid."""
    for axes in grid.flat:
        axes.tick_params(labelsize=SMALL)
        axes.spines[["top", "right"]].set_visible(False)
    return grid


def set_labels(axes: Axes, title: str = "", x: str = "", y: str = "") -> None:
    """Set the title and the axis labels with the font sizes that all figures use."""
    if title:
        axes.set_title(title, size=TITLE)
    if x:
        axes.set_xlabel(x, size=LABEL)
    if y:
        axes.set_ylabel(y, size=LABEL)


def label_edges(grid: Any, titles: Sequence[str], sides: Sequence[str], x: str) -> None:
    """Label a grid of axes: titles above the first row, `sides` beside the first column, `x` below the last row."""
    for axes, title in zip(grid[0], titles, strict=True):
        set_labels(axes, title)
    for axes, side in zip(grid[:, 0], sides, strict=True):
        set_labels(axes, y=side)
    for axes in grid[-1]:
        set_labels(axes, x=x)


def draw_heat_map(
    axes: Axes,
    frame: DataFrame,
    *,
    low: float = -1.0,
    high: float = 1.0,
    cmap: str = "RdBu_r",
    form: Callable[[float], str] | None = None,
) -> None:
    """Draw a table as a heat map with numbers. The colour map covers values from `low` to `high`.

    NaN is drawn grey with a dash. `form` converts a value to text.
    """
    values = frame.to_numpy(float)
    colours = colormaps[cmap].with_extremes(bad="#E8E8E8")
    axes.imshow(np.ma.masked_invalid(values), vmin=low, vmax=high, cmap=colours, aspect="auto")
    for i, j in np.ndindex(*values.shape):
        value = values[i, j]
        text = (form or format_score)(value) if np.isfinite(value) else "–"
        axes.text(
            j, i, text, ha="center", va="center", size=SMALL, color=text_color(colours, (value - low) / (high - low))
        )
    axes.set_xticks(range(len(frame.columns)), list(frame.columns), rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(frame.index)), list(frame.index))
    axes.tick_params(length=0, labelsize=SMALL)
    axes.spines[:].set_visible(False)


def text_color(colours: Any, position: float) -> str:
    """Return black or white, whichever is easier to read on the colour at `position` (0 to 1) of a colour map."""
    if not np.isfinite(position):
        return "black"
    red, green, blue, _ = colours(min(max(position, 0.0), 1.0))
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


def format_score(value: float) -> str:
    """Return a number with two decimals and without a leading zero, for heat maps and bars.

    >>> format_score(0.5), format_score(-0.126), format_score(10.05), format_score(-0.001)
    ('.50', '-.13', '10.05', '.00')
    """
    text = format_decimal(value)
    return text.replace("0.", ".", 1) if abs(float(text)) < 1 else text


def format_decimal(value: float) -> str:
    """Return a number with two decimals, for sentences.

    >>> format_decimal(0.5), format_decimal(-0.126), format_decimal(-0.001)
    ('0.50', '-0.13', '0.00')
    """
    text = f"{value:.2f}"
    return "0.00" if text == "-0.00" else text


def format_percent(fraction: float) -> str:
    """Return a fraction as a rounded percentage.

    >>> format_percent(0.549)
    '55 %'
    """
    return f"{100 * fraction:.0f} %"


def draw_band(axes: Axes, frame: DataFrame, x: str, style: Style) -> None:
    """Draw medians as a line with markers, and the range between the quartiles as a band."""
    frame = frame.sort_values(x)
    axes.plot(frame[x], frame["median"], linewidth=1.4, markersize=3.5, **style)
    axes.fill_between(frame[x], frame["low"], frame["high"], color=style["color"], alpha=0.15, linewidth=0)


def draw_violins(axes: Axes, groups: Sequence[Any], styles: Sequence[Style]) -> None:
    """Draw one violin with its median for each group. Groups without values leave a gap."""
    filled = [(i, group) for i, group in enumerate(groups) if len(group)]
    if filled:
        positions, samples = zip(*filled, strict=True)
        artists: dict[str, Any] = axes.violinplot(
            list(samples), list(positions), widths=0.85, showmedians=True, showextrema=False
        )
        artists["cmedians"].set(color="black", linewidth=1.0)
        for position, body in zip(positions, artists["bodies"], strict=True):
            body.set(facecolor=styles[position]["color"], edgecolor="none", alpha=0.75)
    axes.set_xlim(-0.6, len(groups) - 0.4)


def draw_legend(figure: Figure, names: dict[str, Style], columns: int | None = None, above: bool = False) -> None:
    """Draw one legend for the whole figure. It is below the figure, or above it if `above` is true."""
    marks = [Line2D([], [], linewidth=1.6, markersize=5, label=name, **style) for name, style in names.items()]
    width = max(1, min(len(marks), columns or int(figure.get_figwidth() / 1.35)))
    figure.legend(
        handles=marks,
        loc="outside upper center" if above else "outside lower center",
        ncols=width,
        frameon=False,
        fontsize=LABEL,
    )
