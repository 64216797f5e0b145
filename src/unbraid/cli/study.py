"""Train and score a whole study, published or your own; the same command again goes on where it stopped.

Several processes or machines may work in one output folder: they share the stacks among them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unbraid.cli.devices import add_device, check_device
from unbraid.cli.parser import Parser, add_root
from unbraid.cli.printing import table
from unbraid.cli.values import integers
from unbraid.errors import UserError, unknown
from unbraid.metrics.protocol import DRAWS
from unbraid.runtime.progress import clock


def add_study(parser: Parser) -> None:
    """Which study."""
    parser.add_argument(
        "study",
        help="locatello2019, locatello2020_weak, pmp2021, diffusion2019, demystifying2021, vitae_mnist, vitae_bodies, "
        "vitae_celeba, small, or a .py, .toml, .json",
    )


def add_flags(parser: Parser) -> None:
    """What is cut, where it goes, how it is done."""
    parser.add_argument("--out", type=Path, help="folder of the runs and of results.sqlite")
    some = "some runs only: data=dsprites, method=beta_vae, level=0,5, beta=4 (may be repeated)"
    parser.add_argument("--only", action="append", default=[], metavar="FACT=V,V", help=some)
    parser.add_argument("--seeds", type=integers, metavar="V", help="these seeds only: 0-4")
    parser.add_argument("--steps", type=int, help="so many steps instead; schedules follow")
    parser.add_argument("--learning-rate", type=float, help="of all runs, instead of the study's")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the work: its root of the seeds and steps")
    parser.add_argument("--data", action="append", help="this dataset in place of the study's (may be repeated)")
    parser.add_argument(
        "--plan", action="store_true", help="print runs, stacks and the time they would take; no training"
    )
    parser.add_argument("--shard", metavar="I/N", help="the I-th of N shares, for a batch scheduler")
    which = "these only, +A,B for these too, or none [those of the paper and its analyses, and all made at the end]"
    parser.add_argument("--metrics", metavar="A,B", help=which)
    parser.add_argument(
        "--samples", type=int, default=10_000, help="training points of the metrics; half to test [10000]"
    )
    parser.add_argument(
        "--draws", choices=DRAWS, help="rows of metrics [reference for published studies, disjoint for your own]"
    )
    parser.add_argument("--jobs", type=int, help="processes that score [all cores; one a stack with --cluster]")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), help="[the fastest of the device]")
    add_device(parser)
    add_cluster(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress")
    add_root(parser)


def add_cluster(parser: Parser) -> None:
    """Where else it is done."""
    where = "spread the stacks over a Ray cluster: auto (this machine's, or a new one), HOST:PORT or ray://HOST:PORT"
    parser.add_argument("--cluster", metavar="ADDRESS", help=where)
    shared = "every node of the cluster sees --out and works in it, so that nothing is sent back"
    parser.add_argument("--cluster-shared", action="store_true", help=shared)


STUDY_METRICS = (
    "beta_vae", "factor_vae", "mig", "dci", "modularity", "explicitness", "sap", "unsupervised", "downstream_lr",
    "downstream_gbt", "information", "gaps", "active", "udr",
)  # fmt: skip


def wanted(text: str | None) -> tuple[list[str], list[str]]:
    """The metrics of each run alone, and what is added to all at the end; a leading + adds to the study's."""
    from unbraid.metrics import METRICS
    from unbraid.studies.group_scores import CLOSING

    named = [] if text in (None, "none") else str(text).removeprefix("+").split(",")
    names = [*STUDY_METRICS, *named] if text is None or text.startswith("+") else named
    for name in names:
        if name not in {**METRICS, **dict.fromkeys(CLOSING)}:
            raise UserError(unknown("metric", name, [*METRICS, *CLOSING]))
    once = list(dict.fromkeys(names))
    return [name for name in once if name not in CLOSING], [name for name in once if name in CLOSING]


def chosen(options: Any) -> list[Any]:
    """The runs that are left of the study."""
    from unbraid.studies.cut import Cut, shard
    from unbraid.studies.own import find

    only: dict[str, list[str]] = {}
    for key, _, values in (one.partition("=") for one in options.only):
        if not values:
            raise UserError(f"--only must be FACT=VALUE, such as data=dsprites. Got {key!r} instead.")
        only.setdefault(key, []).extend(values.split(","))
    cut = Cut(only, options.seeds, options.steps, options.scale, options.data, options.learning_rate)
    runs = cut.of(find(options.study)())
    if not options.shard:
        return runs
    part, _, parts = options.shard.partition("/")
    if not (part.isdigit() and parts.isdigit()):
        raise UserError(f"--shard must be I/N, such as 3/64. Got {options.shard!r} instead.")
    return shard(runs, int(part), int(parts))


def main(parser: Parser, arguments: Sequence[str]) -> None:
    add_study(parser)
    add_flags(parser)
    options = parser.parse_all(arguments)
    done = perform(options)
    if done is not None:
        count, path = done
        print(f"{count} runs in {options.out}; their table is {path}. Next: unbraid analyse {options.out}")


def perform(options: Any) -> tuple[int, Path] | None:
    """Carry out what the flags say: how many runs, and the path of their table; None where only the plan is wanted."""
    if options.plan or not (options.cluster and options.device.startswith("cuda")):
        check_device(options.device)  # with a cluster the GPUs are elsewhere
    if options.cluster_shared and not options.cluster:
        raise UserError("--cluster-shared needs a cluster: add --cluster auto, or its address.")
    if options.out is None and not options.plan:
        raise UserError("Say where the runs go: --out FOLDER, or --plan to see what there would be.")
    from unbraid.metrics.protocol import Protocol
    from unbraid.studies.published import STUDIES
    from unbraid.studies.runner import Order, available

    metrics, closing = wanted(options.metrics)
    runs, missing = available(chosen(options))
    for name, reason in missing.items():
        print(f"unbraid: left out: {name}: {reason}", file=sys.stderr)
    draws = options.draws or ("reference" if options.study in STUDIES else "disjoint")
    protocol = Protocol(train=options.samples, test=max(1, options.samples // 2), draws=draws)
    order = Order(
        options.out or Path(), options.device, options.precision, metrics, protocol, options.jobs,
        scored=options.metrics != "none", closing=closing,
    )  # fmt: skip
    if options.plan:
        show_plan(runs, order)
        return None
    return len(runs), carry_out(runs, order, options)


def carry_out(runs: Sequence[Any], order: Any, options: Any) -> Path:
    """Run the study here or on a cluster; the path of its table."""
    if options.cluster:
        from unbraid.studies.cluster import run_cluster

        return run_cluster(runs, order, options.cluster, options.cluster_shared, options.quiet)
    from unbraid.studies.runner import run_study

    return run_study(runs, order, options.quiet)


def show_plan(runs: Sequence[Any], order: Any) -> None:
    """A line a kind of stack, and the sum."""
    from unbraid.studies.plan import plan

    found = plan(runs, order)
    head = ["data", "method", "runs", "stacks", "MiB a stack", "steps", "model-steps/s", "training"]
    sizes = [f"{e.memory / 2**20:,.0f}" for e in found]
    body = [
        [e.data, e.method, e.runs, e.stacks, size, e.steps, f"{e.rate:,.0f}", clock(e.seconds)]
        for e, size in zip(found, sizes, strict=True)
    ]
    print(table(head, body))
    total = sum(e.seconds for e in found)
    print(f"{sum(e.runs for e in found)} runs: {clock(total)} of training on this device ({total / 86_400:.2f} days)")
