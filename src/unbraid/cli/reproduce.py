"""Print a study's published numbers beside ours, with both spreads, and mark each cell agree or differ.

With --runs it loads what is there; else it carries the study out, cut down as you say, in --out, and goes on where it
stopped. Exit status: 0 where all cells that were compared agree, 1 where some differ, 2 where nothing could be
compared. Missing cells are named, and never count as agreement.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from unbraid.cli import study
from unbraid.cli.parser import Parser
from unbraid.cli.printing import table
from unbraid.errors import UserError
from unbraid.reproduction import (
    RULE,
    TARGETS,
    Cell,
    Claim,
    Ours,
    Published,
    Reproduction,
    Target,
    reproduce,
    save,
    target_of,
)

WIDTH = 120


def main(parser: Parser, arguments: Sequence[str]) -> int:
    parser.epilog = filled(RULE)
    parser.add_argument("study", metavar="NAME", help=f"a study with published numbers: {', '.join(TARGETS)}")
    parser.add_argument("--runs", type=Path, help="only load these: a folder, its results.sqlite, or a copy as .csv")
    where = "write NAME.csv, NAME.json and a picture NAME.png there [RUNS/reproduction]"
    parser.add_argument("--save", type=Path, nargs="?", const=Path(), metavar="FOLDER", help=where)
    study.add_flags(parser)
    options = parser.parse_all(arguments)
    target = target_of(options.study)
    if options.runs is not None:
        refuse_cuts(parser, options)
    elif options.out is None and not options.plan:
        raise UserError("Say which runs: --runs FOLDER to load some, or --out FOLDER to train them there.")
    elif not carried_out(options, target):
        return 0
    folder = options.out if options.runs is None else options.runs
    found = reproduce(options.study, folder)
    print(text(found))
    if options.save is not None:
        beside = (folder.parent if folder.is_file() else folder) / "reproduction"
        paths = save(found, beside if options.save == Path() else options.save)
        print(f"\nwritten: {', '.join(map(str, paths))}")
    return found.status


def refuse_cuts(parser: Parser, options: Any) -> None:
    """Refuse what would be ignored: runs that are only loaded cannot be cut or trained."""
    read = ("study", "runs", "save", "quiet", "root")
    given = [name for name, value in vars(options).items() if name not in read and value != parser.get_default(name)]
    if given:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UserError(f"--runs only loads, all that is there. Got {flags} too. Leave out the one or the others.")


def carried_out(options: Any, target: Target) -> bool:
    """Train and score what the cells need; False where only a plan was wanted."""
    given = {one.partition("=")[0] for one in options.only}
    needed = [f"{fact}={','.join(values)}" for fact, values in target.only.items() if fact not in given]
    options.only = [*options.only, *needed]
    if options.metrics is None:
        options.metrics = ",".join(target.metrics)
    if study.perform(options) is None:
        return False
    if target.finish is not None:
        target.finish(options.out, options.device, options.quiet)
    return True


def text(found: Reproduction) -> str:
    """What was cut, a table a column of the paper with a line a cell that was compared, what is missing, the count."""
    parts = [heading(found)]
    for claims in (False, True):
        shown = [cell for cell in found.of("agree", "differ") if isinstance(cell.published, Claim) == claims]
        for column in dict.fromkeys(cell.published.column for cell in shown):
            parts.append(f"{'signs, ' if claims else ''}{column}\n{lines(shown, column)}")
    if found.of("missing"):
        parts.append("\n".join(["missing, and not counted:", *missing(found.of("missing"))]))
    return "\n\n".join([*parts, *(filled(part) for part in (found.said(), found.rule))])


def heading(found: Reproduction) -> str:
    """The study, its paper, and every cut."""
    head = f"{found.name}: ours beside {found.reference}"
    if not found.cuts:
        return f"{head}\nNothing of the study was cut."
    said = [textwrap.fill(f"- {cut}", WIDTH, subsequent_indent="  ") for cut in found.cuts]
    return "\n".join([head, "Not the published study:", *said])


def lines(cells: Sequence[Cell], column: str) -> str:
    """The cells of one column as a table."""
    body = [line(cell, cell.ours) for cell in cells if cell.published.column == column and cell.ours]
    head = ["cell", "ours", "runs", "paper", "p", "verdict", "note"]
    used = [i for i in range(len(head)) if any(row[i] not in ("", "-") for row in body)]
    return table([head[i] for i in used], [[row[i] for i in used] for row in body])


def line(cell: Cell, ours: Ours) -> list[str]:
    """One cell as it is printed."""
    printed, chance = cell.published, cell.published.chance(ours)
    p = "-" if chance is None else "<.001" if chance < 0.001 else f"{chance:.3f}"
    return [printed.row, number(ours.mean, ours.spread, 3), str(ours.count), shown(printed), p, cell.verdict, ours.note]


def shown(printed: Published | Claim) -> str:
    """What the paper has, to its own digits."""
    if printed.value is None:
        return "> 0" if isinstance(printed, Claim) and printed.sign > 0 else "< 0"
    fine = isinstance(printed, Published) and printed.unit < 0.01
    return number(printed.value, printed.spread, 3 if fine else 2)


def number(mean: float, spread: float | None = None, digits: int = 2) -> str:
    """A mean with its spread.

    >>> number(0.234, 0.08), number(-12.34)
    ('0.23 +- 0.08', '-12.34')
    """
    return f"{mean:.{digits}f}" + ("" if spread is None else f" +- {spread:.{digits}f}")


def missing(cells: Sequence[Cell]) -> Iterator[str]:
    """Every missing number by name, those that lack the same for one reason together; signs are only counted."""
    columns: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        if not isinstance(cell.published, Claim):
            columns.setdefault((cell.why, cell.published.row), []).append(cell.published.column)
    rows: dict[tuple[str, str], list[str]] = {}
    for (why, row), names in columns.items():
        rows.setdefault((why, ", ".join(names)), []).append(row)
    for (why, lacking), names in rows.items():
        yield textwrap.fill(f"- {lacking} of {gathered(names)}: {why}", WIDTH, subsequent_indent="  ")
    signs = [cell.why for cell in cells if isinstance(cell.published, Claim)]
    for why in dict.fromkeys(signs):
        yield textwrap.fill(f"- {signs.count(why)} signs: {why}", WIDTH, subsequent_indent="  ")


def gathered(rows: Sequence[str]) -> str:
    """Names of rows, those with one beginning together.

    >>> gathered(["pcl, dsprites noise", "pcl, shapes3d noise", "ae, dsprites noise"])
    'pcl (dsprites noise, shapes3d noise); ae (dsprites noise)'
    """
    groups: dict[str, list[str]] = {}
    for row in rows:
        first, _, rest = row.partition(", ")
        groups.setdefault(first, []).append(rest)
    return "; ".join(f"{first} ({', '.join(rest)})" for first, rest in groups.items())


def filled(paragraph: str) -> str:
    """A paragraph in lines."""
    return textwrap.fill(paragraph, WIDTH)
