"""Run directories: plain files that are the truth about a run, each written whole or not at all.

``<folder>/<run id>/`` holds `run.json` (spec, versions, commit, machine), `log.jsonl`, and one of `weights.safetensors`
(done), `checkpoint.safetensors` (on the way) or `diverged.json` with the last finite weights; `scores.jsonl` and
pictures come later. No pickle anywhere; a folder can be copied, merged and moved with ordinary tools.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import safetensors
import safetensors.torch
from torch import Tensor

from unbraid.runtime import provenance
from unbraid.errors import UserError
from unbraid.runtime.files import make_folder, read_lines, sweep_temporaries, write_atomic, write_lines
from unbraid.runs.spec import RunSpec

FORMAT = 1
Status = Literal["new", "partial", "done", "diverged"]
Log = list[dict[str, float]]


@dataclass(frozen=True)
class RunDir:
    """One run's folder."""

    path: Path
    spec: RunSpec

    @classmethod
    def create(cls, folder: Path, spec: RunSpec) -> RunDir:
        """The folder of a spec, made if it is not there; an existing one is only looked at."""
        run = cls(folder / spec.id, spec)
        make_folder(run.path)
        sweep_temporaries(run.path)
        if not (run.path / "run.json").exists():
            facts = {"versions": provenance.versions(), "commit": provenance.commit(), "machine": provenance.machine()}
            content = {"format": FORMAT, "id": spec.id, "spec": spec.to_dict(), **facts}
            write_atomic(run.path / "run.json", json.dumps(content, indent=1).encode())
        return run

    @classmethod
    def open(cls, path: Path) -> RunDir:
        """Read a run folder; damage is named, not repaired."""
        content = read_json(path / "run.json")
        if content.get("format") != FORMAT:
            raise UserError(
                f"{path} has run format {content.get('format')!r}; this release reads {FORMAT}. Update unbraid."
            )
        try:
            spec = RunSpec.from_dict(content["spec"])
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{path / 'run.json'} does not hold a run that can be read here: {error} If it names code of your own, "
                "put that on the path; if it is damaged, delete the folder to train the run anew."
            ) from error
        return cls(path, spec)

    @property
    def status(self) -> Status:
        """How far the run is, from which files exist."""
        if (self.path / "weights.safetensors").exists():
            return "diverged" if (self.path / "diverged.json").exists() else "done"
        return "partial" if (self.path / "checkpoint.safetensors").exists() else "new"

    def write_checkpoint(self, step: int, state: dict[str, Tensor], log: Log) -> None:
        """Everything to go on from `step`, log included, in one file."""
        write_tensors(self.path / "checkpoint.safetensors", state, {"step": step, "log": log})

    def checkpoint_step(self) -> int:
        """The step of the last checkpoint."""
        return int(read_tensors(self.path / "checkpoint.safetensors", names=[])[1]["step"])

    def read_checkpoint(self) -> tuple[dict[str, Tensor], Log]:
        """The state and the log of the last checkpoint."""
        state, facts = read_tensors(self.path / "checkpoint.safetensors")
        return state, facts["log"]

    def finish(self, step: int, weights: dict[str, Tensor], log: Log, diverged: dict[str, Any] | None = None) -> None:
        """Write the log and the weights, then drop the checkpoint; a run is done when its weights are there."""
        write_lines(self.path / "log.jsonl", log)
        if diverged:
            write_atomic(self.path / "diverged.json", json.dumps(diverged).encode())
        else:
            (self.path / "diverged.json").unlink(missing_ok=True)  # of an earlier try that was killed before its end
        write_tensors(self.path / "weights.safetensors", weights, {"step": step, "id": self.spec.id})
        (self.path / "checkpoint.safetensors").unlink(missing_ok=True)

    def weights(self) -> dict[str, Tensor]:
        """The trained parameters and buffers by name."""
        return read_tensors(self.path / "weights.safetensors")[0]

    def divergence(self) -> dict[str, Any] | None:
        """Step and term of a run that was set aside."""
        file = self.path / "diverged.json"
        return read_json(file) if file.exists() else None

    def read_log(self) -> Log:
        """The log of a finished run, empty if there is none."""
        return read_lines(self.path / "log.jsonl")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or an error that names the file."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}. Delete its folder to train the run anew.") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} must hold a JSON object. Delete its folder to train the run anew.")
    return content


def write_tensors(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """A safetensors file, atomically; the facts are one JSON entry, so that equal content gives equal bytes."""
    write_atomic(path, safetensors.torch.save(tensors, {"unbraid": json.dumps(facts)}))


def read_tensors(path: Path, names: list[str] | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors (all, or the named) and facts of a safetensors file; a truncated or foreign one is refused."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            wanted = list(file.keys()) if names is None else names
            facts = json.loads(file.metadata()["unbraid"])
            return {name: file.get_tensor(name) for name in wanted}, facts
    except (OSError, KeyError, TypeError, ValueError, safetensors.SafetensorError) as error:
        raise UserError(
            f"{path} is damaged or incomplete ({error}). Delete that file to train the run again from step 0, "
            "or put back a whole copy."
        ) from error


def find_runs(folder: Path) -> list[RunDir]:
    """The runs in a folder (or the folder itself, if it is one), by their spec."""
    if (folder / "run.json").exists():
        return [RunDir.open(folder)]
    runs = [RunDir.open(file.parent) for file in folder.glob("*/run.json")]
    return sorted(runs, key=lambda run: run.spec.sort_key())
