"""The files of datasets: what there is, fetching, checking."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.util
import textwrap
import urllib.parse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from unbraid.cli.parser import Parser
from unbraid.cli.printing import table
from unbraid.data.files.catalogue import SOURCES, File, Source
from unbraid.data.files.fetch import fetch
from unbraid.data.files.integrity import Finding, Meter, examine, quiet, remember, remembered
from unbraid.data.files.locate import data_folder, fetchable, instructions, locate, obtainable, present, source
from unbraid.errors import UserError, unknown
from unbraid.runtime.progress import progress

Action: TypeAlias = Callable[[Parser, Sequence[str]], None]

FAILURES = (UserError, OSError, ImportError)
ROWS = 6  # of files of one kind that are shown one by one
EXAMPLES = """examples:
  unbraid data list
  unbraid data list cars3d
  unbraid data get shapes3d smallnorb --root /data
  unbraid data check shapes3d --root /data
  unbraid data modify sprites --out sprites.safetensors
"""


def description_of(name: str, root: Path | None) -> str | None:
    """Open a dataset and describe it; None if no reader for its files exists."""
    from unbraid.data import DATASETS, load

    return repr(load(name, root=root)) if name in DATASETS else None


def main(parser: Parser, arguments: Sequence[str]) -> None:
    """Run one action."""
    if not arguments or arguments[0] in ("-h", "--help"):
        actions = "\n".join(f"  {name:<8}{text}" for name, (_, text) in ACTIONS.items())
        print(f"usage: unbraid data ACTION ...\n\n{__doc__}\n\nactions (each has --help):\n{actions}\n\n{EXAMPLES}")
    elif arguments[0] not in ACTIONS:
        raise UserError(unknown("action of 'unbraid data'", arguments[0], ACTIONS))
    else:
        action, text = ACTIONS[arguments[0]]
        action(Parser(prog=f"unbraid data {arguments[0]}", description=text), arguments[1:])


def _options(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    parser.add_argument("--root", type=Path, help="folder of the data [UNBRAID_DATA, else ~/.local/share/unbraid]")
    options = parser.parse_all(arguments)
    for name in options.names:
        source(name)
    return options


def show_list(parser: Parser, arguments: Sequence[str]) -> None:
    """The table of all datasets, or everything about some."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="everything about these")
    options = _options(parser, arguments)
    folder = data_folder(options.root)
    if options.names:
        print("\n\n".join(details(source(name), folder / name) for name in options.names))
        return
    rows = [[s.name, s.what, status(s, folder / s.name), size(s, folder / s.name), s.licence] for s in SOURCES.values()]
    print(table(["name", "what", "status", "size", "licence"], rows))
    print(f"\nFiles go to {folder}. All about one, with what to cite: unbraid data list NAME")


def status(wanted: Source, folder: Path) -> str:
    """Built in, present, or how it can be had."""
    if wanted.built_in:
        missing = wanted.extra and importlib.util.find_spec(wanted.extra[1]) is None
        return f"needs pip install 'unbraid[{wanted.extra[0]}]'" if wanted.extra and missing else "built in"
    found = [(len(present(files, folder)), len(files)) for files in wanted.alternatives]
    if any(there == whole for there, whole in found):
        return "present"
    way = "can be fetched" if fetchable(wanted, folder) else "by hand"
    there, whole = max(found)
    return f"{way}, {there} of {whole} files present" if there else way


def size(wanted: Source, folder: Path) -> str:
    """Of the files that are there, or of those to be had where that is known."""
    if wanted.built_in:
        return ""
    files = obtainable(wanted, folder)
    there = present(files, folder)
    sizes = [there[f.name].stat().st_size if f.name in there and f.entries is None else f.size for f in files]
    known = [number for number in sizes if number is not None]
    return megabytes(sum(known)) if len(known) == len(sizes) else "unknown"


def megabytes(number: int) -> str:
    """A size to read.

    >>> megabytes(267_573_662), megabytes(348)
    ('267.6 MB', '348 bytes')
    """
    return f"{number / 1e6:,.1f} MB" if number >= 100_000 else f"{number:,} bytes"


def details(wanted: Source, folder: Path) -> str:
    """Everything about one dataset."""
    about = {
        "what": wanted.what, "status": status(wanted, folder), "made from": wanted.made_from, "licence": wanted.licence,
        "cite": wanted.citation, "homepage": wanted.homepage, "folder": "" if wanted.built_in else str(folder),
        "note": wanted.by_hand,
    }  # fmt: skip
    lines = [wanted.name]
    for key, text in about.items():
        if text:
            lines += textwrap.wrap(
                text, 108, initial_indent=f"  {key:<10}", subsequent_indent=" " * 12, break_on_hyphens=False
            )
    for number, files in enumerate(wanted.alternatives):
        lines += [f"  {'or ' * bool(number)}files", *described(files, present(files, folder))]
    return "\n".join(lines)


def described(files: Sequence[File], there: dict[str, Path]) -> list[str]:
    """A line a file, and one for each of its addresses."""
    if len(files) > ROWS:
        return [f"    {files[0].name} to {files[-1].name} ({len(files)} files, {len(there)} present)"]
    lines = []
    for file in files:
        kind = (
            f"a folder of {file.entries:,} files"
            if file.entries
            else megabytes(file.size)
            if file.size
            else "size unknown"
        )
        sha256 = f"sha256 {file.sha256}" if file.sha256 else "no published sha256"
        other = f" (or {', '.join(file.also)})" if file.also else ""
        lines.append(f"    {file.name}{other}: {kind}, {sha256}{', present' * (file.name in there)}")
        lines += [f"      {url}" for url in file.urls]
    return lines


