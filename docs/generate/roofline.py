"""The block about bytes, arithmetic and the limit of a model-step in docs/guides/gpu.md."""

from __future__ import annotations

from typing import Any

from generate.markdown import result, table

RUNS = 128  # the stack size of the tables
LARGEST_ARRAYS = 8


def measured_rates(case: str) -> dict[int, float]:
    """Return the measured model-steps per second of a case of benchmarks/roofline.py, by the number of runs."""
    colour = case == "beta_vae_colour"
    bench, method = result("bench_gpu_colour" if colour else "bench_gpu_stacks"), "beta_vae" if colour else case
    data = "color_dsprites" if colour else "dsprites"
    rows = [row for row in bench["stacks"] if row["method"] == method and row["data"] == data]
    return {row["runs"]: row["model_steps_per_second"] for row in rows}


def fraction_of_limit(case: str) -> float:
    """Return the measured rate of the largest stack as a fraction of its limit."""
    return measured_rates(case)[RUNS] / float(result("roofline")["cases"][case]["runs"][str(RUNS)]["limit"])


def group_row(group: str, counts: dict[str, float], total: float) -> list[str]:
    """Return the bytes and operations of a group of kernels, and their times at the ceilings."""
    flop = [f"{counts['flop'] / 1e9:.2f}", f"{counts['seconds_flop'] * 1e6:.1f}"] if counts["flop"] else ["", ""]
    share, seconds = f"{counts['bytes'] / total:.0%}", f"{counts['seconds_bytes'] * 1e6:.1f}"
    return [group, f"{counts['bytes'] / 1e6:.1f}", share, seconds, *flop]


def group_table(case: dict[str, Any], begin: str = "") -> str:
    """Return the groups of kernels whose names start with `begin`, and the sum of the whole step."""
    total = case["runs"][str(RUNS)]
    groups = [(group, counts) for group, counts in case["groups"].items() if group.startswith(begin)]
    body = [group_row(group, counts, total["bytes"]) for group, counts in groups]
    header = ["kernels", "MB", "share", "us for bytes", "GFLOP", "us for arithmetic"]
    return table(header, [*body, group_row("**whole step**", total, total["bytes"])])


def limit_row(name: str, case: dict[str, Any], speed: float) -> list[str]:
    """Return the limit of one kind of step, its measured rate, and the bytes with which it would reach its aim."""
    total, rate, fraction = case["runs"][str(RUNS)], measured_rates(name)[RUNS], fraction_of_limit(name)
    allowed = speed / case["aim"] / 1e6
    return [case["title"], f"{total['bytes'] / 1e6:.0f}", f"{total['flop'] / 1e9:.1f}", f"{total['limit']:,.0f}",
            f"{rate:,.0f}", f"{fraction:.0%}", f"{case['aim']:,}", f"{allowed:.0f}",
            f"{allowed * fraction:.0f}"]  # fmt: skip


def limit_table(bench: dict[str, Any]) -> str:
    """Return the limits of all kinds of steps."""
    header = [
        "step",
        "MB",
        "GFLOP",
        "limit",
        "measured",
        "fraction",
        "aim",
        "MB at the aim, at the limit",
        "MB at the aim, at the measured fraction",
    ]
    speed = bench["ceilings"]["bytes_per_second"]
    return table(header, [limit_row(name, case, speed) for name, case in bench["cases"].items()])


def array_table(case: dict[str, Any]) -> str:
    """Return the arrays that account for most bytes."""
    rows = case["arrays"][:LARGEST_ARRAYS]
    body = [[r["array"], f"{r['bytes'] / 1e6:.1f}", str(r["writes"]), str(r["reads"])] for r in rows]
    return table(["array", "MB", "kernels that write it", "kernels that read it"], body)


def roofline_text() -> str:
    """Return the tables, with the rules of the count and the source of the ceilings."""
    bench = result("roofline")
    ceilings, cases = bench["ceilings"], bench["cases"]
    commits = [result(name)["commit"][:7] for name in ("bench_gpu_stacks", "bench_gpu_colour")]
    needed = cases["beta_vae"]["runs"][str(RUNS)]["needed_flop"] / 1e9
    return "\n\n".join([
        "The bytes and the operations of one model-step are computed from the shapes of the arrays, kernel by kernel, "
        f"for stacks of {RUNS} runs and batches of {bench['batch']} images (`benchmarks/roofline.py`). An array counts "
        "once in each kernel that reads it and once in each kernel that writes it. The count therefore assumes that "
        "nothing stays in the L2 cache between two kernels. The operations are those of matrix products as the kernels "
        f"compute them, with borders and padding. The layers of a beta-VAE need {needed:.2f} GFLOP without these.",
        f"The two ceilings are {ceilings['bytes_per_second'] / 1e12:.1f} TB/s and "
        f"{ceilings['flop_per_second'] / 1e12:.0f} TFLOP/s. {ceilings['source']} The next table has the work of one "
        "model-step of a beta-VAE with one channel, and the microseconds that it would take at the two ceilings.",
        group_table(cases["beta_vae"]),
        "FactorVAE has the same kernels and those of its critic:",
        group_table(cases["factor_vae"], "critic"),
        "In the next table, *limit* is the number of model-steps per second at which all bytes of today's kernels "
        f"would move at the first ceiling. *Measured* are the rates of {RUNS} runs at the commits `{commits[0]}` and, "
        f"with 3 channels (`color_dsprites`), `{commits[1]}`. Their kernels are older than those that were counted. "
        "*MB at the aim* is the number of bytes that a model-step may move if the aim is to be reached at the first "
        "ceiling. In the last column it is to be reached at the measured fraction of the limit.",
        limit_table(bench),
        "These arrays account for most of the bytes of a beta-VAE with one channel. Activations and gradients have the "
        "numbers of their layers, counted from the input of each network.",
        array_table(cases["beta_vae"]),
    ])  # fmt: skip
