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
memory until the runs are finished (`unbraid.accel.allocator`). The peak memory of the process grew from 680 to 688 MB
(`dsprites`, fp32). The table has the cost of one step of `beta_vae` with batches of 64 and the network `locatello` on
one core. Steps that return memory and steps that keep it took turns in 6 rounds of 20 steps. Times are those of the
fastest round, and page faults are medians.

| data | precision | CPU time, memory returned | CPU time, memory kept | page faults, memory returned |
|---|---|---|---|---|
| `dsprites`, 64x64 pixels | fp32 | 90.1 ms | 75.2 ms | 6,112 |
| `dsprites`, 64x64 pixels | bf16 | 60.2 ms | 51.4 ms | 3,888 |
| `sprites`, 32x32 pixels | fp32 | 33.4 ms | 29.9 ms | 1,404 |
| `sprites`, 32x32 pixels | bf16 | 23.5 ms | 22.6 ms | 268 |

If memory is kept, there are at most two page faults per step. If memory is returned, their number
depends on what the process has allocated before, and is sometimes 0.
"""


def training_row(case: dict[str, Any]) -> list[str]:
    """Return one training step of a beta-VAE, ours and pythae's."""
    runs = "one run" if case["runs"] == 1 else f"{case['runs']} runs together"
    what = f"beta-VAE step, batch 64, 64x64 pixels, `{case['net']}`, {case['precision']}, {runs}"
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
    """Return the machine of the CPU rows."""
    about = result("bench_train")["machine"]
    where = f"{about['processor']}, {about['cores']} cores"
    return f"CPU times were measured on an {where}. Training times are per run and step. pythae computes in fp32."


def short_speed_table() -> str:
    """Return the table of README.md."""
    cases = [case for case in result("bench_train")["steps"] if case["net"] == "locatello"]
    body = [training_row(case) for case in cases if case["precision"] == "bf16" or case["runs"] == 1]
    return table(HEADER, [*body, *other_rows()]) + f"\n\n{machine()} [All measurements](docs/design/speed.md)."


def speed_pages() -> dict[Path, str]:
    """Return the generated page."""
    body = [training_row(case) for case in result("bench_train")["steps"]]
    return {PAGE: HEAD + table(HEADER, [*body, *other_rows()]) + f"\n\n{machine()}\n" + MEMORY}
