"""The tables in docs/guides/appearance_results.md: models, times of their objectives, and times of transformations."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from generate import ROOT
from generate.markdown import RESULTS, replace_block, result, table

PAGE = ROOT / "docs" / "guides" / "appearance_results.md"
UPRIGHT = (
    '"digit from upright images" is the accuracy with which nearest neighbours among the upright images predict the '
    "digit. "
)
# Milliseconds forward and backward in the supplement's table 5, which gives no backward times of C-VITAE.
PAPER = {"VAE": ("1.6", "14"), "beta-VAE": ("1.6", "14"), "beta-TCVAE": ("2.0", "16"), "DIP-VAE-II": ("2.5", "18"),
         "C-VITAE, affine": ("9.2", ""), "C-VITAE, cpab": ("100", "")}  # fmt: skip


def vitae_pages() -> dict[Path, str]:
    """Return the page with its current tables."""
    text = PAGE.read_text()
    made = {"vitae": models(result("bench_vitae_mnist")), "vitae bodies": models(result("bench_vitae_bodies"))}
    for name, part in {**made, "vitae times": times(), "warps": warps()}.items():
        text = replace_block(text, name, part)
    return {PAGE: text}


def times() -> str:
    """Return one row per model: milliseconds per batch on each device that was measured, and the paper's."""
    cpu, on_gpu = result("bench_vitae_times_cpu"), RESULTS / "bench_vitae_times_cuda.json"
    columns = {("CPU", "forward"): cpu, ("CPU", "forward and backward"): cpu}
    where = f"The CPU is one core of an {cpu['machine']['processor']}, on which other programs ran too."
    if on_gpu.exists():
        gpu = result("bench_vitae_times_cuda")
        columns |= {("GPU", f"{what}, replayed"): gpu for what in ("forward", "forward and backward")}
        where += f" The GPU is an {gpu['machine']['devices'][0]}, on which an evaluation is one CUDA graph."
    body = [
        [label, *(f"{bench['milliseconds'][label][what]:.3g}" for (_, what), bench in columns.items()),
         *PAPER.get(label, ("", ""))]
        for label in cpu["milliseconds"]
    ]  # fmt: skip
    heads = [f"{device}, {what.removesuffix(', replayed')}" for device, what in columns]
    head = (
        f"The table has the time of one evaluation of the objective on {cpu['batch']} images of "
        f"{cpu['side']}x{cpu['side']} pixels, in milliseconds (medians of {cpu['repeats']} evaluations). {where} The "
        "last two columns are the paper's, on a GTX TITAN X. They are empty where the paper gives no value."
    )
    return head + "\n\n" + table(["model", *heads, "paper, forward", "paper, backward"], body)


def warps() -> str:
    """Return one row per transformation: its time on a GPU, divided by that of `affine`."""
    names = {"affine_decomposed": "`affine_decomposed`", "affine_diffeomorphic": "`affine_diffeomorphic`",
             "cpab 20 steps": "`cpab`, 20 integration steps", "cpab": "`cpab`, 50 integration steps"}  # fmt: skip
    ratios = result("bench_warp_cuda")["ratios"]
    columns = ("forward and backward", "forward and backward, replayed")
    body = [[label, *(f"{ratios[name][column]:.1f}" for column in columns)] for name, label in names.items()]
    return table(["transform", "one operation at a time", "as one CUDA graph"], body)


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
        f"All models have 4 latents and were trained on a CPU for {int(settings['steps']):,} steps with batches of "
        f"{settings['batch']} and a learning rate of {settings['learning_rate']}. The table has means over "
        f"{settings['seeds']} seeds, with the range in brackets. ELBO and IWAE (with {settings['samples']} samples) "
        f"are in nats per image. {UPRIGHT * bool(upright)}The last columns, one per factor, have three numbers: how "
        "well the appearance latents, the perspective latents and the whole code predict the factor, from 0 (at "
        "chance) to 1. For VAEs, the latents are divided so that the separation is best."
    )
    return head + "\n\n" + table(["model", "parameters", "ELBO", "IWAE", "separation", *upright, *first["told"]], body)