def get(parser: Parser, arguments: Sequence[str]) -> None:
    """Fetch what is missing."""
    parser.add_argument("names", nargs="+", metavar="NAME", help="datasets; see: unbraid data list")
    parser.add_argument("--url", help="another source of a file, or with / at the end of all files, for one dataset")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    options = _options(parser, arguments)
    if options.url and len(options.names) > 1:
        raise UserError(f"--url must come with one dataset. Got {len(options.names)} instead.")
    meter = quiet if options.quiet else progress
    _each(options.names, lambda name: get_one(source(name), data_folder(options.root) / name, options.url, meter))


def _each(names: Sequence[str], act: Callable[[str], None]) -> None:
    """Do all of them, then complain of those that failed."""
    problems = []
    for name in names:
        try:
            act(name)
        except FAILURES as error:
            problems.append(f"{name}: {error}" if len(names) > 1 else str(error))
    if problems:
        raise UserError(" ".join(problems))


def get_one(wanted: Source, folder: Path, url: str | None, meter: Meter) -> None:
    """Fetch the missing files of one dataset, or say what to do by hand."""
    if wanted.built_in:
        print(f"{wanted.name} is built in: there is nothing to fetch.")
        return
    files = obtainable(wanted, folder)
    if url:
        files = from_url(wanted, files, url)
    print(f"{wanted.name}: licence {wanted.licence}. Cite {wanted.citation}")
    for file in files:
        path = present((file,), folder).get(file.name)
        if path is None and file.urls:
            path = fetch(file, folder, meter)
            print(f"fetched {path}: {'published' if file.sha256 else 'no published'} sha256")
        elif path is not None:
            _right_size(file, path)
            print(f"present {path}; to check it: unbraid data check {wanted.name}")
    if len(present(files, folder)) < len(files):
        raise UserError(instructions(wanted, folder))


def _right_size(file: File, path: Path) -> None:
    found = path.stat().st_size
    if file.entries is None and file.size is not None and found != file.size:
        raise UserError(
            f"{path} must have {file.size:,} bytes. Got {found:,} instead. Delete it and give the command again."
        )


def from_url(wanted: Source, files: tuple[File, ...], url: str) -> tuple[File, ...]:
    """The files with `url` as their source: the one whose name it ends with, all below a folder, or the only one."""
    if url.endswith("/"):
        return tuple(dataclasses.replace(file, urls=(url + file.name,)) for file in files)
    last = urllib.parse.unquote(Path(urllib.parse.urlsplit(url).path).name)
    for choice in wanted.alternatives:
        if last in [name for file in choice for name in (file.name, *file.also)]:
            return tuple(dataclasses.replace(f, urls=(url,)) if last in (f.name, *f.also) else f for f in choice)
    if len(files) == 1:
        return (dataclasses.replace(files[0], urls=(url,)),)
    raise UserError(f"--url must end with / or with the name of a file of {wanted.name}: "
                  f"{', '.join(file.name for file in files)}. Got {url} instead.")  # fmt: skip


def check(parser: Parser, arguments: Sequence[str]) -> None:
    """Verify presence, size and sha256, and open the data."""
    parser.add_argument("names", nargs="+", metavar="NAME", help="datasets; see: unbraid data list")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    options = _options(parser, arguments)
    meter = quiet if options.quiet else progress
    _each(options.names, lambda name: check_one(source(name), options.root, meter))


def check_one(wanted: Source, root: Path | None, meter: Meter) -> None:
    """Examine every file, open the data, and only then keep the sha256 of files that have no published one."""
    paths = locate(wanted.name, root)
    files = next((files for files in wanted.alternatives if [f.name for f in files] == list(paths)), ())
    findings = {}
    for file in files:
        path = paths[file.name]
        expected = None if file.sha256 or file.entries else remembered(path)
        findings[file.name] = examine(file, path, expected, meter)
    description = description_of(wanted.name, root)
    for name, finding in findings.items():
        if finding.new and finding.sha256:
            with contextlib.suppress(UserError):  # a folder that cannot be written to can still be checked
                remember(paths[name], finding.sha256)
    for line in _shown(findings, paths):
        print(line)
    print(f"{wanted.name}: {f'opens as {description}' if description else 'not opened: there is no reader for it'}")


def _shown(findings: dict[str, Finding], paths: dict[str, Path]) -> list[str]:
    lines = [f"{paths[name]}: {finding.how}" for name, finding in findings.items()]
    if len(lines) <= ROWS:
        return lines
    kinds = sorted({finding.how for finding in findings.values()})
    return [f"{len(lines)} files in {next(iter(paths.values())).parent}: {', '.join(kinds)}"]


def modify(parser: Parser, arguments: Sequence[str]) -> None:
    """Learn a manipulation of a dataset."""
    from unbraid.cli import modify

    modify.main(parser, arguments)


def show(parser: Parser, arguments: Sequence[str]) -> None:
    """Draw a dataset."""
    from unbraid.cli import show

    show.main(parser, arguments)


ACTIONS: dict[str, tuple[Action, str]] = {
    "list": (show_list, "what is built in, present and obtainable, with licence and citation"),
    "get": (get, "fetch files, or say what to download by hand and where to put it"),
    "check": (check, "verify presence, size and sha256, and open the data"),
    "show": (show, "draw one row per factor, with the values it takes"),
    "modify": (modify, "learn an imperceptible change under which VAEs should entangle the factors"),
}
