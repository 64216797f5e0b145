"""What `unbraid study --plan` projects for a cut of the large study, beside what its training took.

Each kind of stack is tried for two seconds (`plan`), then all of them are trained. Scoring is left out of both.
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
from unbraid.studies.cut import Cut
from unbraid.studies.plan import plan
from unbraid.studies.planned import Planned
from unbraid.studies.published import locatello2019
from unbraid.studies.runner import Order, run_study

RESULT = Path(__file__).parent / "results" / "bench_plan.json"
LINE = "{method:14} projected {projected:7.1f} s   measured {measured:7.1f} s   ratio {ratio:.2f}"

Row = dict[str, Any]


def trained(runs: list[Planned], device: str) -> float:
    """Seconds of training runs as a study does it."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        run_study(runs, Order(Path(folder), device, scored=False), quiet=True)
        return time.perf_counter() - begun


def compared(runs: list[Planned], device: str) -> list[Row]:
    """A row a method: seconds projected and measured right after, by the wall clock, and their ratio."""
    rows = []
    for method in dict.fromkeys(run.facts()["method"] for run in runs):
        part = [run for run in runs if run.facts()["method"] == method]
        (estimate,) = plan(part, Order(Path(), device))
        row: Row = {"method": method, "runs": estimate.runs, "stacks": estimate.stacks, "steps": estimate.steps}
        row |= {"projected": estimate.seconds, "measured": trained(part, device)}
        rows.append({**row, "ratio": row["measured"] / row["projected"]})
        print(LINE.format(**rows[-1]), flush=True)
    return rows


def main() -> None:
    """Plan, train, print and write the result beside this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="sprites")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    cut = Cut({"level": ["0", "5"]}, range(options.seeds), options.steps, data=options.data)
    rows = compared(cut.of(locatello2019()), options.device)
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
