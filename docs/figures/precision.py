"""Draw every run of benchmarks/results/bench_precision_dsprites_cuda.json: fp32 beside bf16.

Run in docs/: python -m figures.precision
"""

from __future__ import annotations

import matplotlib as mpl
from generate import ROOT
from generate.markdown import result

mpl.use("Agg")
from matplotlib import pyplot as plt

PANELS = {"rec": "reconstruction, nats", "kl": "KL, nats", "mig": "MIG"}
COLOURS = {"fp32": "#0072b2", "bf16": "#d55e00"}


def main() -> None:
    bench = result("bench_precision_dsprites_cuda")
    figure, axes = plt.subplots(1, len(PANELS), figsize=(9, 3.2), layout="constrained")
    for panel, (name, title) in zip(axes, PANELS.items(), strict=True):
        for place, (precision, colour) in enumerate(COLOURS.items()):
            values = sorted(bench["values"][precision][name])
            spread = [place + 0.3 * (i / (len(values) - 1) - 0.5) for i in range(len(values))]
            panel.scatter(spread, values, color=colour, s=26, alpha=0.8, linewidths=0)
            panel.hlines(sum(values) / len(values), place - 0.3, place + 0.3, color=colour)
        p = bench["scores"]["bf16"][name]
        panel.set_title(f"{title}\n(p {p['p']:.2f}, distributions {p['p of distributions']:.2f})", fontsize=10)
        panel.set_xticks(range(len(COLOURS)), list(COLOURS))
        panel.set_xlim(-0.6, 1.6)
        panel.spines[["top", "right"]].set_visible(False)
    settings = bench["settings"]
    figure.suptitle(
        f"{settings['seeds']} seeds of {settings['method']} on {settings['data']}, {int(settings['steps']):,} steps: "
        "every run, in order, and the mean",
        fontsize=10,
    )
    figure.savefig(ROOT / "docs" / "pictures" / "precision.png", dpi=110)


if __name__ == "__main__":
    main()
