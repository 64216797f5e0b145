"""Put folders of runs side by side: settings that differ, scores over seeds, and which differ beyond chance."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbraid.cli.parser import Parser, add_root
from unbraid.cli.printing import blocks, cell, table
from unbraid.cli.score import as_csv, title
from unbraid.runtime.files import write_atomic

if TYPE_CHECKING:
    from unbraid.scoring.comparison import Comparison


def main(parser: Parser, arguments: Sequence[str]) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUNS", help="folders of runs, or runs; two or more")
    parser.add_argument("--metrics", help="comma list of metrics [those that any run has]")
    parser.add_argument("--score", action="store_true", help="score what is unscored first")
    parser.add_argument("--out", type=Path, metavar="PNG", help="draw the best run of each side, such as compare.png")
    parser.add_argument("--by", metavar="METRIC", help="what decides which run is the best, for --out [mig]")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write the scores to a CSV file")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    add_root(parser)
    options = parser.parse_all(arguments)
    from unbraid.scoring.comparison import compare

    metrics = options.metrics.split(",") if options.metrics else None
    found = compare(*options.runs, metrics=metrics, score=options.score, quiet=options.quiet)
    if options.csv:
        write_atomic(options.csv, as_csv(found.rows()).encode())
    if options.out:
        from unbraid.pictures.comparison import draw_comparison

        draw_comparison(found, options.out, options.by)
    print(json.dumps(found.as_dict(), indent=1) if options.json else told(found))
    if options.out and not options.json:
        print(f"\nThe best run of each: {options.out}")


def told(found: Comparison) -> str:
    """Settings, scores and sentences as text."""
    names = [side.name for side in found.sides]
    parts = [table(["setting", *names], [[name, *texts] for name, texts in found.settings().items()])]
    if found.metrics:
        parts.append(blocks({"metric": [title(name) for name in found.metrics]}, columns(found)))
    return "\n\n".join([*parts, "\n".join(found.sentences())]).rstrip()


def columns(found: Comparison) -> dict[str, list[Any]]:
    """Three columns a side: mean and deviation over runs, median, best."""
    made: dict[str, list[Any]] = {}
    for side in found.sides:
        rows = [side.summary(metric) for metric in found.metrics]
        made[f"{side.name}: mean ± std"] = [spread(row) for row in rows]
        made[f"{side.name}: median"] = [row.get("median", "-") for row in rows]
        made[f"{side.name}: best"] = [row.get("best", "-") for row in rows]
    return made


def spread(row: dict[str, Any]) -> str:
    """A mean with its deviation, where there are several runs."""
    if "mean" not in row:
        return "-"
    return cell(row["mean"]) if row["std"] is None else f"{cell(row['mean'])} ± {cell(row['std'])}"
