"""The tables in docs/guides/cluster.md: the measured cost of the driver, and the projection of the large study."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

from generate import ROOT
from generate.markdown import replace_block, result, table
from unbraid.studies.projection import Assumptions, Projection, Task, project
from unbraid.studies.published import SEVEN_DATASETS, locatello2019

PAGE = ROOT / "docs" / "guides" / "cluster.md"
MODELS_OF_A_METHOD = 300  # on each dataset: six strengths and 50 seeds
ALL_RUNS = 12_600
ONE_CHANNEL = ("dsprites", "smallnorb")
GPUS = (1, 8, 64)
CASES = {
    "defaults": Assumptions(),
    "no losses, no scoring": Assumptions(losses_per_hour=0.0, scoring_seconds=0.0),
    "two cores per GPU": Assumptions(scoring_cores=2),
    "scoring not hidden": Assumptions(scoring_hidden=False),
    "0.2 losses per GPU and hour": Assumptions(losses_per_hour=0.2),
    "0.2 losses, shared folder": Assumptions(losses_per_hour=0.2, shared=True),
}
SOURCES = {
    "price": "assumed, in any currency",
    "start_seconds": "assumed",
    "compile_seconds": "measured: the first steps of all twelve kinds of stacks, without the two seconds of each trial",
    "data_seconds": "assumed; rendering dSprites takes 1 s on one core, the other datasets are read from files",
    "checkpoint_share": "the limit in the training loop; 2.0 % was measured with 128 beta-VAEs",
    "checkpoint_seconds": "assumed, from the checkpoint size of 150 FactorVAEs and the measured speed of writing",
    "losses_per_hour": "assumed",
    "shared": "the default of `--cluster`",
    "scoring_seconds": "measured: encoding and the default metrics of a study for models of dSprites, on one core of "
    "an AMD EPYC",
    "scoring_cores": "assumed",
    "scoring_hidden": "what `--cluster` does: other tasks score the runs on the cores of the nodes",
}


def cluster_pages() -> dict[Path, str]:
    """Return the page with its current tables."""
    text = PAGE.read_text()
    blocks = {"driver": driver_table, "rates": rates_table, "projection": projection_table,
              "assumptions": assumptions_table}  # fmt: skip
    for name, make in blocks.items():
        text = replace_block(text, name, make())
    return {PAGE: text}


def study_rates() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the measured stacks of the large study by dataset and method."""
    return {(row["data"], row["method"]): row for row in result("bench_study_rates")["large"]}


def steps_of_methods() -> dict[str, int]:
    """Return the training steps of each method of the large study, in the order in which stacks are submitted."""
    specs = {run.facts()["method"]: run.spec for run in locatello2019() if run.spec.data == "dsprites"}
    return {name: specs[name].steps for name in sorted(specs, key=lambda name: specs[name].stack_key())}


