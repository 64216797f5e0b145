"""Where the files of datasets are, and what to do about those that are not there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from unbraid.data.files.archives import safe_members, safe_tar, safe_zip
from unbraid.data.files.catalogue import SOURCES, File, Source
from unbraid.data.files.fetch import fetch
from unbraid.data.files.integrity import Finding, examine, remember, remembered
from unbraid.errors import UserError, unknown

MANY = 6  # files in a row that are named one by one


def data_folder(root: Path | str | None = None) -> Path:
    """`root`, else UNBRAID_DATA, else unbraid in XDG_DATA_HOME, else ~/.local/share/unbraid."""
    chosen = root or os.environ.get("UNBRAID_DATA")
    try:
        if chosen:
            return Path(chosen).expanduser()
        if xdg := os.environ.get("XDG_DATA_HOME"):
            return Path(xdg) / "unbraid"
        return Path.home() / ".local" / "share" / "unbraid"
    except RuntimeError as error:
        raise UserError(
            f"There is no home folder to keep data in ({error}). Set UNBRAID_DATA or give --root."
        ) from error


def source(name: str) -> Source:
    """What is known of a dataset."""
    if name not in SOURCES:
        raise UserError(unknown("dataset", name, SOURCES))
    return SOURCES[name]


def locate(name: str, root: Path | str | None = None) -> dict[str, Path]:
    """The files of a dataset by `File.name`, or a UserError that says what to download from where and to put where.

    They lie in a folder of the dataset's name in `data_folder(root)`. Of several alternatives the first complete one
    is taken. Built-in data has no files. Nothing is read: `unbraid data check` does that.
    """
    wanted, folder = source(name), data_folder(root) / name
    for files in wanted.alternatives:
        found = present(files, folder)
        if len(found) == len(files):
            return found
    if wanted.alternatives:
        raise UserError(instructions(wanted, folder))
    return {}


def present(files: Sequence[File], folder: Path) -> dict[str, Path]:
    """Those of the files that are in the folder, under any of their names."""
    found = {file.name: _found(file, folder) for file in files}
    return {name: path for name, path in found.items() if path is not None}


def _found(file: File, folder: Path) -> Path | None:
    for name in (file.name, *file.also):
        path = folder / name
        if path.is_file() if file.entries is None else _holds_files(path):
            return path
    return None


def _holds_files(path: Path) -> bool:
    """Whether a folder has files of its own, not only folders, as an archive unpacked into itself leaves it."""
    if not path.is_dir():
        return False
    with os.scandir(path) as entries:
        return any(entry.is_file() for entry in entries)


def obtainable(wanted: Source, folder: Path) -> tuple[File, ...]:
    """The alternative to fetch: the one with most of it in reach, then most of it there; the earlier of equals."""

    def in_reach(files: tuple[File, ...]) -> tuple[float, float]:
        there = present(files, folder)
        either = sum(bool(file.urls) or file.name in there for file in files)
        return either / len(files), len(there) / len(files)

    return max(wanted.alternatives, key=in_reach)


def fetchable(wanted: Source, folder: Path) -> bool:
    """Whether a program can complete the dataset."""
    files = obtainable(wanted, folder)
    there = present(files, folder)
    return all(file.urls or file.name in there for file in files)


def instructions(wanted: Source, folder: Path) -> str:
    """What is missing, from where to get it and where to put it."""
    choices: tuple[tuple[File, ...], ...]
    if fetchable(wanted, folder):
        remedy, choices = f"Give: unbraid data get {wanted.name}. Or put there by hand", (obtainable(wanted, folder),)
    else:
        remedy = f"No program can fetch all of it (see: unbraid data list {wanted.name}). Put there by hand"
        choices = wanted.alternatives
    missing = ", or else ".join(_missing(files, folder) for files in choices)
    hint = f" {wanted.by_hand}" if wanted.by_hand else ""
    return (
        f"The files of {wanted.name} must be in {folder}. Some are missing. {remedy} {missing}.{hint} Homepage: "
        f"{wanted.homepage}. If they are elsewhere, set UNBRAID_DATA or give --root."
    )


def _missing(files: Sequence[File], folder: Path) -> str:
    """The files that are not there, with the addresses they share given once."""
    there = present(files, folder)
    absent = [file for file in files if file.name not in there]
    places = {tuple(url.removesuffix(file.name) for url in file.urls) for file in absent}
    if len(absent) > MANY:
        return f"{absent[0].name} to {absent[-1].name} ({len(absent)} files)"
    if len(absent) > 1 and len(places) == 1 and all(file.urls for file in absent):
        return f"{', '.join(map(_sized, absent))}, all from {' or '.join(places.pop())}"
    return " and ".join(_sized(file) + (f" from {' or '.join(file.urls)}" if file.urls else "") for file in absent)


def _sized(file: File) -> str:
    if file.entries is not None:
        return f"{file.name} (a folder of {file.entries:,} files)"
    return f"{file.name} ({file.size:,} bytes)" if file.size is not None else file.name


__all__ = [
    "File", "Finding", "Source", "data_folder", "examine", "fetch", "fetchable", "instructions", "locate", "obtainable",
    "present", "remember", "remembered", "safe_members", "safe_tar", "safe_zip", "source",
]  # fmt: skip
