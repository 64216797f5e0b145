"""Print the results of a VITAE study: likelihood bounds, and how well the codes separate appearance from perspective.

Scores are computed on the test part of the dataset, or on the dataset itself if it has no test part. They are stored
with the runs and in results.sqlite. If you repeat the command, stored scores are loaded and not computed again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from unbraid.cli.parser import Parser, add_device, add_quiet, add_trust_and_root, parse_and_run
from unbraid.cli.values import MAX_EXAMPLES, path, whole_number
from unbraid.runtime.tables import wide_table


def main(parser: Parser, arguments: Sequence[str]) -> int:
    parser.add_argument(
        "runs", type=path, metavar="RUNS", help="the folder of a study, or any folder of runs with decoders"
    )
    parser.add_argument(
        "--examples",
        type=whole_number(1, MAX_EXAMPLES),
        default=3_000,
        help="number of test examples, at least 100 [3000]",
    )
    parser.add_argument(
        "--samples",
        type=whole_number(1, MAX_EXAMPLES),
        default=50,
        help="number of importance samples per example [50]",
    )
    factors = "factors to treat as perspective [turn, right, down, pose, scale, orientation, x and y, if present]"
    parser.add_argument("--perspective", metavar="A,B", help=factors)
    add_device(parser)
    parser.add_argument("--json", action="store_true", help="print all scores as JSON instead of a table")
    add_quiet(parser)
    add_trust_and_root(parser)
    return parse_and_run(parser, arguments, run)


def run(options: Any) -> None:
    """Compute or load the scores of the runs, and print one table per dataset."""
    from unbraid.accel.devices import check_device
    from unbraid.studies.appearance import AppearanceSettings, appearance_table, held_out_name, table_columns

    check_device(options.device)
    perspective = tuple(options.perspective.split(",")) if options.perspective else None
    settings = AppearanceSettings(options.examples, options.samples, perspective)
    rows = appearance_table(options.runs, settings, options.device, options.quiet, trust=options.trust)
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    for data, group in groupby(rows, lambda row: str(row["data"])):
        print(
            f"{held_out_name(data)}: Bounds are in nats per example. Each factor column shows how well the factor is "
            "predicted from appearance latents / perspective latents / all latents."
        )
        columns = table_columns(list(group))
        print(wide_table({"model": columns.pop("model")}, columns))
