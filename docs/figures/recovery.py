"""Draw what methods for pairs and curved spaces recover, from the result of benchmarks/bench_recovery.py.

Run in docs/: python -m figures.recovery
"""

from __future__ import annotations

import math
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from generate import ROOT
from generate.markdown import result
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from scipy.optimize import linear_sum_assignment

PICTURE = ROOT / "docs" / "pictures" / "recovery.png"
GREY, BLUE = "#767676", "#0072B2"  # distinguishable with any colour vision
WHEEL = "twilight_shifted"  # cyclic, and readable without telling red from green
NAMES = {"beta_vae": "beta-VAE", "ada_gvae": "Ada-GVAE", "slow_vae": "SlowVAE"}

Row = dict[str, Any]


def middle(rows: list[Row], value: str) -> Row:
    """Return the row of the median seed."""
    return sorted(rows, key=lambda row: row[value])[len(rows) // 2]


def matrix(axes: Axes, row: Row, title: str, names: tuple[str, str]) -> None:
    """Draw correlations as shades and numbers, with the codes in the order of their best match."""
    values = np.array(row["correlations"])
    values = values[:, linear_sum_assignment(values, maximize=True)[1]]
    axes.imshow(values, vmin=0, vmax=1, cmap="Blues")
    for i, j in np.ndindex(*values.shape):
        axes.text(j, i, f"{values[i, j]:.2f}".lstrip("0"), ha="center", va="center", size=11,
                  color="white" if values[i, j] > 0.6 else "black")  # fmt: skip
    axes.set(xticks=[], yticks=[], ylabel=names[0], xlabel=names[1])
    axes.set_title(f"{title}, diagonal {row['mcc']:.2f}", size=13)


def matrices(figure: SubFigure, title: str, names: tuple[str, str], cases: dict[str, Row]) -> None:
    """Draw two matrices side by side."""
    figure.suptitle(title, size=15, weight="bold")
    for axes, (name, row) in zip(figure.subplots(1, 2), cases.items(), strict=True):
        matrix(axes, row, name, names)


def turn(figure: SubFigure, rows: list[Row]) -> None:
    """Draw codes on a circle, coloured by the angle, and codes on a line against the angle."""
    figure.suptitle("(c) A turning shape: circle and line", size=15, weight="bold")
    round_, straight = (middle([r for r in rows if r["space"] == s], "unevenness") for s in ("circle", "line"))
    left, right = figure.subplots(1, 2)
    look: dict[str, Any] = {"cmap": WHEEL, "vmin": 0, "vmax": 2 * math.pi, "s": 46, "edgecolors": "#404040",
                            "linewidths": 0.3}  # fmt: skip
    code = np.array(round_["code"])
    left.scatter(code[:, 0], code[:, 1], c=round_["angle"], **look)
    left.set(aspect="equal", xlabel="first coordinate", ylabel="second coordinate")
    left.set(xticks=[-1, 0, 1], yticks=[-1, 0, 1], xlim=(-1.2, 1.2), ylim=(-1.2, 1.2))
    left.set_title("Diffusion VAE on a circle", size=13)
    right.scatter(straight["angle"], np.array(straight["code"])[:, 0], c=straight["angle"], **look)
    right.set(xlabel="angle of the shape", ylabel="the one code", box_aspect=1)
    right.set_xticks([0, math.pi, 2 * math.pi], ["0", "half a turn", "a turn"])
    right.set_title("beta-VAE with one latent", size=13)


def strips(figure: SubFigure, rows: list[Row]) -> None:
    """Draw the DCI of each seed as a dot and medians as bars, with the same seeds joined."""
    figure.suptitle("(d) Sprites from pairs: DCI disentanglement", size=15, weight="bold")
    contests = list(dict.fromkeys(row["contest"] for row in rows))
    top = 1.12 * max(row["dci"] for row in rows)
    for axes, contest in zip(figure.subplots(1, len(contests), sharey=True), contests, strict=True):
        inside = [row for row in rows if row["contest"] == contest]
        columns = [[r["dci"] for r in inside if r["method"] == m] for m in dict.fromkeys(r["method"] for r in inside)]
        for x, (values, colour) in enumerate(zip(columns, (GREY, BLUE), strict=True)):
            axes.scatter([x] * len(values), values, s=90, color=colour, zorder=3, edgecolors="white")
            axes.hlines(median(values), x - 0.25, x + 0.25, color=colour, linewidth=3)
            side = 0.3 if x else -0.3
            axes.text(x + side, median(values), f"{median(values):.2f}", va="center", size=12, color=colour,
                      ha="left" if x else "right")  # fmt: skip
        axes.plot([0, 1], columns, color="#C8C8C8", linewidth=1, zorder=1)
        axes.set(xlim=(-0.75, 1.75), ylim=(0, top), box_aspect=1)
        axes.set_xticks([0, 1], [NAMES[m] for m in dict.fromkeys(r["method"] for r in inside)], size=13)
        axes.set_title(f"Pairs: {contest}", size=13)
        axes.grid(axis="y", color="#E8E8E8")
        axes.spines[["top", "right"]].set_visible(False)


def draw(bench: Row) -> Figure:
    """Draw all four panels."""
    plt.rcParams.update({"font.size": 12, "axes.axisbelow": True})
    figure = plt.figure(figsize=(15, 9), dpi=100, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
    (a, b), (c, d) = figure.subfigures(2, 2, wspace=0.04, hspace=0.06)
    sources = {when: middle([r for r in bench["pcl"] if r["when"] == when], "mcc") for when in ("before", "after")}
    plain, trained = (
        middle([r["components"] for r in bench["pmp"] if r["losses"] == on], "mcc") for on in (False, True)
    )
    matrices(a, "(a) PCL: five mixed sources, |correlation|", ("sources", "codes"),
             {"untrained": sources["before"], "trained": sources["after"]})  # fmt: skip
    matrices(b, "(b) PMP: factors of a curved product, |correlation|", ("factors", "subspaces"),
             {"without its losses": plain, "with": trained})  # fmt: skip
    turn(c, bench["circle"])
    strips(d, bench["pairs"])
    return figure


def main() -> None:
    PICTURE.parent.mkdir(exist_ok=True)
    draw(result("bench_recovery")).savefig(PICTURE, pil_kwargs={"optimize": True})


if __name__ == "__main__":
    main()
