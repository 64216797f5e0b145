"""Train and score a whole study, published or your own; the same command again goes on where it stopped.

Several processes or machines may work in one output folder: they share the stacks among them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unbraid.cli import Parser, add_root
from unbraid.commands.devices import add_device, check_device
from unbraid.commands.tables import table
from unbraid.errors import Refusal
from unbraid.progress import clock
from unbraid.sweep import integers


def add_flags(parser: Parser) -> None:
    """What is cut, where it goes, how it is done."""
    parser.add_argument(
        "study", help="locatello2019, locatello2020_weak, pmp2021, diffusion2019, or a .py, .toml, .json"
    )
    parser.add_argument("--out", type=Path, help="folder of the runs and of results.sqlite")
    some = "some runs only: data=dsprites, method=beta_vae, level=0,5, beta=4 (may be repeated)"
    parser.add_argument("--only", action="append", default=[], metavar="FACT=V,V", help=some)
    parser.add_argument("--seeds", type=integers, metavar="V", help="these seeds only: 0-4")
    parser.add_argument("--steps", type=int, help="so many steps instead; schedules follow")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the work: its root of the seeds and steps")
    parser.add_argument("--data", help="this dataset in place of the study's")
    parser.add_argument(
        "--plan", action="store_true", help="print runs, stacks and the time they would take; no training"
    )
    parser.add_argument("--shard", metavar="I/N", help="the I-th of N shares, for a batch scheduler")
    parser.add_argument("--metrics", metavar="A,B", help="some metrics only, or 'none' [the study's]")
    parser.add_argument(
        "--samples", type=int, default=10_000, help="training points of the metrics; half to test [10000]"
    )
    parser.add_argument("--jobs", type=int, help="processes that score [all cores]")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), help="[the fastest of the device]")
    add_device(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress")
    add_root(parser)


STUDY_METRICS = ("beta_vae", "factor_vae", "mig", "dci", "modularity", "explicitness", "sap", "unsupervised")


def chosen(options: Any) -> list[Any]:
    """The runs that are left of the study."""
    from unbraid.study.cut import Cut, shard
    from unbraid.study.own import find

    only = dict(one.partition("=")[::2] for one in options.only)
    bad = [key for key, value in only.items() if not value]
    if bad:
        raise Refusal(f"--only must be FACT=VALUE, such as data=dsprites. Got {bad[0]!r} instead.")
    cut = Cut({k: v.split(",") for k, v in only.items()}, options.seeds, options.steps, options.scale, options.data)
    runs = cut.of(find(options.study)())
    if not options.shard:
        return runs
    part, _, parts = options.shard.partition("/")
    if not (part.isdigit() and parts.isdigit()):
        raise Refusal(f"--shard must be I/N, such as 3/64. Got {options.shard!r} instead.")
    return shard(runs, int(part), int(parts))


def main(parser: Parser, arguments: Sequence[str]) -> None:
    add_flags(parser)
    options = parser.parse_all(arguments)
    check_device(options.device)
    if options.out is None and not options.plan:
        raise Refusal("Say where the runs go: --out FOLDER, or --plan to see what there would be.")
    from unbraid.metrics.protocol import Protocol
    from unbraid.study.execute import Order, available, run_study

    runs, missing = available(chosen(options))
    for name, reason in missing.items():
        print(f"unbraid: left out: {name}: {reason}", file=sys.stderr)
    names = STUDY_METRICS if options.metrics is None else options.metrics.split(",")
    order = Order(
        options.out or Path(), options.device, options.precision, names, Protocol(train=options.samples,
        test=max(1, options.samples // 2)), options.jobs, scored=options.metrics != "none",
    )  # fmt: skip
    if options.plan:
        show_plan(runs, order)
        return
    path = run_study(runs, order, options.quiet)
    print(f"{len(runs)} runs in {options.out}; their table is {path}. Next: unbraid analyse {options.out}")


def show_plan(runs: Sequence[Any], order: Any) -> None:
    """A line a kind of stack, and the sum."""
    from unbraid.study.plan import plan

    found = plan(runs, order)
    body = [[e.data, e.method, e.runs, e.stacks, e.steps, f"{e.rate:,.0f}", clock(e.seconds)] for e in found]
    print(table(["data", "method", "runs", "stacks", "steps", "model-steps/s", "training"], body))
    total = sum(e.seconds for e in found)
    print(f"{sum(e.runs for e in found)} runs: {clock(total)} of training on this device ({total / 86_400:.2f} days)")
