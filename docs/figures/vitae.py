"""Draw what VAE, U-VITAE and C-VITAE learn from moved digits, the learning curves, and the stability of affine maps.

Run in docs/: python -m figures.vitae [RUNS/mnist]
RUNS is the folder of `benchmarks/bench_vitae.py mnist --keep RUNS`. Without it, only the stability is drawn.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from generate import ROOT
from generate.markdown import result

import unbraid as ub
from unbraid.runs.folder import find_runs
from unbraid.scoring.appearance import decode_appearance

mpl.use("Agg")
from matplotlib import pyplot as plt

PICTURES = ROOT / "docs" / "pictures"
NAMES = {"vae": "VAE", "u_vitae": "U-VITAE", "c_vitae": "C-VITAE"}
MODELS = {"vae": ("VAE", "#000000"), "beta_vae": ("beta-VAE", "#e69f00"), "beta_tcvae": ("beta-TCVAE", "#cc79a7"),
          "dip_vae_ii": ("DIP-VAE-II", "#56b4e9"), "u_vitae": ("U-VITAE", "#009e73"),
          "c_vitae": ("C-VITAE", "#d55e00")}  # fmt: skip
COLOURS = {"affine": "#d55e00", "affine_decomposed": "#009e73", "affine_diffeomorphic": "#0072b2"}
COLUMNS = 12
WINDOW = 9  # lines of a log, of 30 steps each, that a curve is averaged over
FLOOR = -420.0  # below it nothing was learned


def strip(images: torch.Tensor) -> Any:
    """Return images side by side."""
    return torch.cat(list(images[:, 0].cpu()), 1).numpy()


def sheet(rows: list[tuple[str, torch.Tensor]], path: Path, title: str) -> None:
    """Draw labelled rows of images."""
    figure, axes = plt.subplots(len(rows), 1, figsize=(9, 0.78 * len(rows) + 0.5), layout="constrained")
    for axis, (label, images) in zip(axes, rows, strict=True):
        axis.imshow(strip(images), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axis.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9)
        axis.set_xticks([])
        axis.set_yticks([])
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=100)


def reconstructions(runs: dict[str, ub.Run], x: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    """Return test digits, their reconstructions, and VITAE's upright images."""
    rows = [("test digits", x / 255)]
    rows += [(NAMES[name], run.decode(run.encode(x))) for name, run in runs.items()]
    return [
        *rows,
        *((f"{NAMES[name]}, upright", decode_appearance(run, x)) for name, run in runs.items() if name != "vae"),
    ]


def samples(runs: dict[str, ub.Run]) -> list[tuple[str, torch.Tensor]]:
    """Return decoded samples from the prior."""
    z = torch.randn(COLUMNS, 4, generator=torch.Generator().manual_seed(1))
    return [(NAMES[name], run.decode(z)) for name, run in runs.items()]


def manipulation(run: ub.Run, x: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    """Return one digit with each latent varied from -2 to 2."""
    start = run.encode(x)
    rows = []
    for i in range(4):
        z = start.repeat(COLUMNS, 1)
        z[:, i] = torch.linspace(-2, 2, COLUMNS)
        rows.append((f"{'appearance' if i < 2 else 'perspective'} {i % 2}", run.decode(z)))
    return rows


def smooth(values: list[float]) -> list[float]:
    """Return running means over WINDOW lines of a log, shorter at the ends."""
    half = WINDOW // 2
    return [statistics.mean(values[max(0, i - half) : i + half + 1]) for i in range(len(values))]


def curves(folder: Path) -> None:
    """Draw the ELBO of training batches by step: the mean over seeds as a line, the range as a band."""
    figure, axis = plt.subplots(figsize=(6.2, 3.6), layout="constrained")
    for name, (label, colour) in MODELS.items():
        logs = [run.read_log() for run in find_runs(folder / name) if run.status == "done"]
        if not logs:
            continue
        steps = [line["step"] for line in logs[0]]
        seeds = [smooth([-line["rec"] - line["kl"] for line in log]) for log in logs]
        each = list(zip(*seeds, strict=True))
        axis.plot(steps, [statistics.mean(v) for v in each], color=colour, label=label, linewidth=1.4)
        axis.fill_between(steps, [min(v) for v in each], [max(v) for v in each], color=colour, alpha=0.15, lw=0)
    axis.set(xlabel="step", ylabel="ELBO in training, nats", ylim=(-230, -160))
    axis.set_title("Moved digits: mean of the seeds, and their range", fontsize=10)
    axis.legend(frameon=False, fontsize=9, ncols=2, loc="lower right")
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(PICTURES / "vitae_curves.png", dpi=85)


def stability() -> None:
    """Draw the final ELBO by learning rate, one point per seed, and a cross for runs that diverged."""
    bench = result("bench_vitae_stability")
    figure, axis = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
    for shift, (transform, colour) in enumerate(COLOURS.items()):
        rows = [row for row in bench["found"] if row["transform"] == transform]
        places = [row["learning_rate"] * 1.12 ** (shift - 1) for row in rows]
        for place, row in zip(places, rows, strict=True):
            finite = [value for value in row["elbo"] if value is not None and value > FLOOR]
            lost = len(row["elbo"]) - len(finite)
            axis.scatter([place] * len(finite), finite, color=colour, s=22, alpha=0.8)
            axis.scatter([place] * min(lost, 1), [FLOOR] * min(lost, 1), marker="x", color=colour, s=40)
            if lost:
                axis.annotate(f"{lost}", (place, FLOOR), (0, 6), textcoords="offset points", ha="center", fontsize=8)
        middles = [statistics.median(max(v, FLOOR) if v is not None else FLOOR for v in row["elbo"]) for row in rows]
        axis.plot(places, middles, color=colour, label=transform)
    axis.set(xscale="log", xlabel="learning rate", ylabel="ELBO in training, nats", ylim=(FLOOR - 20, -140))
    axis.set_title(f"C-VITAE, {bench['settings']['steps']} steps; crosses count seeds that failed", fontsize=10)
    axis.legend(frameon=False, fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(PICTURES / "vitae_stability.png", dpi=100)


def main() -> None:
    if len(sys.argv) > 1:
        data = ub.data.load("mnist?turn=20&shift=10&pad=0&part=test")
        runs = {name: ub.load_runs(Path(sys.argv[1]) / name, data)[0] for name in NAMES}
        x = data.images(range(COLUMNS))
        curves(Path(sys.argv[1]))
        sheet(
            reconstructions(runs, x), PICTURES / "vitae_reconstructions.png", "Moved digits and their reconstructions"
        )
        sheet(samples(runs), PICTURES / "vitae_samples.png", "Samples from the prior")
        sheet(
            manipulation(runs["c_vitae"], x[:1]), PICTURES / "vitae_manipulation.png", "C-VITAE: one latent at a time"
        )
    if (ROOT / "benchmarks" / "results" / "bench_vitae_stability.json").exists():
        stability()


if __name__ == "__main__":
    main()
