"""Train a method on a dataset. A flag with several values defines a sweep, and all combinations of values are trained.

The same command resumes runs that were interrupted. Runs that are already trained are only listed. They are
not overwritten, except with --retrain.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, Literal, get_args, get_origin, get_type_hints

from unbraid import data as datasets
from unbraid.cli.parser import Arguments, Parser, add_device, add_quiet, add_root, parse_and_run
from unbraid.cli.values import (
    argument_type,
    finite_number,
    parse_integers,
    parse_numbers,
    parse_text,
    parse_words,
    path,
)
from unbraid.data.loading import load_data
from unbraid.distributions import LIKELIHOODS
from unbraid.errors import UserError
from unbraid.methods import METHODS, Method
from unbraid.nets.registry import NETS
from unbraid.runs.collapse import collapse_notes
from unbraid.runs.labels import shared_sentence
from unbraid.runs.run_list import COLUMNS, run_rows
from unbraid.runs.sources import is_own
from unbraid.runs.spec import RunSpec, method_class
from unbraid.runs.tensorboard import KINDS, check_log
from unbraid.runtime.tables import table
from unbraid.training.divided import resolve_devices
from unbraid.training.train import CHECKPOINT_SECONDS, RunDefaults, train_specs

SPEC_FLAGS = (
    "steps", "batch", "learning_rate", "latents", "factorised_support", "weight_decay", "clip_norm",
    "orthogonal_jacobian", "sparse_jacobian", "hessian_penalty",
)  # fmt: skip


def add_field(parser: Arguments, field: dataclasses.Field[Any], kind: Any, flag: str, value: Any = None) -> None:
    """Add a flag for a dataclass field. The flag takes one or several values.

    `value` is the default of the flag if the default of the field is None.
    """
    value = field.default if field.default is not None else value
    readers: dict[Any, Callable[[str], Any]] = {int: parse_integers, str: parse_text}
    reader = parse_words if get_origin(kind) is Literal else readers.get(kind, parse_numbers)
    choices = f" ({', '.join(map(str, get_args(kind)))})" if reader is parse_words else ""
    default = f"{value:g}" if isinstance(value, float) else str(value)
    names = list(dict.fromkeys([f"--{flag.replace('_', '-')}", f"--{flag}"]))
    text = f"{field.metadata['help']}{choices} [{default}]"
    kind_of_argument = argument_type(reader)
    parser.add_argument(*names, dest=field.name, type=kind_of_argument, metavar="V", help=text, default=[value])


def method_parser(name: str, cls: type[Method]) -> Parser:
    """Return the parser of `unbraid train NAME`, with a flag for every field of the method."""
    description = re.sub(r"\.\. math:: |:math:|`", "", inspect.getdoc(cls) or "")
    parser = Parser(prog=f"unbraid train {name}", description=f"{description}\n\n{__doc__}")
    kinds = get_type_hints(cls)
    own = parser.add_argument_group(
        f"hyperparameters of {name} (V is a value, a list (1,4,16), a range (1-4), or FIRST:LAST:COUNT (0:1:5))"
    )
    for field in dataclasses.fields(cls):
        add_field(own, field, kinds[field.name], field.name)
    run = parser.add_argument_group("settings of the run")
    fields = {f.name: f for f in dataclasses.fields(RunSpec)}
    spec_kinds = get_type_hints(RunSpec)
    add_field(run, fields["seed"], int, "seeds")
    for flag in SPEC_FLAGS:
        add_field(run, fields[flag], spec_kinds[flag], flag, getattr(cls, f"default_{flag}", None))
    data = f"dataset: {', '.join(datasets.DATASETS)}, or the path of your own data; may end with ?options [sprites]"
    run.add_argument("--data", default="sprites", help=data)
    defaults = "locatello; pointnet for meshes, mlp for other vectors"
    run.add_argument("--net", help=f"network: {', '.join(NETS)}, module:function or file.py:function [{defaults}]")
    likelihood = "likelihood of the decoder; gaussian has variance 1, normal 0.1 [bernoulli; gaussian for vectors]"
    run.add_argument("--likelihood", choices=tuple(LIKELIHOODS), help=likelihood)
    precision = "precision of matrix products [the fastest on the device]"
    run.add_argument("--precision", choices=("fp32", "tf32", "bf16"), help=precision)
    add_output_flags(parser.add_argument_group("output and device"), name)
    return parser


def add_output_flags(parser: Arguments, name: str) -> None:
    """Add the flags that do not change what is trained."""
    out = Path("runs") / name.rpartition(":")[2]
    parser.add_argument("--out", type=path, default=out, metavar="FOLDER", help=f"folder for the runs [{out}]")
    parser.add_argument("--add", action="store_true", help="add runs to a folder that already contains other runs")
    retrain = "delete and retrain runs if your own method, network or data have changed since they were started"
    parser.add_argument("--retrain", action="store_true", help=retrain)
    add_device(parser)
    devices = "several devices, such as cuda:0,cuda:1; each batch is divided among them, for large networks of your own"
    parser.add_argument(
        "--devices", type=argument_type(parse_words), metavar="A,B", help=f"{devices} [the value of --device]"
    )
    seconds = "time between checkpoints, in seconds [30]"
    parser.add_argument(
        "--checkpoint-seconds", type=finite_number(low=0), default=CHECKPOINT_SECONDS, metavar="SECONDS", help=seconds
    )
    parser.add_argument(
        "--log",
        choices=KINDS,
        help="also write a log for TensorBoard or wandb (offline) to each run folder, or for Trackio to its own folder",
    )
    add_quiet(parser)
    add_root(parser)


def method_combinations(cls: type[Method], options: argparse.Namespace) -> list[Method]:
    """Return one method for each combination of the given hyperparameters."""
    names = [field.name for field in dataclasses.fields(cls)]
    combinations = itertools.product(*(getattr(options, name) for name in names))
    return [cls(**dict(zip(names, values, strict=True))) for values in combinations]


def spec_combinations(cls: type[Method], options: argparse.Namespace, defaults: RunDefaults) -> list[RunSpec]:
    """Return one spec for each combination of methods, run settings and seeds."""
    names = [*SPEC_FLAGS, "seed"]
    combinations = itertools.product(method_combinations(cls, options), *(getattr(options, name) for name in names))
    return [defaults.spec(m, **dict(zip(names, values, strict=True))) for m, *values in combinations]


def main(parser: Parser, arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"usage: unbraid train METHOD [flags]\n\n{__doc__}\nmethods: {', '.join(METHODS)}\n"
              "A method of your own is file.py:Class or module:Class.\n"
              "To see the flags of a method, run: unbraid train METHOD --help")  # fmt: skip
        return 0
    name = arguments[0]
    if name.startswith("-"):
        raise UserError(
            f"The method comes first: unbraid train METHOD {' '.join(arguments)}. Methods: {', '.join(METHODS)}."
        )
    cls = method_class(name)
    return parse_and_run(method_parser(name, cls), arguments[1:], lambda options: run(cls, options))


def run(cls: type[Method], options: argparse.Namespace) -> None:
    """Train all combinations and print the runs."""
    devices = resolve_devices(options.device, options.devices)
    check_log(options.log, options.out)
    data = load_data(options.data, devices[0], options.quiet)
    defaults = RunDefaults.choose(data, options.net, options.likelihood, options.precision)
    runs = train_specs(
        spec_combinations(cls, options, defaults), data, defaults.builder, options.out, add=options.add,
        checkpoint_seconds=options.checkpoint_seconds, quiet=options.quiet, log=options.log, retrain=options.retrain,
        devices=devices,
    )  # fmt: skip
    sentences = [shared_sentence([run.spec for run in runs]), *collapse_notes(runs)]
    print("\n".join([table(COLUMNS, run_rows(runs)), *filter(None, sentences)]))
    consent = " --trust" if any(is_own(run.spec) for run in runs) else ""
    folder = quote(str(options.out))
    next_commands = [f"unbraid score {folder}{consent}"]
    if any(run.net.decoder is not None for run in runs):
        next_commands.append(f"unbraid traverse {folder}{consent}")
    print(f"\n{len(runs)} run(s) in {options.out}. Next: {'   or   '.join(next_commands)}")
