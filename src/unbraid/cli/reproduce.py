"""Compare the published results of a study with those of your runs. Each published number is marked agree or differ.

With --runs, the command compares existing runs. Otherwise it first trains and scores the study in the folder --out. If
the training is interrupted, repeat the command to resume it. The exit status is 0 if all compared numbers agree, 1 if
some differ, and 2 if nothing could be compared. Numbers without a counterpart in the runs are listed as missing and
are not counted.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from unbraid.cli import study
from unbraid.cli.parser import Parser, parse_and_run
from unbraid.cli.values import path
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
from unbraid.runtime.tables import table

WIDTH = 120  # characters per line


def main(parser: Parser, arguments: Sequence[str]) -> int:
    parser.epilog = wrap_paragraph(RULE)
    parser.add_argument("study", metavar="NAME", help=f"study to compare: {', '.join(TARGETS)}")
    runs = "existing runs to compare: a folder of runs, its results.sqlite, or the table as a .csv or .parquet file"
    parser.add_argument("--runs", type=path, help=runs)
    where = "also write NAME.csv, NAME.json and NAME.png to this folder [reproduction, in the folder of the runs]"
    parser.add_argument("--save", type=path, nargs="?", const=Path(), metavar="FOLDER", help=where)
    study.add_flags(parser)
    return parse_and_run(parser, arguments, lambda options: run(parser, options))


def run(parser: Parser, options: Any) -> int:
    """Train the study if no runs are given, then compare, print and save. Return the exit status."""
    from unbraid.reproduction.training import needed_runs, train_target

    find_target(options.study)
    if options.runs is not None:
        reject_training_flags(parser, options)
        folder = options.runs
    elif options.plan:
        selected = study.selection_arguments(options)
        print(study.plan_text(options.study, {**selected, "only": needed_runs(options.study, selected["only"])}))
        return 0
    elif options.out is None:
        raise UserError("Give either --runs FOLDER to load existing runs, or --out FOLDER to train new runs there.")
    else:
        train_target(
            options.study, options.out, **study.selection_arguments(options), **study.training_arguments(options)
        )
        folder = options.out
    result = reproduce(options.study, folder)
    print(reproduction_text(result))
    if options.save is not None:
        default = (folder.parent if folder.is_file() else folder) / "reproduction"
        paths = save_reproduction(result, default if options.save == Path() else options.save)
        print(f"\nThe comparison was written to {', '.join(map(str, paths))}.")
    return result.status


def reject_training_flags(parser: Parser, options: Any) -> None:
    """Raise an error if --runs is combined with a flag that would have no effect."""
    used = ("study", "runs", "save", "quiet", "root")
    given = [name for name, value in vars(options).items() if name not in used and value != parser.get_default(name)]
    if given:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UserError(
            f"--runs compares all runs in the folder and trains nothing. Got {flags} too. Remove --runs or {flags}."
        )


def reproduction_text(result: Reproduction) -> str:
    """Format a comparison: deviations from the study, one table per column of the paper, missing cells and summary."""
    parts = [heading(result)]
    for signs in (False, True):
        shown = [
            cell for cell in result.cells_with("agree", "differ") if isinstance(cell.published, PublishedSign) == signs
        ]
        for column in dict.fromkeys(cell.published.column for cell in shown):
            parts.append(f"{'signs, ' if signs else ''}{column}\n{column_table(shown, column)}")
    if result.cells_with("missing"):
        parts.append(
            "\n".join(["Missing numbers, which are not counted:", *missing_lines(result.cells_with("missing"))])
        )
    return "\n\n".join([*parts, *(wrap_paragraph(part) for part in (result.summary_text(), result.rule))])


def heading(result: Reproduction) -> str:
    """Return the name of the study, its reference, and every deviation from the published study."""
    head = f"{result.name}: our results compared with those of {result.reference}"
    if not result.deviations:
        return f"{head}\nThe runs have the settings of the published study."
    lines = [textwrap.fill(f"- {deviation}", WIDTH, subsequent_indent="  ") for deviation in result.deviations]
    return "\n".join([head, "Our runs deviate from the published study:", *lines])


def column_table(cells: Sequence[Cell], column: str) -> str:
    """Format the cells of one column of the paper as a table."""
    body = [cell_columns(cell, cell.ours) for cell in cells if cell.published.column == column and cell.ours]
    head = ["cell", "ours", "runs", "paper", "p", "verdict", "note"]
    used = [i for i in range(len(head)) if any(row[i] not in ("", "-") for row in body)]
    return table([head[i] for i in used], [[row[i] for i in used] for row in body])


def cell_columns(cell: Cell, ours: OurResult) -> list[str]:
    """Return the values that are printed for one cell."""
    published, p_value = cell.published, cell.published.p_value(ours)
    p = "-" if p_value is None else "<0.001" if p_value < 0.001 else f"{p_value:.3f}"
    return [
        published.row,
        format_mean(ours.mean, ours.spread, 3),
        str(ours.count),
        published_text(published),
        p,
        cell.verdict,
        ours.note,
    ]


def published_text(published: Published | PublishedSign) -> str:
    """Format a published number with as many digits as in the paper, or a published sign as "> 0" or "< 0"."""
    if published.value is None:
        return "> 0" if isinstance(published, PublishedSign) and published.sign > 0 else "< 0"
    fine = isinstance(published, Published) and published.unit < 0.01
    return format_mean(published.value, published.spread, 3 if fine else 2)


def format_mean(mean: float, spread: float | None = None, digits: int = 2) -> str:
    """Format a mean, with its standard deviation if there is one.

    >>> format_mean(0.234, 0.08), format_mean(-12.34)
    ('0.23 +- 0.08', '-12.34')
    """
    return f"{mean:.{digits}f}" + ("" if spread is None else f" +- {spread:.{digits}f}")


def missing_lines(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield one line for each group of published results that are missing in the runs for the same reason.

    For published signs, the line says only how many of them are missing.
    """
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
    """Group the names of table rows by their first part.

    >>> group_names(["pcl, dsprites noise", "pcl, shapes3d noise", "ae, dsprites noise"])
    'pcl (dsprites noise, shapes3d noise); ae (dsprites noise)'
    """
    groups: dict[str, list[str]] = {}
    for row in rows:
        first, _, rest = row.partition(", ")
        groups.setdefault(first, []).append(rest)
    return "; ".join(f"{first} ({', '.join(rest)})" for first, rest in groups.items())


def wrap_paragraph(paragraph: str) -> str:
    """Wrap a paragraph to `WIDTH` characters."""
    return textwrap.fill(paragraph, WIDTH)
