"""Find the files of datasets, and explain how to download those that are missing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from unbraid.data.files.catalogue import SOURCES, File, Source
from unbraid.errors import UserError, unknown_name_message
from unbraid.runtime.files import expand_user

MAX_LISTED_FILES = 6  # maximum number of missing files that are listed individually


def data_folder(root: Path | str | None = None) -> Path:
    """Return the folder in which the files of published datasets are stored.

    It is the first of these that is given: `root`, the environment variable UNBRAID_DATA, and $XDG_DATA_HOME/unbraid.
    If none is given, it is ~/.local/share/unbraid.
    """
    chosen = root or os.environ.get("UNBRAID_DATA")
    try:
        if chosen:
            return expand_user(chosen)
        if xdg := os.environ.get("XDG_DATA_HOME"):
            return Path(xdg) / "unbraid"
        return Path.home() / ".local" / "share" / "unbraid"
    except RuntimeError as error:
        raise UserError(
            f"There must be a home folder to store data in. Got an error instead: {error}. Set UNBRAID_DATA or pass "
            "--root."
        ) from error


def find_source(name: str) -> Source:
    """Return the catalogue entry of a dataset, or raise a UserError if the name is unknown."""
    if name not in SOURCES:
        raise UserError(unknown_name_message("dataset", name, SOURCES))
    return SOURCES[name]


def locate_files(name: str, root: Path | str | None = None) -> dict[str, Path]:
    """Return the paths of the files of a dataset, by `File.name`.

    The files are in `data_folder(root)`, in a folder with the name of the dataset. The files are not read. To check
    their contents, use `unbraid data check`.

    Args:
        name: Name of a dataset in the catalogue.
        root: Data folder; see `data_folder`.

    Returns:
        The paths of the first alternative whose files are all present. Built-in datasets have no files, so the result
        is empty for them.

    Raises:
        UserError: If files are missing. The message contains instructions for downloading them.
    """
    source, folder = find_source(name), data_folder(root) / name
    for files in source.alternatives:
        paths = present_files(files, folder)
        if len(paths) == len(files):
            return paths
    if source.alternatives:
        raise UserError(download_instructions(source, folder))
    return {}


def present_files(files: Sequence[File], folder: Path) -> dict[str, Path]:
    """Return the paths of those files that are in the folder, by `File.name`.

    A file is found under its `name` or under any of its `other_names`.
    """
    paths = {file.name: _find_file(file, folder) for file in files}
    return {name: path for name, path in paths.items() if path is not None}


def _find_file(file: File, folder: Path) -> Path | None:
    for name in (file.name, *file.other_names):
        path = folder / name
        if path.is_file() if file.entries is None else _contains_files(path):
            return path
    return None


def _contains_files(path: Path) -> bool:
    """Return whether `path` is a folder that directly contains files.

    If an archive is unpacked into a folder of the same name, the outer folder contains only the inner folder. The
    result is then false for the outer folder.
    """
    if not path.is_dir():
        return False
    with os.scandir(path) as entries:
        return any(entry.is_file() for entry in entries)


def best_alternative(source: Source, folder: Path) -> tuple[File, ...]:
    """Return the alternative (set of files) to download.

    This is the alternative with the largest fraction of files that are present or can be downloaded. Ties are broken by
    the fraction of files that are present, and then by the order in the catalogue.
    """

    def fractions(files: tuple[File, ...]) -> tuple[float, float]:
        present = present_files(files, folder)
        available = sum(bool(file.urls) or file.name in present for file in files)
        return available / len(files), len(present) / len(files)

    return max(source.alternatives, key=fractions)


def can_download(source: Source, folder: Path) -> bool:
    """Return whether a program can download all missing files of a dataset."""
    files = best_alternative(source, folder)
    present = present_files(files, folder)
    return all(file.urls or file.name in present for file in files)


def download_instructions(source: Source, folder: Path) -> str:
    """Return a message that lists the missing files, where to download them and where to put them."""
    choices: tuple[tuple[File, ...], ...]
    if can_download(source, folder):
        choices, remedy = (best_alternative(source, folder),), f"Run: unbraid data get {source.name}. Or download"
    else:
        choices = source.alternatives
        remedy = f"A program cannot download all of them (see: unbraid data list {source.name}). Download"
    missing = ", or else ".join(_describe_missing(files, folder) for files in choices)
    hint = f" {source.manual_steps}" if source.manual_steps else ""
    return (
        f"The files of {source.name} must be in {folder}. Some are missing. {remedy} these files yourself and put "
        f"them there: {missing}.{hint} Homepage: {source.homepage}. If the files are in a "
        "different folder, set UNBRAID_DATA or pass --root."
    )


def _describe_missing(files: Sequence[File], folder: Path) -> str:
    """Return a list of the missing files as text. Addresses that are the same for all files appear only once."""
    present = present_files(files, folder)
    absent = [file for file in files if file.name not in present]
    bases = {tuple(url.removesuffix(file.name) for url in file.urls) for file in absent}
    if len(absent) > MAX_LISTED_FILES:
        return f"{absent[0].name} to {absent[-1].name} ({len(absent)} files)"
    if len(absent) > 1 and len(bases) == 1 and all(file.urls for file in absent):
        return f"{', '.join(map(_name_and_size, absent))}, all from {' or '.join(bases.pop())}"
    return " and ".join(_name_and_size(f) + (f" from {' or '.join(f.urls)}" if f.urls else "") for f in absent)


def _name_and_size(file: File) -> str:
    if file.entries is not None:
        return f"{file.name} (a folder of {file.entries:,} files)"
    return f"{file.name} ({file.size:,} bytes)" if file.size is not None else file.name
