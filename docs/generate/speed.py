"""How fast training, metrics and rendering are: a page, and a short table for README.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from generate import ROOT
from generate.gpu import gpu_speed
from generate.markdown import result, table

PAGE = ROOT / "docs" / "design" / "speed.md"
HEADER = ["what", "unbraid", "reference", "speed-up"]
HEAD = """# Speed

After reading this page you know how fast training, metrics and rendering are, compared with other implementations.
[GPUs](../guides/gpu.md) has the speed on a GPU by method and stack size, and the page of each
[metric](../metrics/index.md) has its cost. `make bench` measures everything again, and `make docs` generates this page
from `benchmarks/results`.

"""

MEMORY = """
## Memory on a CPU

By default, the C library of Linux (glibc) returns large blocks of memory to the system when they are freed. The next
step allocates them again, and the system clears each page. Training on a CPU therefore tells the library to keep freed
memory until the runs are finished (`unbraid.accel.allocator`). `tests/accel/test_allocator.py` counts the page
faults of a step.
"""


def training_cases(name: str = "bench_train") -> list[dict[str, Any]]:
    """Return the measured training steps, each with its image side and number of threads.

    Results that were measured with one image side and one number of threads do not have them in each case.
    """
    found = result(name)
    return [{"side": 64, "threads": found["threads"], **case} for case in found["steps"]]


def training_row(case: dict[str, Any]) -> list[str]:
    """Return one training step of a beta-VAE, ours and pythae's."""
    runs = "one run" if case["runs"] == 1 else f"{case['runs']} runs together"
    size = f"{case['side']}x{case['side']} pixels"
    what = f"beta-VAE step, batch 64, {size}, `{case['net']}`, {case['precision']}, {runs}"
    if isinstance(result("bench_train")["threads"], list):  # measured with several numbers of threads
        what += f", {case['threads']} core{'s' * (case['threads'] > 1)}"
    ours, theirs = case["ms"]["unbraid"], case["ms"]["pythae"]
    return [what, f"{ours:.1f} ms", f"{theirs:.1f} ms (pythae)", f"{theirs / ours:.1f}"]


def other_rows() -> list[list[str]]:
    """Return the speed of metrics, of a GPU, and of rendering."""
    render, metrics = result("bench_dsprites"), result("bench_metrics")
    ours, theirs = metrics["ours"]["total"], metrics["reference"]["total"]
    return [
        ["all nine metric configurations of `locatello2019` for one run, 10,000 training and 5,000 test rows, one core",
         f"{ours:.1f} s", f"{theirs:.0f} s (scikit-learn)", f"{theirs / ours:.0f}"],
        gpu_speed(),
        ["rendering all 737,280 images of dSprites, one core", f"{render['render']['cpu']['median_seconds']:.2f} s", "",
         ""],
    ]  # fmt: skip


def machine() -> str:
    """Return the machine of the CPU rows, and that of the metrics if it is another one."""
    about, metrics = (result(name)["machine"] for name in ("bench_train", "bench_metrics"))
    where = f"{about['processor']}, {about['cores']} cores"
    if metrics["processor"] != about["processor"]:
        where += f", and those of the metrics on an {metrics['processor']}"
    return f"CPU times were measured on an {where}. Training times are per run and step. pythae computes in fp32."


def short_speed_table() -> str:
    """Return the table of README.md."""
    cases = training_cases()
    cores = max(case["threads"] for case in cases)
    shown = [case for case in cases if (case["net"], case["side"], case["threads"]) == ("locatello", 64, cores)]
    body = [training_row(case) for case in shown if case["precision"] == "bf16" or case["runs"] == 1]
    return table(HEADER, [*body, *other_rows()]) + f"\n\n{machine()} [All measurements](docs/design/speed.md)."


def processor_with_amx() -> str:
    """Return the speed of single runs on a processor that multiplies bfloat16 in units for matrices (AMX)."""
    about = result("bench_train_amx")
    body = [training_row(case) for case in training_cases("bench_train_amx") if case["runs"] == 1]
    return (
        f"\n## On another processor\n\nAn {about['machine']['processor']}, {about['machine']['cores']} cores, "
        "multiplies matrices of bfloat16 in special units (AMX). The next table was measured there at the commit "
        f"`{about['commit'][:8]}`.\n\n{table(HEADER, body)}\n"
    )


def speed_pages() -> dict[Path, str]:
    """Return the generated page."""
    body = [training_row(case) for case in training_cases()]
    return {PAGE: HEAD + table(HEADER, [*body, *other_rows()]) + f"\n\n{machine()}\n" + processor_with_amx() + MEMORY}
