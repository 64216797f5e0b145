"""Measure how fast a network learns to solve abstract reasoning puzzles from the codes of trained runs.

A puzzle is a 3x3 matrix of images in which some factors are constant in each row. The last image must be chosen from
six answers, so the accuracy of guessing is 1/6. The learning curve of each run is stored in the folder of the results.
If you repeat the command, stored curves are loaded and not computed again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unbraid.cli.parser import RUNS_HELP, Parser, add_device, add_only, add_quiet, add_trust_and_root, parse_and_run
from unbraid.cli.values import argument_type, file_to_write, finite_number, parse_integers, path, whole_number
from unbraid.runtime.tables import wide_table

if TYPE_CHECKING:
    from pandas import DataFrame

MAX_COLUMNS = 5  # maximum number of steps in the printed table
MAX_BATCH, MAX_TEST = 10_000, 100_000


def main(parser: Parser, arguments: Sequence[str]) -> int:
    parser.add_argument("runs", nargs="+", type=path, metavar="RUNS", help=RUNS_HELP)
    add_only(parser)
    kinds = "how similar the wrong answers are to the correct one [easy]"
    parser.add_argument("--alternatives", choices=("easy", "hard"), default="easy", help=kinds)
    relations = "possible numbers of factors that are constant in each row [1,2,3]"
    parser.add_argument("--relations", type=argument_type(parse_integers), default=[1, 2, 3], help=relations)
    parser.add_argument("--steps", type=whole_number(1), default=5_000, help="number of training steps [5000]")
    parser.add_argument("--batch", type=whole_number(1, MAX_BATCH), default=32, help="puzzles per step [32]")
    rate = "learning rate of Adam [0.001]"
    parser.add_argument("--learning-rate", type=finite_number(low=0), default=1e-3, help=rate)
    points = "number of times that the accuracy is measured [20]"
    parser.add_argument("--points", type=whole_number(1, 10_000), default=20, help=points)
    test = "number of puzzles with which the accuracy is measured [2000]"
    parser.add_argument("--test", type=whole_number(1, MAX_TEST), default=2_000, help=test)
    parser.add_argument("--seed", type=whole_number(), default=0, help="random seed of puzzles and weights [0]")
    out = "folder for the table and the figure [the subfolder 'reasoning' of the first folder of runs]"
    parser.add_argument("--out", type=path, metavar="FOLDER", help=out)
    picture = "also draw three puzzles of the dataset of the first run in this PNG file"
    parser.add_argument("--picture", type=file_to_write, metavar="FILE", help=picture)
    parser.add_argument("--json", action="store_true", help="print all accuracies as JSON instead of a table")
    for add in (add_device, add_quiet, add_trust_and_root):
        add(parser)
    return parse_and_run(parser, arguments, run)


def run(options: Any) -> None:
    """Measure the learning curves and print the accuracy at some of the steps."""
    from unbraid.accel.devices import check_device
    from unbraid.reasoning.evaluate import abstract_reasoning
    from unbraid.reasoning.learning import ReasoningSettings
    from unbraid.runs.run import load_runs

    check_device(options.device)
    numbers = {name: getattr(options, name) for name in ("steps", "batch", "learning_rate", "points", "test", "seed")}
    settings = ReasoningSettings(options.alternatives, tuple(options.relations), **numbers)
    loaded = load_runs(options.runs, device=options.device, trust=options.trust, only=options.only)
    folder = options.out or options.runs[0] / "reasoning"
    trained = [run for run in loaded if run.divergence is None]
    result = abstract_reasoning(trained, settings, out=folder, quiet=options.quiet)
    if options.picture:
        from unbraid.reasoning.picture import draw_example_puzzles
        from unbraid.runs.run_data import run_data

        draw_example_puzzles(run_data(trained[0], quiet=True), options.picture, settings)
    if options.json:
        rows = result.table.astype(object).where(result.table.notna(), None).to_dict("records")
        print(json.dumps(rows, indent=1))
        return
    print(accuracy_table(result.table), result.text, f"The table and the figure are in {folder}.", sep="\n")


def accuracy_table(table: DataFrame) -> str:
    """Return the accuracy of each run at up to five of the measured steps, as text."""
    steps = sorted(set(table["step"]))
    shown = sorted({steps[len(steps) * (i + 1) // MAX_COLUMNS - 1] for i in range(MAX_COLUMNS)} & {*steps})
    names, columns = [], {f"step {step:,}": list[float]() for step in shown}
    for (data, _), part in table.groupby(["data", "run"], sort=False):
        label = part["label"].iloc[0]
        names.append(f"{label} on {data}" if table["data"].nunique() > 1 else label)
        accuracies = part.set_index("step")["accuracy"]
        for step, column in zip(shown, columns.values(), strict=True):
            column.append(float(accuracies[step]))
    return wide_table({"codes": names}, columns)
