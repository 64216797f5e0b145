"""Draw the roofline of a model-step on one H200: computed kernels and measured steps.

The counts are those of benchmarks/roofline.py, and the rates those of benchmarks/bench_gpu.py.
Run in docs/: python -m figures.roofline
"""

from __future__ import annotations

import math
from typing import Any

import matplotlib as mpl
from generate import ROOT
from generate.markdown import result
from generate.roofline import fraction_of_limit, measured_rates

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

PICTURE = ROOT / "docs" / "pictures" / "roofline.png"
GROUPS = {"forward pass": "#0072b2", "input gradients": "#009e73", "weight gradients": "#e69f00",
          "gradients of the last layer": "#cc79a7", "critic": "#767676"}  # fmt: skip
STEPS = {"factor_vae": ("o", "#56b4e9"), "beta_vae_colour": ("s", "#f0a868"), "beta_vae": ("o", "#d55e00")}
LEFT, RIGHT, BOTTOM, TOP = 3, 320, 8, 1300
LEGEND = """Filled points: whole steps, measured.
The numbers are the runs in the stack.
Percentages are those of 128 runs.
Hollow points: single kernels, computed,
at the ceiling. The area shows the bytes.
Kernels without matrix products, such as
Adam, have no point.
"""
SMALLEST_AREA, AREA_PER_MEGABYTE = 14, 18  # of the point of a kernel


def draw_ceilings(axes: Axes, ceilings: dict[str, Any]) -> None:
    """Draw the rate of memory and the rate of arithmetic, which limit the operations per second."""
    speed, peak = ceilings["bytes_per_second"] / 1e12, ceilings["flop_per_second"] / 1e12
    ridge = peak / speed
    axes.plot([LEFT, ridge, RIGHT], [LEFT * speed, peak, peak], color="black", linewidth=1.3, zorder=1)
    axes.text(RIGHT * 0.96, peak * 1.06, f"arithmetic: {peak:.0f} TFLOP/s", ha="right", fontsize=9)


def label_bytes(axes: Axes, speed: float) -> None:
    """Write along the rate of memory. The layout must be final, because it decides the angle of the line."""
    (x0, y0), (x1, y1) = axes.transData.transform([(1, 1), (10, 10)])
    angle = math.degrees(math.atan2(y1 - y0, x1 - x0))
    axes.text(4.3, 4.3 * speed * 1.2, f"bytes: {speed:.1f} TB/s", rotation=angle, rotation_mode="anchor", fontsize=9)


def draw_kernels(axes: Axes, bench: dict[str, Any]) -> None:
    """Draw a hollow point for each kernel that computes a product, at the ceiling that limits it."""
    speed, peak = (bench["ceilings"][name] / 1e12 for name in ("bytes_per_second", "flop_per_second"))
    for row in bench["cases"]["factor_vae"]["kernels"]:
        if row["flop"]:
            intensity, colour = row["flop"] / row["bytes"], GROUPS[row["group"].split(",")[0]]
            area = max(SMALLEST_AREA, AREA_PER_MEGABYTE * row["bytes"] / 1e6)
            axes.scatter(intensity, min(intensity * speed, peak), s=area, facecolors="none", edgecolors=colour,
                         linewidths=1.3, zorder=3)  # fmt: skip


def draw_steps(axes: Axes, bench: dict[str, Any]) -> None:
    """Draw a filled point for each measured step, and how far the largest stack is from the ceiling."""
    for name, (marker, colour) in STEPS.items():
        case, rates = bench["cases"][name], measured_rates(name)
        totals = {runs: case["runs"][str(runs)] for runs in rates}
        x = [total["flop"] / total["bytes"] for total in totals.values()]
        y = [total["flop"] * rate / 1e12 for total, rate in zip(totals.values(), rates.values(), strict=True)]
        axes.plot(x, y, color=colour, linewidth=1, zorder=2)
        axes.scatter(x, y, s=90 if marker == "s" else 46, marker=marker, color=colour, zorder=4, linewidths=0)
        label_steps(axes, name, list(rates), x, y)
        top = x[-1] * bench["ceilings"]["bytes_per_second"] / 1e12
        axes.plot([x[-1]] * 2, [y[-1], top], ":", color=colour, linewidth=1.2, zorder=2)


def label_steps(axes: Axes, name: str, runs: list[int], x: list[float], y: list[float]) -> None:
    """Write the number of runs beside each measured step."""
    for count, across, up in zip(runs, x, y, strict=True):
        left = name == "beta_vae" and count == runs[-2]  # on the right is the point of images with 3 channels
        place = across * (0.94 if left else 1.07)
        axes.text(place, up, str(count), ha="right" if left else "left", va="center", fontsize=8.5)


def legend(axes: Axes) -> None:
    """Explain colours and markers."""
    titles = {"beta_vae": "beta-VAE", "beta_vae_colour": "beta-VAE, 3 channels", "factor_vae": "FactorVAE"}
    handles = [
        Line2D([], [], marker=STEPS[name][0], color=STEPS[name][1], linestyle="",
               label=f"{title}: {fraction_of_limit(name):.0%} of the ceiling")
        for name, title in titles.items()
    ]  # fmt: skip
    handles += [
        Line2D([], [], marker="o", color=colour, markerfacecolor="none", linestyle="", label=group)
        for group, colour in GROUPS.items()
    ]
    axes.legend(handles=handles, fontsize=8.5, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), title=LEGEND,
                title_fontsize=8.5, alignment="left")  # fmt: skip


def main() -> None:
    bench = result("roofline")
    figure, axes = plt.subplots(figsize=(9.6, 5.6), layout="constrained")
    axes.set(xscale="log", yscale="log", xlim=(LEFT, RIGHT), ylim=(BOTTOM, TOP))
    draw_ceilings(axes, bench["ceilings"])
    draw_kernels(axes, bench)
    draw_steps(axes, bench)
    legend(axes)
    axes.set_xticks([3, 10, 30, 100, 300], ["3", "10", "30", "100", "300"])
    axes.set_yticks([10, 30, 100, 300, 1000], ["10", "30", "100", "300", "1000"])
    axes.minorticks_off()
    axes.set(xlabel="arithmetic intensity, FLOP per byte (computed)", ylabel="TFLOP/s")
    axes.grid(color="#ececec", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title("A model-step on one H200: batch 64, 64x64 pixels, network locatello, bf16", fontsize=10)
    figure.draw_without_rendering()
    label_bytes(axes, bench["ceilings"]["bytes_per_second"] / 1e12)
    figure.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    main()
