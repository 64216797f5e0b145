"""List, download, check, draw and modify datasets."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from unbraid.cli.data_list import MOST_FILES, dataset_details, datasets_table
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
    """Run one action."""
    if not arguments or arguments[0] in ("-h", "--help"):
        actions = "\n".join(f"  {name:<8}{text}" for name, (_, text) in ACTIONS.items())
        print(f"usage: unbraid data ACTION ...\n\n{__doc__}\n\nactions (each has --help):\n{actions}\n\n{EXAMPLES}")
    elif arguments[0] not in ACTIONS:
        raise UserError(unknown_name_message("action of 'unbraid data'", arguments[0], ACTIONS))
    else:
        action, text = ACTIONS[arguments[0]]
        action(Parser(prog=f"unbraid data {arguments[0]}", description=f"{text[:1].upper()}{text[1:]}."), arguments[1:])


def parse(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments of an action and check the names of datasets."""
    add_root(parser)
    options = parser.parse_all(arguments)
    for name in options.names:
        find_source(name)
    return options


def list_data(parser: Parser, arguments: Sequence[str]) -> None:
    """Print a table of all datasets, or all details of some."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="print all details of these datasets [a table of all]")
    options = parse(parser, arguments)
    folder = data_folder(options.root)
    if options.names:
        print("\n\n".join(dataset_details(find_source(name), folder / name) for name in options.names))
        return
    print(datasets_table(folder))
    print(f"\nData folder: {folder}. Details of a dataset, with what to cite: unbraid data list NAME")


def get(parser: Parser, arguments: Sequence[str]) -> None:
    """Download the missing files of datasets."""
    parser.add_argument("names", nargs="+", metavar="NAME", help="names of datasets; see: unbraid data list")
    url = "another address of a file, or of the folder of all files if it ends with /; for one dataset only"
    parser.add_argument("--url", help=url)
    add_quiet(parser)
    options = parse(parser, arguments)
    if options.url and len(options.names) > 1:
        raise UserError(f"--url can be used with one dataset only. Got {len(options.names)} datasets.")
    meter = no_progress if options.quiet else progress
    for_each(options.names, lambda name: download_files(name, options.root, options.url, meter, print))


def for_each(names: Sequence[str], act: Callable[[str], None]) -> None:
    """Call `act` for every name, then raise one error for all names that failed."""
    problems = []
    for name in names:
        try:
            act(name)
        except (UserError, OSError, ImportError) as error:
            problems.append(f"{name}: {error}" if len(names) > 1 else str(error))
    if problems:
        raise UserError(" ".join(problems))


def check(parser: Parser, arguments: Sequence[str]) -> None:
    """Check the files of datasets and load them."""
    parser.add_argument("names", nargs="+", metavar="NAME", help="names of datasets; see: unbraid data list")
    add_quiet(parser)
    options = parse(parser, arguments)
    meter = no_progress if options.quiet else progress

    def check_one(name: str) -> None:
        checked = check_files(name, options.root, meter)
        for line in result_lines(checked.files):
            print(line)
        loaded = f"loaded as {checked.description}" if checked.description else "not loaded: there is no reader for it"
        print(f"{name}: {loaded}")

    for_each(options.names, check_one)


def result_lines(results: dict[Path, CheckResult]) -> list[str]:
    """One line per file, or one line for all if they are many."""
    lines = [f"{path}: {result.summary}" for path, result in results.items()]
    if len(lines) <= MOST_FILES:
        return lines
    kinds = sorted({result.summary for result in results.values()})
    return [f"{len(lines)} files in {next(iter(results)).parent}: {', '.join(kinds)}"]


def modify(parser: Parser, arguments: Sequence[str]) -> None:
    """Learn a manipulation of a dataset."""
    from unbraid.cli import modify

    modify.main(parser, arguments)


def show(parser: Parser, arguments: Sequence[str]) -> None:
    """Draw a dataset."""
    from unbraid.cli import show

    show.main(parser, arguments)


ACTIONS: dict[str, tuple[Action, str]] = {
    "list": (list_data, "list all datasets with status, size and licence, or all details of some"),
    "get": (get, "download the files of datasets, or explain how to download them by hand"),
    "check": (check, "check that the files of datasets are present and undamaged, and load them"),
    "show": (show, "draw a dataset: one row per factor, with the values it takes"),
    "modify": (modify, "learn an imperceptible change of a dataset under which VAEs should entangle its factors"),
}
