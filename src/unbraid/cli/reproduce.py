"""Compare the published numbers of a study with ours, with both spreads, and mark each cell agree or differ.

With --runs the command compares runs that exist. Otherwise it first trains and scores the study in --out; the same
command resumes it. Exit status: 0 if all compared cells agree, 1 if some differ, 2 if nothing could be compared.
Missing cells are listed and never count as agreement.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from unbraid.cli import study
from unbraid.cli.parser import Parser, parse_and_run
from unbraid.cli.printing import table
from unbraid.errors import UserError
from unbraid.reproduction import (
    RULE,
    TARGETS,
    Cell,
    OurResult,
    Published,
    PublishedSign,
    Reproduction,
    find_target,
    reproduce,
    save_reproduction,
)

WIDTH = 120  # characters per line


def main(parser: Parser, arguments: Sequence[str]) -> int:
    parser.epilog = wrap(RULE)
    parser.add_argument("study", metavar="NAME", help=f"a study with published numbers: {', '.join(TARGETS)}")
    runs = "compare these runs and train nothing: a folder of runs, its results.sqlite, or a copy as .csv"
    parser.add_argument("--runs", type=Path, help=runs)
    where = "also write NAME.csv, NAME.json and a picture NAME.png into this folder [reproduction, in --runs or --out]"
    parser.add_argument("--save", type=Path, nargs="?", const=Path(), metavar="FOLDER", help=where)
    study.add_flags(parser)
    return parse_and_run(parser, arguments, lambda options: run(parser, options))


def run(parser: Parser, options: Any) -> int:
    """Train the study if asked to, compare, print and save; returns the exit status."""
    from unbraid.reproduction.training import needed_runs, train_target

    find_target(options.study)
    if options.runs is not None:
        reject_training_flags(parser, options)
        folder = options.runs
    elif options.plan:
        selected = study.selection(options)
        print(study.plan_text(options.study, {**selected, "only": needed_runs(options.study, selected["only"])}))
        return 0
    elif options.out is None:
        raise UserError("Give the runs: --runs FOLDER to load some, or --out FOLDER to train them there.")
    else:
        train_target(options.study, options.out, **study.selection(options), **study.training(options))
        folder = options.out
    result = reproduce(options.study, folder)
    print(text(result))
    if options.save is not None:
        default = (folder.parent if folder.is_file() else folder) / "reproduction"
        paths = save_reproduction(result, default if options.save == Path() else options.save)
        print(f"\nwritten: {', '.join(map(str, paths))}")
    return result.status


def reject_training_flags(parser: Parser, options: Any) -> None:
    """Raise an error if --runs comes with flags that it would ignore."""
    used = ("study", "runs", "save", "quiet", "root")
    given = [name for name, value in vars(options).items() if name not in used and value != parser.get_default(name)]
    if given:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UserError(
            f"--runs compares all runs that it finds and trains nothing. Got {flags} too. Leave out either."
        )


def text(result: Reproduction) -> str:
    """The deviations from the study, one table per column of the paper, the missing cells, and the verdict."""
    parts = [heading(result)]
    for signs in (False, True):
        shown = [
            cell for cell in result.cells_with("agree", "differ") if isinstance(cell.published, PublishedSign) == signs
        ]
        for column in dict.fromkeys(cell.published.column for cell in shown):
            parts.append(f"{'signs, ' if signs else ''}{column}\n{column_table(shown, column)}")
    if result.cells_with("missing"):
        parts.append("\n".join(["missing cells, which are not counted:", *missing_lines(result.cells_with("missing"))]))
    return "\n\n".join([*parts, *(wrap(part) for part in (result.summary_text(), result.rule))])


def heading(result: Reproduction) -> str:
    """The study, its paper, and every deviation from the published study."""
    head = f"{result.name}: our results and those of {result.reference}"
    if not result.deviations:
        return f"{head}\nThe runs are those of the published study."
    said = [textwrap.fill(f"- {deviation}", WIDTH, subsequent_indent="  ") for deviation in result.deviations]
    return "\n".join([head, "Not the published study:", *said])


def column_table(cells: Sequence[Cell], column: str) -> str:
    """The cells of one column as a table."""
    body = [cell_columns(cell, cell.ours) for cell in cells if cell.published.column == column and cell.ours]
    head = ["cell", "ours", "runs", "paper", "p", "verdict", "note"]
    used = [i for i in range(len(head)) if any(row[i] not in ("", "-") for row in body)]
    return table([head[i] for i in used], [[row[i] for i in used] for row in body])


def cell_columns(cell: Cell, ours: OurResult) -> list[str]:
    """The printed columns of one cell."""
    printed, chance = cell.published, cell.published.p_value(ours)
    p = "-" if chance is None else "<.001" if chance < 0.001 else f"{chance:.3f}"
    return [
        printed.row,
        number(ours.mean, ours.spread, 3),
        str(ours.count),
        published_text(printed),
        p,
        cell.verdict,
        ours.note,
    ]


def published_text(printed: Published | PublishedSign) -> str:
    """The number or sign of the paper, with the digits that the paper prints."""
    if printed.value is None:
        return "> 0" if isinstance(printed, PublishedSign) and printed.sign > 0 else "< 0"
    fine = isinstance(printed, Published) and printed.unit < 0.01
    return number(printed.value, printed.spread, 3 if fine else 2)


def number(mean: float, spread: float | None = None, digits: int = 2) -> str:
    """A mean, with its standard deviation if there is one.

    >>> number(0.234, 0.08), number(-12.34)
    ('0.23 +- 0.08', '-12.34')
    """
    return f"{mean:.{digits}f}" + ("" if spread is None else f" +- {spread:.{digits}f}")


def missing_lines(cells: Sequence[Cell]) -> Iterator[str]:
    """One line for each group of missing numbers with the same reason; missing signs are only counted."""
    columns: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        if not isinstance(cell.published, PublishedSign):
            columns.setdefault((cell.why, cell.published.row), []).append(cell.published.column)
    rows: dict[tuple[str, str], list[str]] = {}
    for (why, row), names in columns.items():
        rows.setdefault((why, ", ".join(names)), []).append(row)
    for (why, lacking), names in rows.items():
        yield textwrap.fill(f"- {lacking} of {group_names(names)}: {why}", WIDTH, subsequent_indent="  ")
    signs = [cell.why for cell in cells if isinstance(cell.published, PublishedSign)]
    for why in dict.fromkeys(signs):
        yield textwrap.fill(f"- {signs.count(why)} signs: {why}", WIDTH, subsequent_indent="  ")


def group_names(rows: Sequence[str]) -> str:
    """Names of rows, grouped by their first part.

    >>> group_names(["pcl, dsprites noise", "pcl, shapes3d noise", "ae, dsprites noise"])
    'pcl (dsprites noise, shapes3d noise); ae (dsprites noise)'
    """
    groups: dict[str, list[str]] = {}
    for row in rows:
        first, _, rest = row.partition(", ")
        groups.setdefault(first, []).append(rest)
    return "; ".join(f"{first} ({', '.join(rest)})" for first, rest in groups.items())


def wrap(paragraph: str) -> str:
    """A paragraph, wrapped."""
    return textwrap.fill(paragraph, WIDTH)