@functools.cache
def study_tasks() -> list[Task]:
    """Return the tasks of the large study, in the order in which they are submitted."""
    rates = study_rates()
    tasks = []
    for data in SEVEN_DATASETS:
        for method, steps in steps_of_methods().items():
            row = rates["dsprites" if data in ONE_CHANNEL else "color_dsprites", method]
            seconds = row["runs"] * steps / row["model_steps_per_second"]
            tasks += [Task(row["runs"], seconds)] * (MODELS_OF_A_METHOD // row["runs"])
    return tasks


def gpu_hours() -> float:
    """Return the GPU-hours of training of the large study, without anything else."""
    return sum(task.seconds for task in study_tasks()) / 3600


def driver_table() -> str:
    """Return what the driver of a study of one-step runs cost."""
    bench = result("bench_cluster")
    titles = {"returned": "nodes return their runs", "shared": "`--cluster-shared`"}
    rows = [driver_row(titles[how], row) for how, row in sorted(bench.items())]
    one = next(iter(bench.values()))
    fewer = "" if all(row["runs"] == ALL_RUNS for row in bench.values()) else (
        f" The whole study has {ALL_RUNS:,} runs. The benchmark has all of its datasets and settings, but fewer seeds."
    )  # fmt: skip
    about = (
        f"Measured on an {one['machine']['processor']} with {one['machine']['cores']} cores, which were shared with "
        f"other work, with {one['nodes']} Ray nodes of one core each (`benchmarks/bench_cluster.py`).{fewer}"
    )
    header = ["", "runs", "nodes lost and replaced", "processor time per run", "share of all processor time",
              "share of wall time", "peak memory", "every run once in the results table"]  # fmt: skip
    return "\n\n".join([table(header, rows), about])


def driver_row(title: str, row: dict[str, Any]) -> list[str]:
    """Return one row of the table of the driver."""
    return [
        title, f"{row['runs']:,}", str(row["nodes_lost"]), f"{1e3 * row['seconds_per_run']:.1f} ms",
        f"{row['share_of_cpu']:.1%}", f"{row['share_of_wall']:.1%}", f"{row['peak_bytes'] / 1e9:.2f} GB",
        "yes" if row["every_run_once"] else "no",
    ]  # fmt: skip


def rates_table() -> str:
    """Return the measured rates, and how fast small stacks are at the same time."""
    bench, rates = result("bench_study_rates"), study_rates()
    methods = sorted({method for _, method in rates})
    body = [
        [f"`{method}`", *(f"{rates[data, method]['model_steps_per_second']:,.0f}"
                          for data in ("dsprites", "color_dsprites"))]
        for method in methods
    ]  # fmt: skip
    alone = {row["method"]: row["model_steps_per_second"] for row in bench["small"] if row["concurrent"] == 1}
    group = max((row for row in bench["small"]), key=lambda row: int(row["concurrent"]))
    names = group["method"].split(" + ")
    in_turn = len(names) / sum(1 / alone[name] for name in names)
    return "\n\n".join([
        table(["method", "one channel", "three channels"], body),
        f"These are model-steps per second of stacks of {next(iter(rates.values()))['runs']} runs on one "
        f"{bench['machine']['devices'][0]}, with `dsprites` and `color_dsprites` (`benchmarks/bench_study_rates.py`). "
        f"At these rates, training the 12,600 models takes {gpu_hours():.1f} GPU-hours.",
        f"With two seeds per setting, the stacks have 12 runs. If {len(names)} such stacks are trained at the same "
        f"time, they make {group['model_steps_per_second']:,.0f} model-steps per second in total. If they are trained "
        f"one after another, they make {in_turn:,.0f}.",
    ])  # fmt: skip


def projections(assumptions: Assumptions) -> list[Projection]:
    """Return the projections of the large study for each number of GPUs."""
    return [project(study_tasks(), gpus, assumptions) for gpus in GPUS]


def projection_table() -> str:
    """Return the projected time and cost, for the default assumptions and for others."""
    main = [
        [str(p.gpus), f"{p.hours:.1f} h", f"{p.gpus * p.hours:.0f}", f"{p.busy:.0%}", f"{p.cost:,.0f}"]
        for p in projections(CASES["defaults"])
    ]
    others = [
        [name, *(f"{p.hours:.1f} h, {p.cost:,.0f}" for p in projections(assumptions))]
        for name, assumptions in CASES.items()
    ]
    longest = projections(CASES["defaults"])[0].longest_hours
    return "\n\n".join([
        table(["GPUs", "time", "GPU-hours", "of these training", "cost"], main),
        f"The study has {len(study_tasks())} tasks, and the longest takes {longest:.1f} h. With 64 GPUs, each GPU "
        "trains one or two tasks, and many GPUs wait for the last task. The next table has the time and the cost "
        "under other assumptions.",
        table(["assumption", *(f"{gpus} GPU{'s' * (gpus > 1)}" for gpus in GPUS)], others),
    ])  # fmt: skip


def assumptions_table() -> str:
    """Return every assumption with its default and where the default comes from."""
    values = dataclasses.asdict(Assumptions())
    return table(
        ["assumption", "default", "source"], [[f"`{name}`", f"{values[name]:g}", SOURCES[name]] for name in values]
    )
