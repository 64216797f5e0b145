"""Downloading and checking all files of a dataset."""

from __future__ import annotations

import contextlib
import dataclasses
import urllib.parse
from collections.abc import Callable
from pathlib import Path

from unbraid.data.files.catalogue import File, Source
from unbraid.data.files.fetch import fetch
from unbraid.data.files.integrity import CheckResult, Meter, check_file, read_sha256_record, write_sha256_record
from unbraid.data.files.locate import (
    best_alternative,
    data_folder,
    download_instructions,
    find_source,
    locate,
    present_files,
)
from unbraid.errors import UserError
from unbraid.runtime.progress import ignore_note, no_progress


def get_files(
    name: str,
    root: Path | None = None,
    url: str | None = None,
    meter: Meter = no_progress,
    note: Callable[[str], None] = ignore_note,
) -> None:
    """Download the missing files of a dataset.

    Args:
        name: The name of a dataset in the catalogue.
        root: The data folder; see `data_folder`.
        url: Another address: of a file, or, if it ends with /, of the folder of all files.
        meter: Shows the progress of each download.
        note: Called with a line of text about the dataset and about each file.

    Raises:
        UserError: If files are missing that cannot be downloaded, with instructions; or if a download fails.
    """
    source = find_source(name)
    if source.built_in:
        note(f"{name} is built in: there is nothing to download.")
        return
    folder = data_folder(root) / name
    files = best_alternative(source, folder)
    if url:
        files = with_url(source, files, url)
    note(f"{name}: licence {source.licence}. Cite {source.citation}")
    for file in files:
        path = present_files((file,), folder).get(file.name)
        if path is None and file.urls:
            path = fetch(file, folder, meter)
            note(f"downloaded {path}: {'published' if file.sha256 else 'no published'} sha256")
        elif path is not None:
            check_size(file, path)
            note(f"present {path}; check it with: unbraid data check {name}")
    if len(present_files(files, folder)) < len(files):
        raise UserError(download_instructions(source, folder))


def check_size(file: File, path: Path) -> None:
    """Raise an error if a file has another size than the published one."""
    size = path.stat().st_size
    if file.entries is None and file.size is not None and size != file.size:
        raise UserError(f"{path} must have {file.size:,} bytes. Got {size:,} instead. Delete it and download it again.")


def with_url(source: Source, files: tuple[File, ...], url: str) -> tuple[File, ...]:
    """The files with `url` as their address, if it ends with /, or as the address of the file that it names."""
    if url.endswith("/"):
        return tuple(dataclasses.replace(file, urls=(url + file.name,)) for file in files)
    last = urllib.parse.unquote(Path(urllib.parse.urlsplit(url).path).name)
    for alternative in source.alternatives:
        if any(last in (file.name, *file.other_names) for file in alternative):
            return tuple(
                dataclasses.replace(file, urls=(url,)) if last in (file.name, *file.other_names) else file
                for file in alternative
            )
    if len(files) == 1:
        return (dataclasses.replace(files[0], urls=(url,)),)
    names = ", ".join(file.name for file in files)
    raise UserError(f"The URL must end with / or with the name of a file of {source.name}: {names}. Got {url} instead.")


@dataclasses.dataclass(frozen=True)
class CheckedData:
    """The result of a successful check: the result for each file, and a description of the dataset.

    The description is None if unbraid has no reader for the files.
    """

    files: dict[Path, CheckResult]
    description: str | None


def check_files(name: str, root: Path | None = None, meter: Meter = no_progress) -> CheckedData:
    """Check the files of a dataset and load it.

    If no sha256 is published for a file, the one found is stored for later checks, after the data have been loaded.

    Args:
        name: The name of a dataset in the catalogue.
        root: The data folder; see `data_folder`.
        meter: Shows the progress of each check.

    Raises:
        UserError: If a file is missing or damaged.
    """
    source, paths = find_source(name), locate(name, root)
    files = next((files for files in source.alternatives if [f.name for f in files] == list(paths)), ())
    results = {}
    for file in files:
        path = paths[file.name]
        expected = None if file.sha256 or file.entries else read_sha256_record(path)
        results[path] = check_file(file, path, expected, meter)
    description = describe_data(name, root)
    for path, result in results.items():
        if result.new and result.sha256:
            with contextlib.suppress(UserError):  # files in a read-only folder can be checked, too
                write_sha256_record(path, result.sha256)
    return CheckedData(results, description)


def describe_data(name: str, root: Path | None) -> str | None:
    """Load a dataset and describe it; None if there is no reader for its files."""
    from unbraid.data import DATASETS, load

    return repr(load(name, root=root)) if name in DATASETS else None
