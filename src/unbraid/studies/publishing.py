"""Publishing a study as a folder with checksums, and importing a published folder."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from unbraid.errors import UserError
from unbraid.runs.folder import find_runs
from unbraid.runs.results import RESULTS_FILE, write_results
from unbraid.runtime.files import make_folder, write_atomic

SUMS = "SHA256SUMS"  # file of checksums, in the format of the program sha256sum
RUN_FILES = ("run.json", "log.jsonl", "scores.jsonl", "diverged.json")
WEIGHTS = "weights.safetensors"
STUDY_FILES = (RESULTS_FILE, "study.json")


def sha256(path: Path) -> str:
    """Return the SHA-256 digest of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def publish(folder: Path, out: Path, weights: bool = True) -> Path:
    """Copy the finished runs of a folder and their results table to a new folder, with checksums of all files.

    Args:
        folder: A folder of runs. Unfinished runs are not copied.
        out: The folder to write. It must be empty or not exist.
        weights: Whether to copy the weights. Runs without weights can be analysed, but not loaded as models.

    Returns:
        The path of the file with the checksums.

    Raises:
        UserError: If `out` is not empty or `folder` has no finished runs.
    """
    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out} must be empty or new. Got a folder with files instead. Choose another folder.")
    runs = [run for run in find_runs(folder) if run.status in ("done", "diverged")]
    if not runs:
        raise UserError(f"No finished runs in {folder}. Train runs first.")
    write_results(folder)
    names = [*RUN_FILES, WEIGHTS] if weights else list(RUN_FILES)
    for run in runs:
        _copy_files(run.path, out / run.path.name, names)
    _copy_files(folder, out, STUDY_FILES)
    lines = [f"{sha256(path)}  {path.relative_to(out).as_posix()}\n" for path in sorted(_list_files(out))]
    write_atomic(out / SUMS, "".join(lines).encode())
    return out / SUMS


def import_published(source: Path, folder: Path) -> int:
    """Check a published folder and copy its runs into a folder of runs.

    Nothing is copied unless all checksums are correct. Runs that already exist in the folder are not changed.

    Args:
        source: The published folder.
        folder: The folder of runs.

    Returns:
        The number of runs that were copied.

    Raises:
        UserError: If a file of `source` is missing, has changed, or is not listed.
    """
    check_published(source)
    new = [run for run in find_runs(source) if not (folder / run.path.name).exists()]
    for run in new:
        copy = folder / ".arriving" / run.path.name  # too deep for `find_runs`, so partly copied runs are not found
        shutil.rmtree(copy, ignore_errors=True)
        _copy_files(run.path, copy, [*RUN_FILES, WEIGHTS])
        copy.rename(folder / run.path.name)
    if not (folder / "study.json").exists():
        _copy_files(source, folder, ["study.json"])
    write_results(folder)
    return len(new)


def check_published(source: Path) -> None:
    """Check all checksums of a published folder.

    Raises:
        UserError: If a file is missing, has changed, or is not listed.
    """
    sums = source / SUMS
    if not sums.is_file():
        raise UserError(f"{source} has no {SUMS}, so it cannot be checked. Publish the runs with: unbraid share export")
    try:
        listed = dict(line.split("  ", 1)[::-1] for line in sums.read_text().splitlines())
    except ValueError as error:  # includes UnicodeDecodeError
        raise UserError(f"{sums} is damaged: {error}. Download the folder again.") from error
    present = {path.relative_to(source).as_posix() for path in _list_files(source)} - {SUMS}
    for name in sorted(present | listed.keys()):
        if name not in listed or ".." in Path(name).parts or Path(name).is_absolute():
            raise UserError(f"{source / name} is not listed in {SUMS}. Remove the file, or download the folder again.")
        if name not in present or sha256(source / name) != listed[name]:
            raise UserError(
                f"{source / name} is missing or does not match its checksum in {SUMS}. Download the folder again."
            )


def _list_files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _copy_files(source: Path, target: Path, names: Sequence[str]) -> None:
    make_folder(target)
    for name in names:
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)
