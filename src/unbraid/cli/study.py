"""Train and score a whole study, published or your own. The same command resumes a study that was interrupted.

Several processes or machines may work in one output folder; they share the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unbraid.cli.parser import Parser, add_device, add_quiet, add_root, parse_and_run
from unbraid.cli.printing import table
from unbraid.cli.values import argument_type, integers
from unbraid.errors import UserError
from unbraid.metrics.protocol import DRAWS
from unbraid.runtime.progress import format_duration

STUDY_HELP = (
    "study to run: locatello2019, locatello2020_weak, pmp2021, diffusion2019, demystifying2021, vitae_mnist, "
    "vitae_bodies, vitae_celeba, small, or a .py, .toml or .json file of your own"
)


def add_flags(parser: Parser) -> None:
    """Add the flags that select, train and score the runs of a study."""
    add = parser.add_argument
    add("--out", type=Path, help="folder of the runs and of results.sqlite (required unless --plan)")
    only = "select runs by a fact, such as data=dsprites, method=beta_vae, level=0,5 or beta=4 (repeatable) [all runs]"
    add("--only", action="append", default=[], metavar="FACT=V,V", help=only)
    add("--seeds", type=argument_type(integers), metavar="V", help="select seeds, such as 0-4 [all of the study]")
    add("--steps", type=int, help="training steps of all runs; schedules are rescaled [those of the study]")
    add("--learning-rate", type=float, help="learning rate of all runs [that of the study]")
    scale = "share of the work, above 0 and at most 1: its square root is the share of seeds and of steps [1]"
    add("--scale", type=float, default=1.0, help=scale)
    data = "dataset that replaces the first of the study (repeat it for the second and so on) [those of the study]"
    add("--data", action="append", help=data)
    add("--plan", action="store_true", help="train nothing; print runs, stacks, memory and an estimate of the time")
    add("--shard", type=argument_type(shard), metavar="I/N", help="run share I of N only, for a batch scheduler [1/1]")
    metrics = "metrics to compute; +A,B adds to the defaults, none computes none [those of the paper and the analyses]"
    add("--metrics", metavar="A,B", help=metrics)
    add("--samples", type=int, default=10_000, help="training rows of the metrics; half as many test rows [10000]")
    draws = "how rows of metrics are drawn [reference for published studies, disjoint for your own]"
    add("--draws", choices=DRAWS, help=draws)
    add("--jobs", type=int, help="processes that compute metrics [all cores; 1 per stack with --cluster]")
    add("--precision", choices=("fp32", "tf32", "bf16"), help="precision of matrix products [fastest of the device]")
    add_device(parser)
    cluster = "use a Ray cluster: auto (that of this machine or a new one), HOST:PORT or ray://HOST:PORT [no cluster]"
    add("--cluster", metavar="ADDRESS", help=cluster)
    add("--cluster-shared", action="store_true", help="all nodes see --out and write into it; nothing is sent back")
    add_quiet(parser)
    add_root(parser)


def shard(text: str) -> tuple[int, int]:
    """Read I/N.

    >>> shard("3/64")
    (3, 64)
    """
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal()):
        raise UserError(f"A shard must be I/N, such as 3/64. Got {text!r} instead.")
    return int(part), int(parts)


def metric_names(text: str | None) -> list[str] | None:
    """The value of --metrics as names: None for the defaults, an empty list for none; a leading + adds to the defaults.

    >>> metric_names("mig,sap"), metric_names("none"), metric_names("+irs")[-1]
    (['mig', 'sap'], [], 'irs')
    """
    from unbraid.studies.settings import STUDY_METRICS

    if text is None:
        return None
    if text == "none":
        return []
    return [*STUDY_METRICS, *text[1:].split(",")] if text.startswith("+") else text.split(",")


def selection(options: Any) -> dict[str, Any]:
    """The flags that select and change runs, as arguments of `unbraid.study` and `plan_study`."""
    only: dict[str, list[str]] = {}
    for fact, _, values in (text.partition("=") for text in options.only):
        if not values:
            raise UserError(f"--only must be FACT=VALUE, such as data=dsprites. Got {fact!r} instead.")
        only.setdefault(fact, []).extend(values.split(","))
    names = ("seeds", "steps", "learning_rate", "scale", "data", "shard", "precision", "device")
    return {"only": only, **{name: getattr(options, name) for name in names}}


def training(options: Any) -> dict[str, Any]:
    """The remaining flags, as arguments of `unbraid.study`."""
    if options.out is None:
        raise UserError("Give the folder of the runs: --out FOLDER. Or use --plan to see what would be trained.")
    names = ("samples", "draws", "jobs", "cluster", "cluster_shared", "quiet")
    return {"metrics": metric_names(options.metrics), **{name: getattr(options, name) for name in names}}


def main(parser: Parser, arguments: Sequence[str]) -> int:
    parser.add_argument("study", help=STUDY_HELP)
    add_flags(parser)
    return parse_and_run(parser, arguments, run)


def run(options: Any) -> None:
    """Print the plan of a study, or run the study."""
    selected = selection(options)
    if options.plan:
        print(plan_text(options.study, selected))
        return
    flags = training(options)
    from unbraid.runs.folder import find_runs
    from unbraid.studies.runner import study

    path = study(options.study, options.out, **selected, **flags)
    count = len(find_runs(options.out))
    print(f"{count} runs in {options.out}; results table: {path}. Next: unbraid analyse {options.out}")


def plan_text(name: str, selected: dict[str, Any]) -> str:
    """A table with one row per kind of stack, and the total time."""
    from unbraid.studies.runner import plan_study

    estimates = plan_study(name, **selected)
    header = ["data", "method", "runs", "stacks", "MiB per stack", "steps", "steps/s of all runs", "training"]
    rows = [
        [e.data, e.method, e.runs, e.stacks, f"{e.memory / 2**20:,.0f}", e.steps, f"{e.rate:,.0f}",
         format_duration(e.seconds)]
        for e in estimates
    ]  # fmt: skip
    runs, seconds = sum(e.runs for e in estimates), sum(e.seconds for e in estimates)
    total = f"{runs} runs: {format_duration(seconds)} of training on this device ({seconds / 86_400:.2f} days)"
    return f"{table(header, rows)}\n{total}"
