"""Measure properties of trained VAEs: active latents, polarised regime, and distance of the decoder to orthogonality.

The "distance" is 0 if the latents change the decoded images in orthogonal directions. "error" is its standard error,
and "random" is the distance of random axes. "kl" is the mean KL from the prior in nats. A VAE is polarised if each
latent is active or its posterior equals the prior. "delta_kl" is then at most 0.03. With --circle, each example is
drawn as a point in the plane of the two latents with the most information about a factor. The colour shows the value of
the factor. With --times, only the milliseconds of one forward and one backward pass on a batch are measured.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unbraid.cli.parser import Parser, add_device, add_quiet, add_trust_and_root, parse_and_run
from unbraid.cli.values import MAX_EXAMPLES, path, whole_number
from unbraid.errors import UserError
from unbraid.runtime.tables import table

if TYPE_CHECKING:
    from unbraid.data.dataset import FactorData
    from unbraid.runs.run import Run

COLUMNS = ("active", "distance", "error", "random", "kl", "delta_kl")
TIME_COLUMNS = ("batch", "forward", "backward")
CIRCLE_EXAMPLES = 2000  # maximum number of points in a picture


def main(parser: Parser, arguments: Sequence[str]) -> int:
    parser.add_argument("runs", type=path, metavar="RUNS", help="a folder of runs, or one run")
    examples = "number of random examples [256]"
    parser.add_argument("--examples", type=whole_number(2, MAX_EXAMPLES), default=256, help=examples)
    parser.add_argument("--seed", type=whole_number(), default=0, help="random seed for the examples [0]")
    circle = "also write circle.png: the two latents with the most information about this factor"
    parser.add_argument("--circle", metavar="FACTOR", help=circle)
    times = "measure the time of the objective on one batch instead, in milliseconds"
    parser.add_argument("--times", action="store_true", help=times)
    add_device(parser)
    parser.add_argument("--out", type=path, metavar="FOLDER", help="folder for the pictures [the folder of each run]")
    parser.add_argument("--json", action="store_true", help="print all numbers as JSON")
    add_quiet(parser)
    add_trust_and_root(parser)
    return parse_and_run(parser, arguments, run)


def run(options: Any) -> None:
    """Inspect every run and print one row per run."""
    from unbraid.accel.devices import check_device
    from unbraid.runs.run import load_runs
    from unbraid.scoring.score import load_datasets

    check_device(options.device)
    runs = load_runs(options.runs, device=options.device, trust=options.trust)
    if not runs:
        raise UserError(f"No trained runs in {options.runs}. Train some with: unbraid train METHOD --out FOLDER")
    data = load_datasets(runs, quiet=options.quiet)
    data = {name: one.to(options.device) for name, one in data.items()}
    columns = TIME_COLUMNS if options.times else COLUMNS
    measure = measure_times if options.times else inspect_run
    rows = [measure(run, data[run.spec.data], options) for run in runs]
    if options.json:
        print(json.dumps(rows, allow_nan=False))
        return
    shown = [[row["label"], *(_format(row.get(name)) for name in columns)] for row in rows]
    print(table(["run", *columns], shown))
    for row in rows:
        if "reason" in row:
            print(f"{row['label']}: {row['reason']}")
        if "circle" in row:
            first, second = row["columns"]
            print(f"{row['label']}: {row['circle']}: columns {first} and {second} of the code")


def inspect_run(run: Run, data: FactorData, options: Any) -> dict[str, Any]:
    """Return the properties of one run as plain values, or the reason why they are not defined."""
    from unbraid.analysis.orthogonality import orthogonality

    row: dict[str, Any] = {"run": run.id, "label": run.label}
    try:
        found = orthogonality(run, data, options.examples, seed=options.seed)
        numbers = {name: found[name] for name in COLUMNS if name != "active" and found[name] == found[name]}
        row |= {"active": len(found["active"]), "latents": found["active"], **numbers}
    except UserError as error:
        row["reason"] = str(error)
    if options.circle:
        row |= draw_factor(run, data, options)
    return row


def measure_times(run: Run, data: FactorData, options: Any) -> dict[str, Any]:
    """Return the milliseconds of one forward and one backward pass of one run, and the size of its batch."""
    from unbraid.analysis.times import objective_times

    times = objective_times(run, data)
    return {"run": run.id, "label": run.label, "batch": run.spec.batch, **times._asdict()}


def draw_factor(run: Run, data: FactorData, options: Any) -> dict[str, Any]:
    """Draw the two latents with the most information about a factor. Return the path of the picture and the latents."""
    from unbraid.pictures.circle import draw_circle
    from unbraid.pictures.images import write_picture
    from unbraid.pictures.pair import codes_and_factors, informative_controls
    from unbraid.pictures.traversal import output_folder

    folder = output_folder(run, None if options.out is None else options.out / run.id)
    pair = (options.circle, options.circle)
    first, second = informative_controls(run, data, None, pair)
    codes, factors = codes_and_factors(run, data, None, pair)
    few = slice(CIRCLE_EXAMPLES)
    picture = draw_circle(codes[few][:, [first, second]], factors.values[few, 0])
    return {"circle": str(write_picture(folder / "circle.png", picture)), "columns": [int(first), int(second)]}


def _format(value: Any) -> Any:
    """Return the value, or "-" if it is None."""
    return "-" if value is None else value
