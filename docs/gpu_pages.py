"""The tables of docs/gpu.md, from what the benchmarks measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from metric_pages import ROOT, result, rows

PAGE = ROOT / "docs" / "gpu.md"
NAMES = {"rec": "reconstruction", "kl": "KL", "mig": "MIG", "factor_vae": "FactorVAE score",
         "modularity": "modularity", "unsupervised": "total correlation"}  # fmt: skip


def filled(text: str, name: str, part: str) -> str:
    """A page with its generated part of that name, between two marks, made anew."""
    begin, end = f"<!-- {name}: begin (make docs) -->", f"<!-- {name}: end -->"
    before, rest = text.split(begin)
    return f"{before}{begin}\n{part}\n{end}{rest.split(end)[1]}"


def tables_of(bench: str, sets: Iterable[str], table: Callable[[dict[str, Any]], str]) -> str:
    """A table for each dataset on which a benchmark was run."""
    measured = [name for name in sets if (ROOT / "benchmarks" / "results" / f"{bench}_{name}.json").exists()]
    return "\n\n".join(table(result(f"{bench}_{name}")) for name in measured)


def gpu_pages() -> dict[Path, str]:
    """The page with its generated parts made anew."""
    text = PAGE.read_text()
    for name, table in {"gpu": gpu_table, "lanes": lanes_table, "precision": precision_table}.items():
        text = filled(text, name, table())
    return {PAGE: text}


def gpu_speed() -> list[str]:
    """The largest stack of the GPU benchmark against one model in plain PyTorch."""
    bench = result("bench_gpu")
    best = max((row for row in bench["stacks"] if row["method"] == "beta_vae"), key=lambda r: r["runs"] == 128)
    ours, plain = best["model_steps_per_second"], bench["plain_loop"]["dsprites"]
    what = f"beta-VAE on dSprites, {best['runs']} runs together on one {bench['gpu']} (a plain PyTorch loop beside it)"
    return [what, f"{ours:,.0f} model-steps/s", f"{plain:,.0f} model-steps/s", f"{plain / ours:.4f}"]


def gpu_table() -> str:
    """Every method at every stack size, colours, and what the study would take."""
    bench, colour, pairs = result("bench_gpu"), result("bench_gpu_colour"), result("bench_gpu_pairs")
    sizes = sorted({row["runs"] for row in bench["stacks"]})
    rates = {(row["method"], row["runs"]): row for row in pairs["stacks"] + bench["stacks"]}
    names = dict.fromkeys(row["method"] for row in bench["stacks"] + pairs["stacks"])
    body = [rate_row(name, [rates.get((name, n)) for n in sizes]) for name in names]
    one, plain = rates["beta_vae", 128]["model_steps_per_second"], bench["plain_loop"]["dsprites"]
    colours = ", ".join(
        f"`{row['data']}` {row['model_steps_per_second']:,.0f} ({row['model_steps_per_second'] / one:.0%})"
        for row in colour["stacks"]
    )
    return "\n\n".join([
        f"Model-steps a second (one step of one run; batch 64, 64x64 pixels, `locatello`, bf16) on one {bench['gpu']}, "
        f"by `benchmarks/bench_gpu.py`, by runs in a stack, and memory a run in the largest:",
        rows(["method", *map(str, sizes), "memory"], body),
        f"A plain PyTorch loop of one beta-VAE (eager, Adam, data on the GPU) made {plain:,.0f} in the same process: a "
        f"stack of 128 is {one / plain:.0f} times that. Three channels, 128 runs: {colours} of one channel. At these "
        f"rates the 12,600 models of the large study, 300,000 steps each, take {bench['study_gpu_days']:.1f} GPU-days.",
    ])  # fmt: skip


def lanes_table() -> str:
    """Small stacks of several methods in turn and at the same time."""
    bench = result("bench_lanes")
    body = [
        [", ".join(f"`{name}`" for name in row["methods"]), f"{row['in_turn']:,.0f}", f"{row['at_once']:,.0f}",
         f"{row['ratio']:.2f}"]
        for row in bench["together"]
    ]  # fmt: skip
    return "\n\n".join([
        f"Model-steps a second of {bench['seeds']} seeds of each of several methods on {bench['data']}, stacks in turn "
        f"and at the same time, on one {bench['machine']['devices'][0]}, by `benchmarks/bench_lanes.py`:",
        rows(["methods", "in turn", "at the same time", "ratio"], body),
    ])  # fmt: skip


def rate_row(method: str, measured: list[dict[str, Any] | None]) -> list[str]:
    """The rates of a method by stack size, and its memory in the largest stack that was measured."""
    rates = [f"{row['model_steps_per_second']:,.0f}" if row else "" for row in measured]
    return [f"`{method}`", *rates, f"{[row for row in measured if row][-1]['mebibytes_a_run']:.0f} MiB"]


def precision_table() -> str:
    """Losses and scores of the same seeds in fp32 and in bf16."""
    bench = result("bench_precision_dsprites_cuda")
    settings, scores, rates = bench["settings"], bench["scores"]["bf16"], bench["model_steps_per_second"]
    body = [
        [title, *(f"{row[p]:.3g} +- {row[p + ' sd']:.2g}" for p in ("fp32", "bf16")), f"{row['p']:.2f}",
         f"{row['p of distributions']:.2f}"]
        for name, title in NAMES.items() if (row := scores[name])
    ]  # fmt: skip
    return "\n\n".join([
        f"Shown to agree: {settings['seeds']} seeds of `{settings['method']}` on {settings['data']}, "
        f"{int(settings['steps']):,} steps each way on one {bench['machine']['devices'][0]} "
        f"({rates['fp32']:,.0f} model-steps/s in fp32, {rates['bf16']:,.0f} in bf16), mean +- standard deviation over "
        "seeds, p of a permutation test of the means and of Kolmogorov and Smirnov's test of the distributions:",
        rows(["", "fp32", "bf16", "p, means", "p, distributions"], body),
    ])  # fmt: skip
