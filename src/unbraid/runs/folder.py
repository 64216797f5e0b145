"""The folder of a run and its files.

``<folder>/<run id>/`` contains:

- `run.json`: a JSON object with `format` (1), `id`, `spec` (see `RunSpec.to_dict`), and the `versions` of libraries,
  the `commit` and the `machine` with which the run was started.
- `checkpoint.safetensors`: while the run is being trained, its state at the last checkpoint. The metadata entry
  `unbraid` is a JSON object with `step` and `log`.
- `weights.safetensors`: the trained parameters and buffers. The metadata entry `unbraid` has `step` and `id`. A run is
  finished when this file exists.
- `log.jsonl`: one JSON object per logged step, with `step` and the value of each training term.
- `diverged.json`: a JSON object with the `step` at which the run diverged and the training `term` that was not finite.
  It exists only if the run diverged. The weights are then the last finite ones.
- `scores.jsonl`: the scores of the run (see `unbraid.runs.scores`).

The folder may also contain pictures and event files for TensorBoard.

Every file is written atomically: a reader sees either the old or the new content. No file uses pickle. Folders can be
copied, merged and moved with ordinary tools.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import safetensors
import safetensors.torch
from torch import Tensor

from unbraid.errors import UserError
from unbraid.runs.spec import RunSpec
from unbraid.runtime import provenance
from unbraid.runtime.files import make_folder, read_jsonl, remove_temporary_files, write_atomic, write_jsonl

FORMAT = 1
Status = Literal["new", "partial", "done", "diverged"]
Log = list[dict[str, float]]


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run: its path and its spec."""

    path: Path
    spec: RunSpec

    @classmethod
    def create(cls, folder: Path, spec: RunSpec) -> RunFolder:
        """Return the run folder of a spec inside `folder`. Create it, with `run.json`, if it does not exist."""
        run = cls(folder / spec.id, spec)
        make_folder(run.path)
        remove_temporary_files(run.path)
        if not (run.path / "run.json").exists():
            origin = {
                "versions": provenance.library_versions(),
                "commit": provenance.git_commit(),
                "machine": provenance.machine_info(),
            }
            content = {"format": FORMAT, "id": spec.id, "spec": spec.to_dict(), **origin}
            write_atomic(run.path / "run.json", json.dumps(content, indent=1).encode())
        return run

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open an existing run folder. Raise a UserError that names the file if `run.json` is damaged."""
        content = read_json(path / "run.json")
        if content.get("format") != FORMAT:
            raise UserError(
                f"{path} has run format {content.get('format')!r}, but this release of unbraid reads format {FORMAT}. "
                "Update unbraid."
            )
        try:
            spec = RunSpec.from_dict(content["spec"])
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{path / 'run.json'} does not contain a run that can be read: {error} If the run uses your own "
                "code, put that code on the Python path. If the file is damaged, delete the folder and train again."
            ) from error
        return cls(path, spec)

    @property
    def status(self) -> Status:
        """The status of the run, determined by which files exist.

        It is "new" (no training has been saved), "partial" (there is a checkpoint), "done" or "diverged".
        """
        if (self.path / "weights.safetensors").exists():
            return "diverged" if (self.path / "diverged.json").exists() else "done"
        return "partial" if (self.path / "checkpoint.safetensors").exists() else "new"

    def write_checkpoint(self, step: int, state: dict[str, Tensor], log: Log) -> None:
        """Write the training state at `step` and the log to one file, from which training can be resumed."""
        write_tensors(self.path / "checkpoint.safetensors", state, {"step": step, "log": log})

    def checkpoint_step(self) -> int:
        """Return the step of the last checkpoint."""
        return int(read_tensors(self.path / "checkpoint.safetensors", names=[])[1]["step"])

    def read_checkpoint(self) -> tuple[dict[str, Tensor], Log]:
        """Return the training state and the log of the last checkpoint."""
        state, metadata = read_tensors(self.path / "checkpoint.safetensors")
        return state, metadata["log"]

    def finish(self, step: int, weights: dict[str, Tensor], log: Log, diverged: dict[str, Any] | None = None) -> None:
        """Write the log and the weights, then delete the checkpoint.

        The weights are written last because a run is considered finished when they exist.
        """
        write_jsonl(self.path / "log.jsonl", log)
        if diverged:
            write_atomic(self.path / "diverged.json", json.dumps(diverged).encode())
        else:
            (self.path / "diverged.json").unlink(missing_ok=True)  # left by an earlier attempt that was killed
        write_tensors(self.path / "weights.safetensors", weights, {"step": step, "id": self.spec.id})
        (self.path / "checkpoint.safetensors").unlink(missing_ok=True)

    def weights(self) -> dict[str, Tensor]:
        """Read the trained parameters and buffers. Return them by name."""
        return read_tensors(self.path / "weights.safetensors")[0]

    def divergence(self) -> dict[str, Any] | None:
        """Return the content of `diverged.json` (`step` and `term`), or None if the run did not diverge."""
        file = self.path / "diverged.json"
        return read_json(file) if file.exists() else None

    def read_log(self) -> Log:
        """Return the log of a finished run, or an empty list if there is no log."""
        return read_jsonl(self.path / "log.jsonl")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raise a UserError that names the file if it cannot be read."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}. Delete its folder and train the run again.") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} must contain a JSON object. Delete its folder and train the run again.")
    return content


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
    """Write a safetensors file atomically.

    `metadata` is stored as JSON in the single metadata entry `unbraid`. If there were several entries, their order in
    the file could vary. With a single entry, equal content always gives equal bytes.
    """
    write_atomic(path, safetensors.torch.save(tensors, {"unbraid": json.dumps(metadata)}))


def read_tensors(path: Path, names: list[str] | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors (all of them, or those in `names`) and the metadata of a file written by `write_tensors`.

    Raise a UserError if the file is damaged or was not written by `write_tensors`.
    """
    try:
        with safetensors.safe_open(path, "pt") as file:
            wanted = list(file.keys()) if names is None else names
            metadata = json.loads(file.metadata()["unbraid"])
            return {name: file.get_tensor(name) for name in wanted}, metadata
    except (OSError, KeyError, TypeError, ValueError, safetensors.SafetensorError) as error:
        raise UserError(
            f"{path} is damaged or incomplete ({error}). Delete the file to train the run again from step 0, "
            "or restore the file from a copy."
        ) from error


def find_runs(folder: Path) -> list[RunFolder]:
    """Return the runs in a folder, sorted by their specs. If `folder` is a run folder itself, return only that run."""
    if (folder / "run.json").exists():
        return [RunFolder.open(folder)]
    runs = [RunFolder.open(file.parent) for file in folder.glob("*/run.json")]
    return sorted(runs, key=lambda run: run.spec.sort_key())
