"""Publishing a study as a folder with checksums, and importing a published folder.

A published folder may come from anyone. Only ordinary files that the file of checksums lists are read from it, and a
copy is used only if it has the listed checksum.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from unbraid.errors import UserError
from unbraid.runs.folder import find_runs
from unbraid.runs.results import RESULTS_FILE, write_results
from unbraid.runtime.files import make_folder, write_atomic
from unbraid.runtime.folders import new_folder

SUMS = "SHA256SUMS"  # file of checksums, in the format of the program sha256sum
MAX_SUMS_BYTES = 64 * 2**20  # enough for about 500,000 files
RUN_FILES = ("run.json", "log.jsonl", "scores.jsonl", "diverged.json")
MODEL_FILES = ("model.json", "weights.safetensors")
STUDY_FILES = (RESULTS_FILE, "study.json")


def sha256(path: Path) -> str:
    """Return the SHA-256 digest of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def publish(folder: Path, out: Path, weights: bool = True) -> Path:
    """Copy the finished runs of a folder and their results table to a new folder, with checksums of all files.

    The new folder appears only when it is complete (see `new_folder`). An interrupted call can be repeated.

    Args:
        folder: A folder of runs. Unfinished runs are not copied.
        out: The folder to write. It must be empty or not exist.
        weights: Whether to copy the weights. Runs without weights can be analysed, but not loaded as models.

    Returns:
        The path of the file with the checksums.

    Raises:
        UserError: If `out` is not empty, `folder` has no finished runs, or a file cannot be written.
    """
    runs = [run for run in find_runs(folder) if run.status in ("done", "diverged")]
    if not runs:
        raise UserError(f"No finished runs in {folder}. Train runs first.")
    write_results(folder)
    names = [*RUN_FILES, *MODEL_FILES] if weights else list(RUN_FILES)
    with new_folder(out) as temporary:
        for run in runs:
            _copy_files(run.path, temporary / run.path.name, names)
        _copy_files(folder, temporary, STUDY_FILES)
        lines = [f"{sha256(temporary / name)}  {name}\n" for name in sorted(_list_files(temporary))]
        write_atomic(temporary / SUMS, "".join(lines).encode())
    return out / SUMS


def import_published(source: Path, folder: Path) -> int:
    """Check a published folder and copy its runs into a folder of runs.

    Nothing is copied unless all checksums are correct. Runs that already exist in the folder are not changed. No code
    that a run names is executed.

    Args:
        source: The published folder.
        folder: The folder of runs.

    Returns:
        The number of runs that were copied.

    Raises:
        UserError: If a file of `source` is missing, has changed, is not listed, or is not an ordinary file.
    """
    sums = check_published(source)
    new = [run.path.name for run in find_runs(source) if not (folder / run.path.name).exists()]
    for name in new:
        copy = folder / ".arriving" / name  # too deep for `find_runs`, so partly copied runs are not found
        shutil.rmtree(copy, ignore_errors=True)
        _copy_files(source / name, copy, [*RUN_FILES, *MODEL_FILES])
        _check_sums(
            copy, {file: digest for file in (*RUN_FILES, *MODEL_FILES) if (digest := sums.get(f"{name}/{file}"))}
        )
        copy.rename(folder / name)
    if not (folder / "study.json").exists():
        _copy_files(source, folder, ["study.json"])
    write_results(folder)
    return len(new)


def check_published(source: Path) -> dict[str, str]:
    """Check all checksums of a published folder.

    Returns:
        The checksum of each file, by its path relative to `source`.

    Raises:
        UserError: If a file is missing, has changed, is not listed, or is not an ordinary file.
    """
    present = set(_list_files(source)) if source.is_dir() else set()
    if SUMS not in present:
        raise UserError(f"{source} has no {SUMS}, so it cannot be checked. Publish the runs with: unbraid share export")
    listed = _read_sums(source / SUMS)
    for name in sorted(present - listed.keys() - {SUMS}):
        raise UserError(f"{source / name} is not listed in {SUMS}. Remove the file, or download the folder again.")
    for name in sorted(listed.keys() - present):
        raise UserError(f"{source / name} is listed in {SUMS}, but it is missing. Download the folder again.")
    _check_sums(source, listed)
    return listed


def _check_sums(folder: Path, sums: Mapping[str, str]) -> None:
    """Raise an error if a file in a folder does not have its checksum."""
    for name, digest in sums.items():
        if sha256(folder / name) != digest:
            raise UserError(f"{folder / name} does not match its checksum in {SUMS}. Download the folder again.")


def _read_sums(path: Path) -> dict[str, str]:
    """Read a file of checksums. Return the checksum of each file by its path."""
    if path.stat().st_size > MAX_SUMS_BYTES:
        raise UserError(f"{path} must have at most {MAX_SUMS_BYTES:,} bytes. Download the folder again.")
    try:
        listed = dict(line.split("  ", 1)[::-1] for line in path.read_text().splitlines())
    except ValueError as error:  # includes UnicodeDecodeError
        raise UserError(
            f"{path} is damaged. Each line must be a checksum, two spaces and a path. Got other text instead. Download "
            "the folder again."
        ) from error
    for name in listed:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise UserError(f"{path} must list files inside its folder. Got {name!r} instead. Do not use this folder.")
    return listed


def _list_files(folder: Path) -> Iterator[str]:
    """Yield the paths of all files in a folder and its subfolders, relative to the folder.

    Raises:
        UserError: If there is a symbolic link, a device, a pipe or a socket. A link could lead out of the folder, and a
            device or pipe could be endless.
    """
    remaining = [folder]
    while remaining:
        with os.scandir(remaining.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    remaining.append(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    yield Path(entry.path).relative_to(folder).as_posix()
                else:
                    raise UserError(
                        f"{entry.path} must be an ordinary file or folder. Got a link or a special file instead. "
                        f"{SUMS} lists ordinary files only. Remove the link or special file, or download the folder "
                        "again."
                    )


def _copy_files(source: Path, target: Path, names: Sequence[str]) -> None:
    """Copy the files called `names` from one folder to another. Files that do not exist are skipped."""
    make_folder(target)
    for name in names:
        if (source / name).exists():
            try:
                shutil.copyfile(source / name, target / name)
            except OSError as error:
                raise UserError(
                    f"Could not copy {source / name} to {target}: {error.strerror}. Free some space or choose another "
                    "folder, then repeat the command."
                ) from error
