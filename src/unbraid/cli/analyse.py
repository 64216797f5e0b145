"""Answer a study's questions from its results table: a table (csv), a figure (png) and a sentence each."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unbraid.cli.parser import Parser
from unbraid.errors import UserError, unknown
from unbraid.runtime.files import make_folder, write_atomic


def main(parser: Parser, arguments: Sequence[str]) -> None:
    parser.add_argument("runs", type=Path, help="a folder of runs with results.sqlite, or such a file, or one as .csv")
    parser.add_argument("names", nargs="*", help="some analyses only [all that the table can answer]")
    parser.add_argument("--out", type=Path, help="folder of the tables and figures [RUNS/analyses]")
    parser.add_argument("--list", action="store_true", help="what there is")
    if "--list" in arguments:
        show()
        return
    options = parser.parse_all(arguments)
    from unbraid.analysis import ANALYSES
    from unbraid.runs.results import load

    for name in options.names:
        if name not in ANALYSES:
            raise UserError(unknown("analysis", name, ANALYSES))
    table = load(options.runs)
    folder = options.out or (options.runs.parent if options.runs.is_file() else options.runs) / "analyses"
    answered, refused = 0, dict[str, list[str]]()
    for name in options.names or ANALYSES:
        try:
            result = ANALYSES[name].run(table)
        except UserError as reason:
            if options.names:
                raise
            refused.setdefault(" ".join(str(reason).split()), []).append(name)
            continue
        write(folder, name, result)
        answered += 1
        print(f"{name}: {ANALYSES[name].question} {result.text}")
    for why, names in refused.items():
        print(f"{', '.join(names)}: not answered: {why}")
    if answered:
        print(f"tables and figures are in {folder}")


def show() -> None:
    """Every analysis and its question."""
    from unbraid.analysis import ANALYSES

    for name, analysis in ANALYSES.items():
        print(f"{name:<19}{analysis.question}")


def write(folder: Path, name: str, result: Any) -> None:
    """The table as csv and the figure as png, each whole or not at all."""
    make_folder(folder)
    picture = io.BytesIO()
    result.figure.savefig(picture, format="png", dpi=110)
    write_atomic(folder / f"{name}.csv", result.table.to_csv().encode())
    write_atomic(folder / f"{name}.png", picture.getvalue())
