"""The tables in docs/guides/gpu.md, measured by the benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from generate import ROOT
from generate.cluster import gpu_hours
from generate.markdown import replace_block, result, table
from generate.roofline import roofline_text

PAGE = ROOT / "docs" / "guides" / "gpu.md"
NAMES = {"rec": "reconstruction", "kl": "KL", "mig": "MIG", "dci": "DCI", "factor_vae": "FactorVAE score",
         "modularity": "modularity", "unsupervised": "total correlation"}  # fmt: skip


def gpu_pages() -> dict[Path, str]:
    """Return the page with its current tables."""
    text = PAGE.read_text()
    tables = {
        "gpu": gpu_table,
        "stacks": stacks_table,
        "concurrent_stacks": concurrent_stacks_table,
        "launches": launches_table,
        "nested": nested_table,
        "own_network": own_network_table,
        "precision": precision_table,
        "compiled": compiled_table,
        "roofline": roofline_text,
    }
    for name, make in tables.items():
        text = replace_block(text, name, make())
    return {PAGE: text}


def gpu_speed() -> list[str]:
    """Return the row of the README: a stack of 128 runs against one model in plain PyTorch."""
    bench = result("bench_gpu_compiled")
    rows = [row for row in bench["stacks"] if row["method"] == "beta_vae" and row["data"] == "dsprites"]
    best = max(rows, key=lambda row: row["runs"] == 128)
    ours = best["model_steps_per_second"]
    plain = [result(name)["plain_loop"]["dsprites"] for name in ("bench_gpu", "bench_gpu_stacks", "bench_gpu_compiled")]
    low, high = min(plain), max(plain)
    what = f"{best['runs']} beta-VAEs on dSprites together on one {bench['gpu']}"
    theirs = f"{low:,.0f} to {high:,.0f} model-steps/s (PyTorch, in three measurements)"
    return [what, f"{ours:,.0f} model-steps/s", theirs, f"{ours / high:.0f} to {ours / low:.0f}"]


def gpu_table() -> str:
    """Return the speed of each method by stack size, the speed on colour images, and the time of the large study."""
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
        f"The table has the speed on one {bench['gpu']} in model-steps per second, with one column per number of runs "
        "in a stack. A model-step is one step of one run, here with batches of 64 images of 64x64 pixels, the network "
        "`locatello` and bf16. The last column is the memory per run in the largest stack that was measured. Empty "
        "cells were not measured (`benchmarks/bench_gpu.py`).",
        table(["method", *map(str, sizes), "memory"], body),
        f"For comparison, a plain PyTorch loop with one beta-VAE (eager, Adam, data on the GPU) makes {plain:,.0f} "
        f"model-steps per second in the same process. A stack of 128 beta-VAEs is {one / plain:.0f} times as fast.",
        "Images with three channels are slower. The speeds with 128 beta-VAEs, and in brackets the fraction of the "
        f"speed with one channel, are: {colours}.",
        f"At newer speeds, training the 12,600 models of the large study takes {gpu_hours():.1f} GPU-hours "
        "([From one GPU to a cluster](cluster.md)).",
    ])  # fmt: skip


def stacks_table() -> str:
    """Return the speeds with the first launch settings, with settings by number of runs, and with compiled steps."""
    old, pairs = result("bench_gpu"), result("bench_gpu_pairs")
    colour, tuned, compiled = result("bench_gpu_colour"), result("bench_gpu_stacks"), result("bench_gpu_compiled")
    first, then, now = (
        {(row["method"], row["data"], row["runs"]): row["model_steps_per_second"] for row in rows}
        for rows in (pairs["stacks"] + colour["stacks"] + old["stacks"], tuned["stacks"], compiled["stacks"])
    )
    body = []
    for key in sorted({*then, *now}, key=lambda key: (key[1] != "dsprites", *key)):
        rates = [found.get(key) for found in (first, then, now)]
        best = rates[2] or rates[1]
        ratio = f"{best / rates[0]:.2f}" if rates[0] and best else ""
        body.append([f"`{key[0]}`", key[1], str(key[2]), *(f"{rate:,.0f}" if rate else "" for rate in rates), ratio])
    text = (
        "The table above was measured before launch settings depended on the number of runs, and before steps were "
        f"compiled. The next table has newer speeds on one {compiled['gpu']}, in model-steps per second. The column "
        "*first version* repeats the table above. The next one has launch settings that depend on the number of runs, "
        "and the last one also compiled steps. The ratio is that of the newest speed and the first. When the last "
        f"two were measured, the plain PyTorch loop made {tuned['plain_loop']['dsprites']:,.0f} and "
        f"{compiled['plain_loop']['dsprites']:,.0f} model-steps per second. Its speed depends on the CPU, "
        "which launches its operations one by one. Empty cells were not measured."
    )
    head = ["method", "data", "runs", "first version", "+ launch settings", "+ compiled steps", "ratio"]
    return "\n\n".join([text, table(head, body)])


def concurrent_stacks_table() -> str:
    """Return the speed of small stacks of several methods, one after another and at the same time."""
    bench = result("bench_concurrent_stacks")
    body = [
        [", ".join(f"`{name}`" for name in row["methods"]), f"{row['in_turn']:,.0f}", f"{row['at_once']:,.0f}",
         f"{row['ratio']:.2f}"]
        for row in bench["together"]
    ]  # fmt: skip
    return "\n\n".join([
        f"The next table shows the gain from training small stacks at the same time: model-steps per second of several "
        f"methods with {bench['seeds']} seeds each on {bench['data']}, on one {bench['machine']['devices'][0]} "
        "(`benchmarks/bench_concurrent_stacks.py`). Steps are compiled.",
        table(["methods", "one after another", "at the same time", "ratio"], body),
    ])  # fmt: skip


def launches_table() -> str:
    """Return the kernel launches and the speed of small stacks, without and with compiled steps."""
    bench = result("bench_concurrent_stacks")
    columns = ("not_compiled_launches", "compiled_launches", "not_compiled_speed", "compiled_speed")
    body = [[f"`{name}`", *(f"{found[column]:,.0f}" for column in columns)] for name, found in bench["alone"].items()]
    return "\n\n".join([
        f"Kernel launches per step, and model-steps per second, of stacks of {bench['seeds']} runs on one "
        f"{bench['machine']['devices'][0]}, without and with compiled steps (`benchmarks/bench_concurrent_stacks.py`):",
        table(["method", *(f"{what}, {how}" for what in ("launches", "speed") for how in ("not compiled", "compiled"))],
              body),
    ])  # fmt: skip


def rate_row(method: str, measured: list[dict[str, Any] | None]) -> list[str]:
    """Return the speeds of a method by stack size, and its memory in the largest stack that was measured."""
    rates = [f"{row['model_steps_per_second']:,.0f}" if row else "" for row in measured]
    return [f"`{method}`", *rates, f"{[row for row in measured if row][-1]['mebibytes_a_run']:.0f} MiB"]


def nested_table() -> str:
    """Return the speeds of networks inside others and of networks in float32, without and with kernels."""
    bench = result("bench_nested")
    rates = {(row["method"], row["mode"]): row["model_steps_per_second"] for row in bench["stacks"]}
    rows = []
    for row in bench["stacks"]:
        if row["mode"] == "kernels":
            name, rate, before = row["method"], row["model_steps_per_second"], rates[row["method"], "vmap"]
            sizes = [row["precision"], str(row["runs"])]
            rows.append([f"`{name}`", *sizes, f"{before:,.0f}", f"{rate:,.0f}", f"{rate / before:.1f}"])
    compiled = {row["compiled"] for row in bench["stacks"]}
    assert len(compiled) == 1, "either all steps are compiled or none"
    how = "Steps are compiled." if compiled.pop() else "Steps are not compiled."
    return "\n\n".join([
        "The next table has the speeds of small stacks on dsprites in model-steps per second, on one "
        f"{bench['machine']['devices'][0]}, without and with kernels for networks inside others and for networks in "
        f"float32 (`benchmarks/bench_nested.py`). {how}",
        table(["method", "precision", "runs", "without", "with", "ratio"], rows),
    ])  # fmt: skip


def own_network_table() -> str:
    """Return the speed of stacks of a network without kernels, beside a plain loop with one model."""
    bench = result("bench_own_network")
    rows = [
        [str(row["runs"]), f"{row['model_steps_per_second']:,.0f}", f"{row['ratio']:.1f}"]
        for row in bench["stacks"]
        if row["precision"] == "bf16"
    ]
    return "\n\n".join([
        "The next table has the speed of a network that has no kernels (residual blocks, batch normalisation, images "
        f"of 128x128x3, batch {bench['batch']}, bf16) in model-steps per second, on one "
        f"{bench['machine']['devices'][0]}. A plain PyTorch loop with one model made "
        f"{bench['plain_loop']['bf16']:,.0f} model-steps per second in the same process "
        "(`benchmarks/bench_own_network.py`).",
        table(["runs", "model-steps/s", "times the plain loop"], rows),
    ])  # fmt: skip


def precision_table() -> str:
    """Return losses and scores of the same seeds in fp32 and in bf16."""
    bench = result("bench_precision_dsprites_cuda")
    settings, scores, rates = bench["settings"], bench["scores"]["bf16"], bench["model_steps_per_second"]
    body = [
        [title, *(f"{row[p]:.3g} +- {row[p + ' sd']:.2g}" for p in ("fp32", "bf16")), f"{row['p']:.2f}",
         f"{row['p of distributions']:.2f}"]
        for name, title in NAMES.items() if (row := scores.get(name))
    ]  # fmt: skip
    return "\n\n".join([
        f"The next table compares fp32 with bf16. {settings['seeds']} seeds of `{settings['method']}` were trained on "
        f"{settings['data']} for {int(settings['steps']):,} steps in each precision, on one "
        f"{bench['machine']['devices'][0]}. The speed was {rates['fp32']:,.0f} model-steps per second in fp32 and "
        f"{rates['bf16']:,.0f} in bf16. The table has means and standard deviations over seeds, and two p-values: of a "
        "permutation test of the means, and of the Kolmogorov-Smirnov test of the distributions. Metrics use "
        "[reference draws](scores_results.md#which-draws-the-tables-of-this-documentation-use).",
        table(["loss or score", "fp32", "bf16", "p, means", "p, distributions"], body),
    ])  # fmt: skip


def compiled_table() -> str:
    """Return losses and scores of the same seeds without and with compiled steps."""
    bench = result("bench_compiled")
    kinds = ("not compiled", "compiled")
    body = [
        [f"`{method}`", title, *(f"{row[k]:.3g} +- {row[k + ' sd']:.2g}" for k in kinds), f"{row['p']:.2f}",
         f"{row['p of distributions']:.2f}"]
        for method, found in bench["methods"].items()
        for name, title in NAMES.items() if (row := found["scores"].get(name))
    ]  # fmt: skip
    return "\n\n".join([
        f"{bench['seeds']} seeds were trained on {bench['data']} for {bench['steps']:,} steps without and with "
        f"compiled steps, on one {bench['machine']['devices'][0]} (`benchmarks/bench_compiled.py`). The two "
        "p-values are those of the [comparison of precisions](#precision).",
        table(["method", "loss or score", *kinds, "p, means", "p, distributions"], body),
    ])  # fmt: skip
