"""A figure that compares our numbers with published ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from unbraid.analysis import plots
from unbraid.reproduction.agreement import Cell, PublishedSign, Reproduction

STYLES: dict[str, plots.Style] = {
    "paper": {"color": "#999999", "marker": "s"},
    "ours, agrees": {"color": "#0072B2", "marker": "o"},
    "ours, differs": {"color": "#D55E00", "marker": "D"},
}
PANELS_PER_ROW = 4


def draw_reproduction(reproduction: Reproduction) -> Figure:
    """Draw the cells that were compared, with one panel per column of the paper and one line per cell.

    Squares are published means. Our means are dots if they agree and diamonds if they differ. Error bars are standard
    deviations over seeds. If a paper has no numbers, its signs are drawn as differences with their standard errors.
    """
    shown = reproduction.cells_with("agree", "differ")
    cells = [cell for cell in shown if not isinstance(cell.published, PublishedSign)] or shown
    rows = list(dict.fromkeys(cell.published.row for cell in cells))
    columns = list(dict.fromkeys(cell.published.column for cell in cells))
    across = min(PANELS_PER_ROW, len(columns))
    width = (0.065 * max(map(len, rows))) / across + 2.4  # only the first panel of each row has row names
    figure, grid = plots.panel_figure(len(columns), across=across, size=(width, 0.2 * len(rows) + 0.9))
    for axes, column in zip(grid, columns, strict=True):
        draw_panel(axes, [cell for cell in cells if cell.published.column == column], rows)
        plots.set_labels(axes, column)
    plots.draw_legend(figure, {name: {**style, "linestyle": "none"} for name, style in STYLES.items()}, columns=3)
    figure.suptitle(f"{reproduction.name}: our results and {reproduction.reference}", size=plots.TITLE, weight="bold")
    return figure


def draw_panel(axes: Any, cells: Sequence[Cell], rows: Sequence[str]) -> None:
    """Draw one panel, with the first row at the top."""
    for cell in cells:
        assert cell.ours is not None
        y = rows.index(cell.published.row)
        if cell.published.value is not None:
            draw_dot(axes, "paper", cell.published.value, cell.published.spread, y - 0.17)
        draw_dot(axes, f"ours, {cell.verdict}s", cell.ours.mean, cell.ours.spread, y + 0.17)
    if isinstance(cells[0].published, PublishedSign):
        axes.axvline(0, color="black", linewidth=0.8)
    first = axes.get_subplotspec().is_first_col()
    axes.set_yticks(range(len(rows)), rows if first else [""] * len(rows), size=plots.SMALL)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(linewidth=0.4, alpha=0.5)


def draw_dot(axes: Any, style_name: str, mean: float, spread: float | None, y: float) -> None:
    """Draw a mean with an error bar of length `spread` to each side, or without an error bar if `spread` is None."""
    style = STYLES[style_name]
    axes.errorbar(mean, y, xerr=spread, fmt=style["marker"], color=style["color"], markersize=3.5, linewidth=1.0)
