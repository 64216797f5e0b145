"""The output of `unbraid data list`: a table of all datasets, or the details of one dataset."""

from __future__ import annotations

import importlib.util
import textwrap
from collections.abc import Sequence
from pathlib import Path

from unbraid.data.files.catalogue import SOURCES, File, Source
from unbraid.data.files.locate import best_alternative, can_download, present_files
from unbraid.runtime.tables import table

MAX_LISTED_FILES = 6  # maximum number of files that are listed one by one; more are summarised in one line


def datasets_table(folder: Path) -> str:
    """Return a table with one row per dataset: name, description, status, size and licence."""
    rows = [
        [source.name, source.description, dataset_status(source, folder / source.name),
         dataset_size(source, folder / source.name), source.licence]
        for source in SOURCES.values()
    ]  # fmt: skip
    return table(["name", "description", "status", "size", "licence"], rows)


def dataset_status(source: Source, folder: Path) -> str:
    """Return the status of a dataset.

    A built-in dataset is "built in", or needs an optional dependency. A published dataset is "present", or can be
    downloaded by unbraid or by hand.
    """
    if source.built_in:
        missing = source.extra and importlib.util.find_spec(source.extra[1]) is None
        return f"needs pip install 'unbraid[{source.extra[0]}]'" if source.extra and missing else "built in"
    counts = [(len(present_files(files, folder)), len(files)) for files in source.alternatives]
    if any(present == total for present, total in counts):
        return "present"
    way = "can be downloaded" if can_download(source, folder) else "download by hand"
    present, total = max(counts)
    return f"{way}, {present} of {total} files present" if present else way


def dataset_size(source: Source, folder: Path) -> str:
    """Return the total size of the files of a dataset, or "unknown" if the size of any file is unknown.

    A built-in dataset has no files, so the text is empty.
    """
    if source.built_in:
        return ""
    files = best_alternative(source, folder)
    present = present_files(files, folder)
    sizes = [present[f.name].stat().st_size if f.name in present and f.entries is None else f.size for f in files]
    known = [number for number in sizes if number is not None]
    return format_size(sum(known)) if len(known) == len(sizes) else "unknown"


def format_size(number: int) -> str:
    """Format a number of bytes.

    >>> format_size(267_573_662), format_size(348)
    ('267.6 MB', '348 bytes')
    """
    return f"{number / 1e6:,.1f} MB" if number >= 100_000 else f"{number:,} bytes"


def dataset_details(source: Source, folder: Path) -> str:
    """Return all details of one dataset, including its citation and its files."""
    entries = {
        "contents": source.description, "status": dataset_status(source, folder), "made from": source.made_from,
        "licence": source.licence, "cite": source.citation, "homepage": source.homepage,
        "folder": "" if source.built_in else str(folder), "note": source.manual_steps,
    }  # fmt: skip
    lines = [source.name]
    for key, text in entries.items():
        if text:
            lines += textwrap.wrap(
                text, 108, initial_indent=f"  {key:<10}", subsequent_indent=" " * 12, break_on_hyphens=False
            )
    for number, files in enumerate(source.alternatives):
        lines += [f"  {'or ' * bool(number)}files", *file_lines(files, present_files(files, folder))]
    return "\n".join(lines)


def file_lines(files: Sequence[File], present: dict[str, Path]) -> list[str]:
    """Return one line per file, followed by one line for each of its URLs."""
    if len(files) > MAX_LISTED_FILES:
        return [f"    {files[0].name} to {files[-1].name} ({len(files)} files, {len(present)} present)"]
    lines = []
    for file in files:
        known_size = format_size(file.size) if file.size else "size unknown"
        kind = f"a folder of {file.entries:,} files" if file.entries else known_size
        sha256 = f"sha256 {file.sha256}" if file.sha256 else "no published sha256"
        other = f" (or {', '.join(file.other_names)})" if file.other_names else ""
        lines.append(f"    {file.name}{other}: {kind}, {sha256}{', present' * (file.name in present)}")
        lines += [f"      {url}" for url in file.urls]
    return lines
