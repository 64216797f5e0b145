"""The training time that `unbraid study --plan` projects for a part of the large study, and the measured time.

Each kind of stack is measured for two seconds (`estimate_study`), and then all stacks are trained. Neither time
includes scoring.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from machine import describe
from unbraid.runtime.files import write_atomic
from unbraid.studies.estimate import estimate_study
from unbraid.studies.local import run_study
from unbraid.studies.planned import PlannedRun
from unbraid.studies.published import locatello2019
from unbraid.studies.reduction import Reduction
from unbraid.studies.settings import StudySettings

RESULT = Path(__file__).parent / "results" / "bench_plan.json"
LINE = "{method:14} projected {projected:7.1f} s   measured {measured:7.1f} s   ratio {ratio:.2f}"

Row = dict[str, Any]


def training_seconds(runs: list[PlannedRun], device: str) -> float:
    """The seconds in which a study trains these runs."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        run_study(runs, StudySettings(Path(folder), device, scored=False), quiet=True)
        return time.perf_counter() - started


def compare(runs: list[PlannedRun], device: str) -> list[Row]:
    """One row per method: the projected seconds, the seconds measured right after, and their ratio."""
    rows = []
    for method in dict.fromkeys(run.facts()["method"] for run in runs):
        part = [run for run in runs if run.facts()["method"] == method]
        (estimate,) = estimate_study(part, StudySettings(Path(), device))
        row: Row = {"method": method, "runs": estimate.runs, "stacks": estimate.stacks, "steps": estimate.steps}
        row |= {"projected": estimate.seconds, "measured": training_seconds(part, device)}
        rows.append({**row, "ratio": row["measured"] / row["projected"]})
        print(LINE.format(**rows[-1]), flush=True)
    return rows


def main() -> None:
    """Project, train, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="sprites")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    reduction = Reduction({"level": ["0", "5"]}, range(options.seeds), options.steps, data=options.data)
    rows = compare(reduction.apply(locatello2019()), options.device)
    total = {key: sum(row[key] for row in rows) for key in ("projected", "measured")}
    total["ratio"] = total["measured"] / total["projected"]
    print(LINE.format(method="together", **total))
    result = {
        **describe(),
        "threads": torch.get_num_threads(),
        "data": options.data,
        "device": options.device,
        "rows": rows,
        **total,
    }
    write_atomic(options.out, (json.dumps(result, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
