"""The tables in docs/guides/appearance.md, measured by benchmarks/bench_vitae.py and bench_vitae_times.py."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from generate import ROOT
from generate.markdown import RESULTS, replace_block, result, table

PAGE = ROOT / "docs" / "guides" / "appearance.md"
# Milliseconds forward and backward in the supplement's table 5, which gives no backward times of C-VITAE.
PAPER = {"VAE": ("1.6", "14"), "beta-VAE": ("1.6", "14"), "beta-TCVAE": ("2.0", "16"), "DIP-VAE-II": ("2.5", "18"),
         "C-VITAE, affine": ("9.2", ""), "C-VITAE, cpab": ("100", "")}  # fmt: skip


def vitae_pages() -> dict[Path, str]:
    """Return the page with its current tables."""
    text = PAGE.read_text()
    made = {"vitae": models(result("bench_vitae_mnist")), "vitae bodies": models(result("bench_vitae_bodies"))}
    for name, part in {**made, "vitae times": times()}.items():
        text = replace_block(text, name, part)
    return {PAGE: text}


def times() -> str:
    """Return one row per model: milliseconds per batch on each device that was measured, and the paper's."""
    cpu, on_gpu = result("bench_vitae_times_cpu"), RESULTS / "bench_vitae_times_cuda.json"
    columns = {("CPU", "forward"): cpu, ("CPU", "forward and backward"): cpu}
    where = f"one core ({cpu['machine']['processor']}, of two cores that other programs used at the same time)"
    if on_gpu.exists():
        gpu = result("bench_vitae_times_cuda")
        columns |= {("GPU", f"{what}, replayed"): gpu for what in ("forward", "forward and backward")}
        where += f", and as one CUDA graph on an {gpu['machine']['devices'][0]}"
    body = [
        [label, *(f"{bench['milliseconds'][label][what]:.3g}" for (_, what), bench in columns.items()),
         *PAPER.get(label, ("", ""))]
        for label in cpu["milliseconds"]
    ]  # fmt: skip
    heads = [f"{device}, {what.removesuffix(', replayed')}" for device, what in columns]
    head = (
        f"Milliseconds per evaluation of the objective on {cpu['batch']} images of {cpu['side']}x{cpu['side']}, "
        f"medians of {cpu['repeats']}, on {where}; the last two columns are the paper's, on a GTX TITAN X."
    )
    return head + "\n\n" + table(["model", *heads, "paper, forward", "paper, backward"], body)


def spread(found: list[dict[str, Any]], key: str) -> str:
    """Return the mean and the range over seeds."""
    values = [row[key] for row in found]
    digits = 1 if abs(values[0]) > 10 else 2
    return f"{statistics.mean(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def mean(found: list[dict[str, Any]], key: str) -> str:
    """Return the mean over seeds."""
    return f"{statistics.mean(row[key] for row in found):.2f}"


def information(found: list[dict[str, Any]], factor: str) -> str:
    """Return what appearance, perspective and the whole code tell about a factor: means over seeds."""
    parts = [[row["told"][factor][0], row["told"][factor][1], row["whole"][factor]] for row in found]
    return " / ".join(f"{statistics.mean(values):.2f}" for values in zip(*parts, strict=True))


def models(bench: dict[str, Any]) -> str:
    """Return one row per model: bounds, separation, and what each part of the code tells about each factor."""
    settings, first = bench["settings"], next(iter(bench["found"].values()))[0]
    upright = ["digit from upright images"] if "upright_accuracy" in first else []
    body = [
        [f"`{name}`", f"{found[0]['parameters']:,}", spread(found, "elbo"), spread(found, "iwae"),
         spread(found, "separation"), *(mean(found, "upright_accuracy") for _ in upright),
         *(information(found, factor) for factor in first["told"])]
        for name, found in bench["found"].items()
    ]  # fmt: skip
    head = (
        f"{settings['seeds']} seeds, {int(settings['steps']):,} steps of {settings['batch']}, learning rate "
        f"{settings['learning_rate']}, 4 latents, on the CPU: means over seeds (and their range). Bounds are in nats "
        f"per image, with {settings['samples']} samples for IWAE. The last columns show how much appearance / "
        "perspective / the whole code tell about each factor, from 0 to 1 (for VAEs, with the split of the latents "
        "that separates best)."
    )
    return head + "\n\n" + table(["model", "parameters", "ELBO", "IWAE", "separation", *upright, *first["told"]], body)
