"""Draw the projected time and cost of the large study by the number of GPUs, from results/bench_study_rates.json.

Run in docs/: python -m figures.cluster
"""

from __future__ import annotations

import matplotlib as mpl
from generate import ROOT
from generate.cluster import CASES, gpu_hours, study_tasks

from unbraid.studies.projection import project

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

PICTURE = ROOT / "docs" / "pictures" / "cluster.png"
LINES = {"defaults": "#0072b2", "scoring not hidden": "#d55e00",
         "0.2 losses per GPU and hour": "#009e73"}  # fmt: skip
COUNTS = range(1, 129)


def label_axes(axes: Axes, title: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks([1, 2, 4, 8, 16, 32, 64, 128], ["1", "2", "4", "8", "16", "32", "64", "128"])
    axes.set_xlabel("GPUs")
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    figure, (time, cost) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    tasks = study_tasks()
    for name, colour in LINES.items():
        found = [project(tasks, gpus, CASES[name]) for gpus in COUNTS]
        time.plot(COUNTS, [p.hours for p in found], color=colour, label=name.replace("`", ""))
        cost.plot(COUNTS, [p.cost for p in found], color=colour)
    time.plot(COUNTS, [gpu_hours() / gpus for gpus in COUNTS], "--", color="#767676", label="training / GPUs")
    cost.axhline(gpu_hours() * CASES["defaults"].price, linestyle="--", color="#767676")
    time.set_yscale("log")
    time.set_yticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
    time.minorticks_off()
    time.legend(fontsize=8, frameon=False)
    cost.set_ylim(bottom=0)
    label_axes(time, "hours (projected)")
    label_axes(cost, f"cost at {CASES['defaults'].price:g} per GPU-hour (projected)")
    figure.suptitle("12,600 models of 300,000 steps", fontsize=10)
    figure.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    main()
