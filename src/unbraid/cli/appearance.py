"""Print VITAE's table of a finished study: bounds on held-out examples, and appearance and perspective apart.

The scores are kept in the folders of the runs and in results.sqlite; given again, the command reads them from there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from unbraid.cli.devices import add_device, check_device
from unbraid.cli.parser import Parser, add_root
from unbraid.cli.printing import blocks


def main(parser: Parser, arguments: Sequence[str]) -> None:
    parser.add_argument("runs", type=Path, help="the folder of a study, or any folder of runs with decoders")
    parser.add_argument("--examples", type=int, default=3_000, help="test examples, at least 100 [3000]")
    parser.add_argument("--samples", type=int, default=50, help="importance samples of each [50]")
    kinds = "factors that count as perspective, parted by commas [turn, right, down, pose, scale, orientation, x, y]"
    parser.add_argument("--perspective", metavar="A,B", help=kinds)
    add_device(parser)
    parser.add_argument("--json", action="store_true", help="print every score of every run as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    add_root(parser)
    options = parser.parse_all(arguments)
    check_device(options.device)
    from unbraid.studies.appearance import Judging, held_out, shown, vitae_table

    chosen = tuple(options.perspective.split(",")) if options.perspective else None
    rows = vitae_table(options.runs, Judging(options.examples, options.samples, chosen), options.device, options.quiet)
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    for data, group in groupby(rows, lambda row: str(row["data"])):
        print(f"{held_out(data)}: nats an example; what appearance / perspective / the whole code tell of a factor")
        columns = shown(list(group))
        print(blocks({"model": columns.pop("model")}, columns))
