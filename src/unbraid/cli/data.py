"""List, download, check, draw and modify datasets."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from unbraid.cli.data_list import MAX_LISTED_FILES, dataset_details, datasets_table
from unbraid.cli.parser import Parser, add_quiet, add_root
from unbraid.data.files.dataset_files import check_files, download_files
from unbraid.data.files.integrity import CheckResult
from unbraid.data.files.locate import data_folder, find_source
from unbraid.errors import UserError, unknown_name_message
from unbraid.runtime.progress import no_progress, progress

Action: TypeAlias = Callable[[Parser, Sequence[str]], None]

EXAMPLES = """examples:
  unbraid data list
  unbraid data list cars3d
  unbraid data get shapes3d smallnorb --root /data
  unbraid data check shapes3d --root /data
  unbraid data modify sprites --out sprites.safetensors
"""


def main(parser: Parser, arguments: Sequence[str]) -> None:
    """Run one action of `unbraid data`, such as `list`."""
    if not arguments or arguments[0] in ("-h", "--help"):
        actions = "\n".join(f"  {name:<8}{text}" for name, (_, text) in ACTIONS.items())
        print(f"usage: unbraid data ACTION ...\n\n{__doc__}\n\nactions (each has --help):\n{actions}\n\n{EXAMPLES}")
    elif arguments[0] not in ACTIONS:
        raise UserError(unknown_name_message("action of 'unbraid data'", arguments[0], ACTIONS))
    else:
        action, text = ACTIONS[arguments[0]]
        action(Parser(prog=f"unbraid data {arguments[0]}", description=f"{text[:1].upper()}{text[1:]}."), arguments[1:])


def parse_arguments(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments of an action and raise an error for an unknown dataset."""
    add_root(parser)
    options = parser.parse_all(arguments)
    for name in options.names:
        find_source(name)
    return options


def list_data(parser: Parser, arguments: Sequence[str]) -> None:
    """Print a table of all datasets, or the details of the given datasets."""
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="datasets whose details are printed [a table of all datasets]"
    )
    options = parse_arguments(parser, arguments)
    folder = data_folder(options.root)
    if options.names:
        print("\n\n".join(dataset_details(find_source(name), folder / name) for name in options.names))
        return
    print(datasets_table(folder))
    print(f"\nThe data folder is {folder}. For details of a dataset and its citation, run: unbraid data list NAME")


def download_data(parser: Parser, arguments: Sequence[str]) -> None:
    """Download the missing files of datasets."""
    parser.add_argument("names", nargs="+", metavar="NAME", help="one or more datasets; `unbraid data list` lists them")
    url = "alternative URL of the file, or of the folder of the files if it ends with /; for one dataset only"
    parser.add_argument("--url", help=url)
    add_quiet(parser)
    options = parse_arguments(parser, arguments)
    if options.url and len(options.names) > 1:
        raise UserError(f"--url can be used with one dataset only. Got {len(options.names)} datasets instead.")
    show_progress = no_progress if options.quiet else progress
    run_for_each(options.names, lambda name: download_files(name, options.root, options.url, show_progress, print))


def run_for_each(names: Sequence[str], action: Callable[[str], None]) -> None:
    """Call `action` for every name, then raise one error for all names that failed."""
    problems = []
    for name in names:
        try:
            action(name)
        except (UserError, OSError, ImportError) as error:
            problems.append(f"{name}: {error}" if len(names) > 1 else str(error))
    if problems:
        raise UserError(" ".join(problems))


def check_data(parser: Parser, arguments: Sequence[str]) -> None:
    """Check the files of datasets and load them."""
    parser.add_argument("names", nargs="+", metavar="NAME", help="one or more datasets; `unbraid data list` lists them")
    add_quiet(parser)
    options = parse_arguments(parser, arguments)
    show_progress = no_progress if options.quiet else progress

    def check_one(name: str) -> None:
        checked = check_files(name, options.root, show_progress)
        for line in result_lines(checked.files):
            print(line)
        loaded = (
            f"loaded as {checked.description}"
            if checked.description
            else "not loaded, because there is no reader for it"
        )
        print(f"{name}: {loaded}")

    run_for_each(options.names, check_one)


def result_lines(results: dict[Path, CheckResult]) -> list[str]:
    """Return one line per file, or one line for all files if there are more than `MAX_LISTED_FILES`."""
    lines = [f"{path}: {result.summary}" for path, result in results.items()]
    if len(lines) <= MAX_LISTED_FILES:
        return lines
    kinds = sorted({result.summary for result in results.values()})
    return [f"{len(lines)} files in {next(iter(results)).parent}: {', '.join(kinds)}"]


def modify_data(parser: Parser, arguments: Sequence[str]) -> None:
    """Learn a manipulation of a dataset."""
    from unbraid.cli import modify

    modify.main(parser, arguments)


def draw_data(parser: Parser, arguments: Sequence[str]) -> None:
    """Draw a dataset."""
    from unbraid.cli import show

    show.main(parser, arguments)


ACTIONS: dict[str, tuple[Action, str]] = {
    "list": (list_data, "list all datasets with their status, size and licence, or print the details of some"),
    "get": (download_data, "download the files of datasets, or explain how to download them by hand"),
    "check": (check_data, "check that the files of datasets are present and undamaged, and load them"),
    "show": (draw_data, "draw a dataset, with one row of images per factor in which only that factor varies"),
    "modify": (
        modify_data,
        "learn a small change to the images of a dataset that is intended to make VAEs entangle its factors",
    ),
}
