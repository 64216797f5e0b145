"""Train and score a whole study, published or your own. The same command resumes a study that was interrupted.

Several processes or machines can work in the same output folder. Each of them trains some of the runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

from unbraid.cli.parser import ONLY_HELP, Parser, add_device, add_quiet, add_root, parse_and_run
from unbraid.cli.values import (
    MAX_EXAMPLES,
    MAX_JOBS,
    argument_type,
    finite_number,
    parse_integers,
    parse_words,
    path,
    whole_number,
)
from unbraid.distributions import LIKELIHOODS
from unbraid.errors import UserError
from unbraid.metrics.protocol import DRAWS
from unbraid.runs.only import parse_only
from unbraid.runtime.progress import format_duration
from unbraid.runtime.tables import table

if TYPE_CHECKING:
    from unbraid.studies.estimate import Estimate
    from unbraid.studies.projection import Assumptions

STUDY_HELP = (
    "study to run: locatello2019, locatello2020_weak, pmp2021, pmp_meshes, diffusion2019, demystifying2021, "
    "beyond2026, lin2020, dubois2019, klindt2021, locatello2020_labels, roth2023, hsu2024, small, vitae_mnist, "
    "vitae_bodies, vitae_celeba, vitae_stability, or a .py, .toml or .json file of your own"
)

BASIS = (
    "Measured on one stack of each row, or on several small stacks of a GPU at the same time. Checkpoints, scoring and "
    "start-up are not included."
)

HELP = {
    "devices": "several devices of this machine, such as cuda:0,cuda:1; one process per device trains a part of the "
    "runs [the value of --device]",
    "out": "folder for the runs and results.sqlite (required except with --plan)",
    "only": f"{ONLY_HELP}, level=0,5 or data=dsprites, or variant= for runs without a variant; can be repeated "
    "[all runs]",
    "seeds": "select seeds, such as 0-4 [all seeds of the study]",
    "steps": "number of training steps of all runs; schedules are rescaled [the value of the study]",
    "learning-rate": "learning rate of all runs [the value of the study]",
    "scale": "fraction of the work, above 0 and at most 1; the numbers of seeds and of steps are both multiplied by "
    "its square root [1]",
    "data": "dataset that replaces the first dataset of the study; repeat the flag to replace the second, and so on. "
    "Datasets that are not replaced are dropped [the datasets of the study]",
    "plan": "train nothing; print the number of runs and stacks, the memory, and the estimated time",
    "gpus": "with --plan: also project the time and cost for these numbers of devices of the kind that --device "
    "names, such as 1,8,64",
    "assume": "with --gpus: replace an assumption, such as price=2.5 for the price of a GPU for one hour; can be "
    "repeated. The output lists all assumptions with their values",
    "shard": "run only part I of N, with I from 1 to N, for use with a batch scheduler [1/1]",
    "metrics": "metrics to compute, with options as in mig?bins=10; +A,B adds metrics to the default, and none "
    "computes no metrics [the metrics of locatello2019 and of the analyses]",
    "samples": "number of training rows of the metrics; there are half as many test rows [10000]",
    "draws": "how metrics sample rows; see unbraid score --help "
    "[reference for published studies, disjoint for your own]",
    "jobs": "number of processes that compute metrics [all cores; 1 per task with --cluster]",
    "likelihood": "likelihood of the decoder in all runs; gaussian has variance 1, normal 0.1 [the value of the study; "
    "gaussian for vectors]",
    "precision": "precision of matrix products [the fastest on the device]",
    "cluster": "run on a Ray cluster: HOST:PORT, ray://HOST:PORT, or auto for the cluster of this machine, which is "
    "started if there is none [no cluster]",
    "cluster-shared": "let all nodes write to --out, which must be a shared folder, instead of sending runs back",
}


def add_flags(parser: Parser) -> None:
    """Add the flags that select, train and score the runs of a study."""

    def add(name: str, **options: Any) -> None:
        parser.add_argument(f"--{name}", help=HELP[name], **options)

    add("out", type=path, metavar="FOLDER")
    add("only", action="append", default=[], metavar="PROPERTY=V,V")
    add("seeds", type=argument_type(parse_integers), metavar="V")
    add("steps", type=whole_number())
    add("learning-rate", type=finite_number(low=0))
    add("scale", type=finite_number(low=0), default=1.0)
    add("data", action="append")
    add("plan", action="store_true")
    add("gpus", type=argument_type(parse_integers), metavar="N,N")
    add("assume", action="append", default=[], metavar="NAME=V")
    add("shard", type=argument_type(parse_shard), metavar="I/N")
    add("metrics", metavar="A,B")
    add("samples", type=whole_number(2, MAX_EXAMPLES), default=10_000)
    add("draws", choices=DRAWS)
    add("jobs", type=whole_number(1, MAX_JOBS))
    add("likelihood", choices=tuple(LIKELIHOODS))
    add("precision", choices=("fp32", "tf32", "bf16"))
    add_device(parser)
    add("devices", type=argument_type(parse_words), metavar="A,B")
    add("cluster", metavar="ADDRESS")
    add("cluster-shared", action="store_true")
    add_quiet(parser)
    add_root(parser)


def parse_shard(text: str) -> tuple[int, int]:
    """Parse I/N.

    >>> parse_shard("3/64")
    (3, 64)
    """
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal()):
        raise UserError(f"A shard must be I/N, such as 3/64. Got {text!r} instead.")
    return int(part), int(parts)


def parse_metric_names(text: str | None) -> list[str] | None:
    """Parse the value of --metrics. Return None for the default metrics and an empty list for "none".

    A leading + adds metrics to the default.

    >>> parse_metric_names("mig,sap"), parse_metric_names("none"), parse_metric_names("+irs")[-1]
    (['mig', 'sap'], [], 'irs')
    """
    from unbraid.studies.settings import STUDY_METRICS

    if text is None:
        return None
    if text == "none":
        return []
    return [*STUDY_METRICS, *text[1:].split(",")] if text.startswith("+") else text.split(",")


def selection_arguments(options: Any) -> dict[str, Any]:
    """Return the flags that select and change runs, as arguments of `unbraid.study` and `plan_study`."""
    names = ("seeds", "steps", "learning_rate", "scale", "data", "shard", "precision", "likelihood", "device")
    return {"only": parse_only(options.only), **{name: getattr(options, name) for name in names}}


def training_arguments(options: Any) -> dict[str, Any]:
    """Return the flags that `selection_arguments` does not return, as arguments of `unbraid.study`."""
    if options.out is None:
        raise UserError("Give the folder for the runs: --out FOLDER. Or use --plan to see what would be trained.")
    names = ("samples", "draws", "jobs", "devices", "cluster", "cluster_shared", "quiet")
    return {"metrics": parse_metric_names(options.metrics), **{name: getattr(options, name) for name in names}}


def main(parser: Parser, arguments: Sequence[str]) -> int:
    parser.add_argument("study", metavar="STUDY", help=STUDY_HELP)
    add_flags(parser)
    return parse_and_run(parser, arguments, run)


def run(options: Any) -> None:
    """Print the plan of a study, or run the study."""
    selected = selection_arguments(options)
    if options.plan:
        print(plan_text(options.study, selected, options.gpus or (), options.assume))
        return
    if options.gpus or options.assume:
        raise UserError("--gpus and --assume need --plan. Add --plan, or leave them out to run the study.")
    flags = training_arguments(options)
    from unbraid.runs.folder import find_runs
    from unbraid.studies.runner import study

    path = study(options.study, options.out, **selected, **flags)
    count = len(find_runs(options.out))
    folder = quote(str(options.out))
    print(f"{count} runs in {options.out}. The results table is {path}. Next: unbraid analyse {folder}")


def plan_text(name: str, selected: dict[str, Any], gpus: Sequence[int] = (), assume: Sequence[str] = ()) -> str:
    """Return a table with one row per dataset, method and number of steps, followed by the total time.

    If `gpus` is not empty, a second table has the projected time and cost for each number of GPUs in it.
    """
    from unbraid.studies.projection import Assumptions
    from unbraid.studies.runner import plan_study

    assumptions = Assumptions.parse(assume)
    estimates = plan_study(name, **selected)
    header = ["data", "method", "runs", "stacks", "MiB per stack", "steps", "steps/s, sum over runs", "training"]
    rows = [
        [e.data, e.method, e.runs, e.stacks, f"{e.memory / 2**20:,.0f}", e.steps, f"{e.rate:,.0f}",
         format_duration(e.seconds)]
        for e in estimates
    ]  # fmt: skip
    runs, seconds = sum(e.runs for e in estimates), sum(e.seconds for e in estimates)
    total = f"{runs} runs: about {format_duration(seconds)} of training on this device ({seconds / 86_400:.2f} days)"
    text = f"{table(header, rows)}\n{total}\n{BASIS}"
    return f"{text}\n\n{projection_text(estimates, gpus, assumptions)}" if gpus else text


def projection_text(estimates: Sequence[Estimate], gpus: Sequence[int], assumptions: Assumptions) -> str:
    """Return a table with the projected time and cost of a study for each number of GPUs, and the assumptions."""
    from unbraid.studies.estimate import estimated_tasks
    from unbraid.studies.projection import describe_assumptions, project

    tasks = estimated_tasks(estimates)
    found = [project(tasks, count, assumptions) for count in gpus]
    rows = [[p.gpus, f"{p.hours:.2f}", f"{p.gpus * p.hours:.1f}", f"{p.busy:.0%}", f"{p.cost:,.0f}"] for p in found]
    header = ["GPUs", "hours", "GPU-hours", "training", "cost"]
    return f"{table(header, rows)}\nProjected with {describe_assumptions(assumptions)}"
