"""The training rates of the stacks of locatello2019 on a GPU, as `unbraid study --plan` measures them.

For a dataset with one channel and one with three channels, it measures the stacks of all 36 settings with 50 seeds.
With two seeds per setting, the stacks are small, and it measures them at the same time and one after another. `seconds`
is the time of one measurement with the construction of the stacks and the compilation of kernels.
Run: python benchmarks/bench_study_rates.py
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from machine import describe
from unbraid.runtime.files import write_atomic
from unbraid.studies.estimate import estimate_kind, method_names
from unbraid.studies.runner import select_runs
from unbraid.studies.settings import StudySettings
from unbraid.studies.stacks import StudyStack, study_stacks, study_tasks

RESULT = Path(__file__).parent / "results" / "bench_study_rates.json"
DATA = ("dsprites", "color_dsprites")
Row = dict[str, Any]


def measure(kind: list[StudyStack]) -> Row:
    """Return the rate and the memory of the stacks of one kind."""
    started = time.perf_counter()
    spec = kind[0].runs[0].spec
    estimate = estimate_kind(kind, spec.data, method_names(kind[0]), spec.steps)
    row = {
        "data": spec.data, "method": estimate.method, "runs": estimate.tasks[0][0], "concurrent": estimate.concurrent,
        "model_steps_per_second": estimate.rate, "mebibytes": estimate.memory / 2**20,
        "seconds": time.perf_counter() - started, "precision": spec.precision,
    }  # fmt: skip
    print(row, flush=True)
    return row


def stacks_by_kind(stacks: list[StudyStack]) -> list[list[StudyStack]]:
    """Return the stacks with the same methods together."""
    kinds: dict[str, list[StudyStack]] = {}
    for stack in stacks:
        kinds.setdefault(method_names(stack), []).append(stack)
    return list(kinds.values())


def main() -> None:
    """Measure, and write the result after each measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--data", nargs="*", default=list(DATA))
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    settings = StudySettings(Path(), options.device)
    found: dict[str, Any] = {**describe(), "large": [], "small": []}

    def add(where: str, stacks: list[StudyStack]) -> None:
        for kind in stacks_by_kind(stacks):
            found[where].append(measure(kind))
            write_atomic(options.out, (json.dumps(found, indent=1) + "\n").encode())

    small = select_runs("locatello2019", None, range(2), None, None, 1.0, list(options.data[:1]), None)
    add("small", list(study_tasks(small, settings)))
    add("small", list(study_stacks(small, settings)))
    for name in options.data:
        runs = select_runs("locatello2019", None, range(options.seeds), None, None, 1.0, name, None)
        add("large", list(study_tasks(runs, settings)))


if __name__ == "__main__":
    main()
