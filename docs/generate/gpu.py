"""The tables in docs/guides/gpu.md, measured by the benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from generate import ROOT
from generate.markdown import replace_block, result, table

PAGE = ROOT / "docs" / "guides" / "gpu.md"
NAMES = {"rec": "reconstruction", "kl": "KL", "mig": "MIG", "factor_vae": "FactorVAE score",
         "modularity": "modularity", "unsupervised": "total correlation"}  # fmt: skip


def gpu_pages() -> dict[Path, str]:
    """Return the page with its current tables."""
    text = PAGE.read_text()
    tables = {"gpu": gpu_table, "concurrent_stacks": concurrent_stacks_table, "precision": precision_table}
    for name, make in tables.items():
        text = replace_block(text, name, make())
    return {PAGE: text}


def gpu_speed() -> list[str]:
    """Return the row of the README: a stack of 128 runs against one model in plain PyTorch."""
    bench = result("bench_gpu")
    best = max((row for row in bench["stacks"] if row["method"] == "beta_vae"), key=lambda r: r["runs"] == 128)
    ours, plain = best["model_steps_per_second"], bench["plain_loop"]["dsprites"]
    what = f"{best['runs']} beta-VAEs on dSprites together on one {bench['gpu']}"
    return [what, f"{ours:,.0f} model-steps/s", f"{plain:,.0f} model-steps/s (PyTorch)", f"{ours / plain:.0f}"]


def gpu_table() -> str:
    """Return the speed of each method by stack size, of data with colours, and the time of the large study."""
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
        f"Model-steps per second (one step of one run; batch 64, 64x64 pixels, `locatello`, bf16) on one "
        f"{bench['gpu']} by the number of runs in a stack, and memory per run in the largest stack "
        "(`benchmarks/bench_gpu.py`):",
        table(["method", *map(str, sizes), "memory"], body),
        f"A plain PyTorch loop of one beta-VAE (eager, Adam, data on the GPU) makes {plain:,.0f} in the same process; "
        f"a stack of 128 is {one / plain:.0f} times as fast. With three channels and 128 runs: {colours} of the speed "
        "with one channel. At these rates the 12,600 models of the large study, with 300,000 steps each, take "
        f"{bench['study_gpu_days']:.1f} GPU-days.",
    ])  # fmt: skip


def concurrent_stacks_table() -> str:
    """Return the speed of small stacks of several methods, one after another and at the same time."""
    bench = result("bench_concurrent_stacks")
    body = [
        [", ".join(f"`{name}`" for name in row["methods"]), f"{row['in_turn']:,.0f}", f"{row['at_once']:,.0f}",
         f"{row['ratio']:.2f}"]
        for row in bench["together"]
    ]  # fmt: skip
    return "\n\n".join([
        f"Model-steps per second of several methods with {bench['seeds']} seeds each on {bench['data']}, with their "
        f"stacks one after another and at the same time, on one {bench['machine']['devices'][0]} "
        f"(`benchmarks/bench_concurrent_stacks.py`):",
        table(["methods", "one after another", "at the same time", "ratio"], body),
    ])  # fmt: skip


def rate_row(method: str, measured: list[dict[str, Any] | None]) -> list[str]:
    """Return the speeds of a method by stack size, and its memory in the largest stack that was measured."""
    rates = [f"{row['model_steps_per_second']:,.0f}" if row else "" for row in measured]
    return [f"`{method}`", *rates, f"{[row for row in measured if row][-1]['mebibytes_a_run']:.0f} MiB"]


def precision_table() -> str:
    """Return losses and scores of the same seeds in fp32 and in bf16."""
    bench = result("bench_precision_dsprites_cuda")
    settings, scores, rates = bench["settings"], bench["scores"]["bf16"], bench["model_steps_per_second"]
    body = [
        [title, *(f"{row[p]:.3g} +- {row[p + ' sd']:.2g}" for p in ("fp32", "bf16")), f"{row['p']:.2f}",
         f"{row['p of distributions']:.2f}"]
        for name, title in NAMES.items() if (row := scores[name])
    ]  # fmt: skip
    return "\n\n".join([
        f"Comparison of the two: {settings['seeds']} seeds of `{settings['method']}` on {settings['data']}, "
        f"{int(settings['steps']):,} steps in each precision on one {bench['machine']['devices'][0]} "
        f"({rates['fp32']:,.0f} model-steps/s in fp32, {rates['bf16']:,.0f} in bf16), mean +- standard deviation over "
        "seeds, p of a permutation test of the means and of the Kolmogorov-Smirnov test of the distributions:",
        table(["", "fp32", "bf16", "p, means", "p, distributions"], body),
    ])  # fmt: skip
