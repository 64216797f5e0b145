"""Train a method on a dataset; comma lists and ranges sweep, and the product trains as stacks.

The same command again continues what was interrupted and reports what is done; nothing is ever overwritten.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from unbraid import data as datasets
from unbraid.cli.devices import add_device, check_device
from unbraid.cli.parser import Parser, add_root
from unbraid.cli.printing import labels, table
from unbraid.cli.values import integers, numbers, words
from unbraid.data.loading import load_data
from unbraid.distributions import LIKELIHOODS
from unbraid.errors import UserError
from unbraid.methods import METHODS, Method
from unbraid.nets.registry import NETS
from unbraid.runs.run import Run
from unbraid.runs.spec import RunSpec, method_class
from unbraid.runs.tensorboard import KINDS, check_log
from unbraid.scoring.score import describe
from unbraid.training.train import CHECKPOINT_SECONDS, Choice, train_specs

SPEC_FLAGS = ("steps", "batch", "learning_rate", "latents")


def add_field(parser: Parser | argparse._ArgumentGroup, field: dataclasses.Field[Any], kind: Any, flag: str) -> None:
    """A flag for a dataclass field, taking one value or several."""
    reader: Callable[[str], Any] = integers if kind is int else words if get_origin(kind) is Literal else numbers
    choices = f" ({', '.join(map(str, get_args(kind)))})" if reader is words else ""
    shown = f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
    names = list(dict.fromkeys([f"--{flag.replace('_', '-')}", f"--{flag}"]))
    text = f"{field.metadata['help']}{choices} [{shown}]"
    parser.add_argument(*names, dest=field.name, type=_reading(reader), metavar="V", help=text, default=[field.default])


def _reading(reader: Any) -> Any:
    """A reader whose complaint reaches the user as it is."""

    def read(text: str) -> Any:
        try:
            return reader(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def method_parser(name: str, cls: type[Method]) -> Parser:
    """The parser of `unbraid train NAME`, with a flag for every field of the method."""
    parser = Parser(prog=f"unbraid train {name}", description=f"{cls.__doc__}\n{__doc__}")
    kinds = get_type_hints(cls)
    own = parser.add_argument_group(f"hyperparameters of {name} (V: a number, a list 1,4,16, a range 1-4 or 0:1:5)")
    for field in dataclasses.fields(cls):
        add_field(own, field, kinds[field.name], field.name)
    shared = parser.add_argument_group("the run (V as above)")
    fields = {f.name: f for f in dataclasses.fields(RunSpec)}
    spec_kinds = get_type_hints(RunSpec)
    add_field(shared, fields["seed"], int, "seeds")
    for flag in SPEC_FLAGS:
        add_field(shared, fields[flag], spec_kinds[flag], flag)
    shared.add_argument(
        "--data", default="sprites", help=f"{', '.join(datasets.DATASETS)}, or a path; with ?options [sprites]"
    )
    shared.add_argument("--net", help=f"{', '.join(NETS)}, or module:function [locatello; mlp for vectors]")
    shared.add_argument("--likelihood", choices=tuple(LIKELIHOODS), help="[bernoulli; gaussian for vectors]")
    shared.add_argument("--precision", choices=("fp32", "tf32", "bf16"), help="of products [the fastest here]")
    place = parser.add_argument_group("where and how")
    place.add_argument("--out", type=Path, default=Path("runs") / name, help=f"folder for the runs [runs/{name}]")
    place.add_argument("--add", action="store_true", help="allow other runs in that folder")
    add_device(place)
    place.add_argument("--checkpoint-seconds", type=float, default=CHECKPOINT_SECONDS, help="between checkpoints [30]")
    place.add_argument("--log", choices=KINDS, help="also write event files beside each run, for TensorBoard")
    place.add_argument("--quiet", action="store_true", help="no progress")
    add_root(place)
    return parser


def methods(cls: type[Method], options: argparse.Namespace) -> list[Method]:
    """Every combination of the hyperparameters given."""
    names = [field.name for field in dataclasses.fields(cls)]
    return [cls(**dict(zip(names, values, strict=True))) for values in
            itertools.product(*(getattr(options, name) for name in names))]  # fmt: skip


def specs(cls: type[Method], options: argparse.Namespace, choice: Choice) -> list[RunSpec]:
    """Every combination of methods, run settings and seeds."""
    names = [*SPEC_FLAGS, "seed"]
    axes = itertools.product(methods(cls, options), *(getattr(options, name) for name in names))
    return [choice.spec(m, **dict(zip(names, values, strict=True))) for m, *values in axes]


def main(parser: Parser, arguments: Sequence[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"usage: unbraid train METHOD [flags]\n\n{__doc__}\nmethods: {', '.join(METHODS)}\n"
              "flags of a method: unbraid train METHOD --help")  # fmt: skip
        return
    name = arguments[0]
    if name.startswith("-"):
        raise UserError(
            f"The method comes first: unbraid train METHOD {' '.join(arguments)}. Choose from: {', '.join(METHODS)}."
        )
    cls = method_class(name)
    options = method_parser(name, cls).parse_all(arguments[1:])
    check_device(options.device)
    check_log(options.log, options.out)
    data = load_data(options.data, options.device, options.quiet)
    choice = Choice.of(data, options.net, options.likelihood, options.precision)
    runs = train_specs(
        specs(cls, options, choice), data, choice.builder, options.out, add=options.add,
        checkpoint_seconds=options.checkpoint_seconds, quiet=options.quiet, log=options.log,
    )  # fmt: skip
    show(runs, options.out)


def show(runs: Sequence[Run], out: Path) -> None:
    """What was trained, how it ended, where it lies and what to do next."""
    rows = []
    for run, label in zip(runs, labels([describe(run) for run in runs]), strict=True):
        last = run.log[-1] if run.log else {}
        end = "trained" if run.divergence is None else "diverged at step {step} in {term}".format(**run.divergence)
        rows.append([run.id, label, end, ", ".join(f"{k} {v:.4g}" for k, v in last.items() if k != "step")])
    print(table(["run", "settings", "state", "last log line"], rows))
    drawn = any(run.net.decoder is not None for run in runs)
    print(f"\n{len(runs)} run(s) in {out}. Next: unbraid score {out}" + f"   or   unbraid traverse {out}" * drawn)
