"""A study as one folder that others can check and use: runs, scores, weights and the results table, with checksums."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from unbraid.errors import UserError
from unbraid.runs.folder import find_runs
from unbraid.runs.results import NAME, index
from unbraid.runtime.files import make_folder, write_atomic

SUMS = "SHA256SUMS"  # as sha256sum writes and checks it
KEPT = ("run.json", "log.jsonl", "scores.jsonl", "diverged.json")
WEIGHTS = "weights.safetensors"
BESIDE = (NAME, "study.json")


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def publish(folder: Path, out: Path, weights: bool = True) -> Path:
    """Copy the finished runs of a folder, with or without weights, and write their checksums; their path is returned.

    A run without its weights can be read and analysed, not loaded. Runs under way are left out.
    """
    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out} must be empty or new. Got a folder with files. Choose another one.")
    runs = [run for run in find_runs(folder) if run.status in ("done", "diverged")]
    if not runs:
        raise UserError(f"No finished runs in {folder}. Train some first.")
    index(folder)
    wanted = [*KEPT, WEIGHTS] if weights else list(KEPT)
    for run in runs:
        _copy(run.path, out / run.path.name, wanted)
    _copy(folder, out, BESIDE)
    lines = [f"{digest(path)}  {path.relative_to(out).as_posix()}\n" for path in sorted(_files(out))]
    write_atomic(out / SUMS, "".join(lines).encode())
    return out / SUMS


def adopt(source: Path, folder: Path) -> int:
    """Check a published folder and copy its runs into a folder of runs; how many were new is returned.

    Nothing is copied unless every file is as its checksum says. Runs already there stay as they are.
    """
    check(source)
    new = [run for run in find_runs(source) if not (folder / run.path.name).exists()]
    for run in new:
        made = folder / ".arriving" / run.path.name  # deeper than runs are looked for
        shutil.rmtree(made, ignore_errors=True)
        _copy(run.path, made, [*KEPT, WEIGHTS])
        made.rename(folder / run.path.name)
    if not (folder / "study.json").exists():
        _copy(source, folder, ["study.json"])
    index(folder)
    return len(new)


def check(source: Path) -> None:
    """Refuse a folder in which a file is missing, changed or not listed."""
    sums = source / SUMS
    if not sums.is_file():
        raise UserError(f"{source} has no {SUMS}, so it cannot be checked. Publish it with: unbraid share export.")
    listed = dict(line.split("  ", 1)[::-1] for line in sums.read_text().splitlines())
    present = {path.relative_to(source).as_posix() for path in _files(source)} - {SUMS}
    for name in sorted(present | listed.keys()):
        if name not in listed or ".." in Path(name).parts or Path(name).is_absolute():
            raise UserError(f"{source / name} is not in {SUMS}. Take it away, or get the folder anew.")
        if name not in present or digest(source / name) != listed[name]:
            raise UserError(f"{source / name} is missing or not what {SUMS} says. Get the folder anew.")


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _copy(source: Path, target: Path, names: tuple[str, ...] | list[str]) -> None:
    make_folder(target)
    for name in names:
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)
