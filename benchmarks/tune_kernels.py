"""Print what `unbraid tune` found on this GPU as rows of `unbraid/accel/kernels/tuned.py`.

`unbraid tune` searches; this script only prints. Layers for which the settings in use are the fastest are left out.
Run: unbraid tune && python benchmarks/tune_kernels.py [--precision tf32]
"""

from __future__ import annotations

import argparse
import math

import torch

from unbraid.accel.kernels.tuned import package_settings
from unbraid.accel.launch_candidates import Key, Launch
from unbraid.accel.launch_file import LaunchFile, read_launch_file
from unbraid.accel.tuning import DTYPES, gpu_environment


def limits(by_runs: dict[int, Launch]) -> dict[int, Launch]:
    """The settings by the largest number of runs for which they are used. Equal neighbours are merged."""
    sizes, rows = sorted(by_runs), dict[int, Launch]()
    for size, larger in zip(sizes, [*sizes[1:], None], strict=True):
        if larger is None or by_runs[size] != by_runs[larger]:
            rows[size if larger is None else math.isqrt(size * larger)] = by_runs[size]
    return rows


def changed_rows(stored: LaunchFile, precision: str) -> dict[Key, dict[int, Launch]]:
    """The rows of layers with faster settings. Where the package is as fast, its settings are repeated."""
    dtype: torch.dtype = DTYPES["bf16" if precision == "bf16" else "tf32"]
    return {
        key: limits({runs: found or package_settings(*key, dtype, runs) for runs, found in by_runs.items()})
        for key, by_runs in stored.tables[precision].items()
        if any(by_runs.values())
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", choices=("bf16", "tf32"), default="bf16")
    options = parser.parse_args()
    stored = read_launch_file(gpu_environment())
    if stored is None:
        raise SystemExit("Nothing is stored for this GPU. Run: unbraid tune")
    for key, rows in changed_rows(stored, options.precision).items():
        print(f"    {key}: {{")
        for limit, launch in rows.items():
            print(f"        {limit}: {launch},")
        print("    },")


if __name__ == "__main__":
    main()
