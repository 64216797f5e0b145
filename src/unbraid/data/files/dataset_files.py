"""Download and check all files of a dataset."""

from __future__ import annotations

import contextlib
import dataclasses
import urllib.parse
from collections.abc import Callable
from pathlib import Path

from unbraid.data.files.catalogue import File, Source
from unbraid.data.files.download import download_file
from unbraid.data.files.integrity import (
    CheckResult,
    ProgressDisplay,
    check_file,
    read_sha256_record,
    write_sha256_record,
)
from unbraid.data.files.locate import (
    best_alternative,
    data_folder,
    download_instructions,
    find_source,
    locate_files,
    present_files,
)
from unbraid.errors import UserError
from unbraid.runtime.progress import ignore_message, no_progress


def download_files(
    name: str,
    root: Path | None = None,
    url: str | None = None,
    display: ProgressDisplay = no_progress,
    show_message: Callable[[str], None] = ignore_message,
) -> None:
    """Download the missing files of a dataset.

    Args:
        name: Name of a dataset in the catalogue.
        root: Data folder; see `data_folder`.
        url: Address to use instead of those in the catalogue; see `replace_urls`.
        display: Shows the progress of each download.
        show_message: Called with a message about the dataset and a message about each file.

    Raises:
        UserError: If a download fails, or if some missing files can be downloaded only by hand. In the second case, the
            message contains instructions for the manual download.
    """
    source = find_source(name)
    if source.built_in:
        show_message(f"{name} is built in. There is nothing to download.")
        return
    folder = data_folder(root) / name
    files = best_alternative(source, folder)
    if url:
        files = replace_urls(source, files, url)
    show_message(f"{name}: licence {source.licence}. Please cite: {source.citation}")
    for file in files:
        path = present_files((file,), folder).get(file.name)
        if path is None and file.urls:
            path = download_file(file, folder, display)
            verified = "SHA-256 verified." if file.sha256 else "No SHA-256 is published to verify it against."
            show_message(f"Downloaded {path}. {verified}")
        elif path is not None:
            check_size(file, path)
            show_message(f"Already present: {path}. To verify it, run: unbraid data check {name}")
    if len(present_files(files, folder)) < len(files):
        raise UserError(download_instructions(source, folder))


def check_size(file: File, path: Path) -> None:
    """Raise a UserError if the size of a file differs from the published size."""
    size = path.stat().st_size
    if file.entries is None and file.size is not None and size != file.size:
        raise UserError(f"{path} must have {file.size:,} bytes. Got {size:,} instead. Delete it and download it again.")


def replace_urls(source: Source, files: tuple[File, ...], url: str) -> tuple[File, ...]:
    """Replace the addresses of files by an address that the user gave.

    Args:
        source: Catalogue entry of the dataset.
        files: Files to download.
        url: If it ends with /, the address of a folder that contains all `files`. Otherwise, the address of a single
            file. The last part of the address must be the name of a file of `source`, unless `files` contains a single
            file. In that case, the address may end with any name.

    Returns:
        The files with the new addresses. If `url` names a file of an alternative other than `files`, the files of
        that alternative are returned.

    Raises:
        UserError: If it is not clear which file `url` is the address of.
    """
    if url.endswith("/"):
        return tuple(dataclasses.replace(file, urls=(url + file.name,)) for file in files)
    name = urllib.parse.unquote(Path(urllib.parse.urlsplit(url).path).name)
    for alternative in source.alternatives:
        if any(name in (file.name, *file.other_names) for file in alternative):
            return tuple(
                dataclasses.replace(file, urls=(url,)) if name in (file.name, *file.other_names) else file
                for file in alternative
            )
    if len(files) == 1:
        return (dataclasses.replace(files[0], urls=(url,)),)
    names = ", ".join(file.name for file in files)
    raise UserError(f"The URL must end with / or with the name of a file of {source.name}: {names}. Got {url} instead.")


@dataclasses.dataclass(frozen=True)
class CheckReport:
    """The result of a successful check of a dataset.

    Attributes:
        files: The result for each file, by path.
        description: One line about the loaded dataset, or None if unbraid has no reader for its files.
    """

    files: dict[Path, CheckResult]
    description: str | None


def check_files(name: str, root: Path | None = None, display: ProgressDisplay = no_progress) -> CheckReport:
    """Check the files of a dataset and load it.

    If no SHA-256 is published for a file, its current SHA-256 is recorded for later checks. This happens only after
    the dataset has been loaded successfully.

    Args:
        name: Name of a dataset in the catalogue.
        root: Data folder; see `data_folder`.
        display: Shows the progress of each check.

    Returns:
        The results for the files and a description of the dataset.

    Raises:
        UserError: If a file is missing or damaged.
    """
    source, paths = find_source(name), locate_files(name, root)
    files = next((files for files in source.alternatives if [f.name for f in files] == list(paths)), ())
    results = {}
    for file in files:
        path = paths[file.name]
        recorded = None if file.sha256 or file.entries else read_sha256_record(path)
        results[path] = check_file(file, path, recorded, display)
    description = describe_dataset(name, root)
    for path, result in results.items():
        if result.new and result.sha256:
            with contextlib.suppress(UserError):  # the folder may be read-only
                write_sha256_record(path, result.sha256)
    return CheckReport(results, description)


def describe_dataset(name: str, root: Path | None) -> str | None:
    """Load a dataset and return one line about it, or None if there is no reader for its files."""
    from unbraid.data import DATASETS, load

    return repr(load(name, root=root)) if name in DATASETS else None
