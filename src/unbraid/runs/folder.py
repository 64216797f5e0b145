"""The folder of a run and its files.

``<folder>/<run id>/`` contains:

- `run.json`: a JSON object with `format` (1), `id` and `spec` (see `RunSpec.to_dict`). It also has the `versions` of
  libraries, the `commit` and the `machine` with which the run was started. On a GPU with kernels, `machine` names the
  GPU (`gpu`) and the source of its launch settings (`launch_settings`): "unbraid" for those that are part of unbraid,
  or the name and the digest of a file that `unbraid tune` wrote. If the method or the network is not part of unbraid,
  `own` records a digest of its source code (see `unbraid.runs.formats.OwnCode`). If the run was trained on data in
  memory, `data` is their fingerprint (see `unbraid.runs.run_data`). If they were read from the user's own files,
  `files` is a digest of their content.
- `checkpoint.safetensors`: while the run is being trained, its state at the last checkpoint. The metadata entry
  `unbraid` is a JSON object with `step`, `log`, `id` and `sha256`.
- `stack.json`: while the run is being trained on a GPU, the ids of the `runs` that are trained together with it as a
  stack, in the order of the stack. If training is resumed, it uses the same stack, because the rounding on a GPU
  depends on the number of runs. The file is optional.
- `weights.safetensors`: the trained parameters and buffers. The metadata entry `unbraid` has `step`, `id` and `sha256`.
  A run is finished when this file exists. A compact copy of a run (see `unbraid.zoo`) has weights in half precision.
  Its metadata also has `rounded` and `left_out` (see `unbraid.runs.formats.WeightsFacts`), and its checksum is that of
  the rounded weights.
- `log.jsonl`: one JSON object per logged step, with `step` and the value of each training term.
- `diverged.json`: a JSON object with the `step` at which the run diverged and the training `term` that was not finite.
  It exists only if the run diverged. The weights are then the last finite ones.
- `model.json`: the network of a model that was trained outside unbraid (see `unbraid.runs.adopted_model`). Such a run
  has no checkpoint and no log.
- `scores.jsonl`: the scores of the run (see `unbraid.runs.scores`).

The folder may also contain pictures and event files for TensorBoard.

Every file is written atomically: a reader sees either the old or the new content. No file uses pickle, and opening a
run folder never imports code that the run folder refers to. Folders can be copied, merged and moved with ordinary
tools.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from torch import Tensor

from unbraid.errors import UserError
from unbraid.runs import formats
from unbraid.runs.adopted_spec import AdoptedSpec, read_spec
from unbraid.runs.formats import FORMAT, RETRAIN, OwnCode
from unbraid.runs.sources import changed_sources
from unbraid.runs.spec import RunSpec
from unbraid.runs.stored_method import method_facts
from unbraid.runs.tensor_files import RESTORE, read_tensors, write_tensors
from unbraid.runtime import provenance
from unbraid.runtime.files import make_folder, remove_temporary_files, write_atomic, write_jsonl
from unbraid.runtime.importing import file_of
from unbraid.runtime.schema import WrongContentError, check, read_json, read_jsonl

Status = Literal["new", "partial", "done", "diverged"]
Log = list[dict[str, float]]
T = TypeVar("T")
MAX_STACK = 256  # maximum number of runs in a stack
DELETE_STACK = "Delete this file. The training is then resumed in a new stack, with other rounding on a GPU."


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run.

    Attributes:
        path: The path of the folder.
        spec: The spec of the run. A method of the user's own may be a `StoredMethod`, which is not imported.
        own: What is recorded about a method or a network of the user's own.
        data: The fingerprint of the data, if they were passed as arrays.
        files: The digest of the data, if they were read from the user's own files.
    """

    path: Path
    spec: RunSpec
    own: OwnCode = OwnCode()
    data: str | None = None
    files: str | None = None

    @classmethod
    def create(
        cls,
        folder: Path,
        spec: RunSpec,
        sources: Mapping[str, str] = {},
        *,
        retrain: bool = False,
        data: str | None = None,
        files: str | None = None,
        gpu: Mapping[str, str] = {},
    ) -> RunFolder:
        """Return the run folder of a spec inside `folder`. Create it, with `run.json`, if it does not exist.

        Args:
            folder: The folder of the runs.
            spec: The spec of the run.
            sources: Digests of the source code of the user's own method and network (see `unbraid.runs.sources`).
            retrain: Whether to delete a run that was started with other source code or on other data, and to create it
                again.
            data: The fingerprint of the data, if they were passed as arrays.
            files: The digest of the data, if they were read from the user's own files. If it has changed, and `retrain`
                is not true, the run is kept. The caller must warn the user.
            gpu: The name of the GPU and the source of its launch settings, for the provenance in `run.json`.

        Raises:
            UserError: If the folder exists and contains another run or, unless `retrain` is true, a run that was
                started with other source code or on other data.
        """
        path = folder / spec.id
        make_folder(path)
        remove_temporary_files(path)
        if (path / "run.json").exists():
            present = cls.open(path)
            problem = present.difference(spec, sources, data)
            if problem and not retrain:
                raise UserError(problem)
            changed = None not in (present.files, files) and present.files != files
            if not problem and not (changed and retrain):
                return cls(path, spec, present.own, present.data, present.files)
            delete_run(path)
            make_folder(path)
        code = {name: str(file) for name in sources if (file := file_of(name)) is not None}
        recorded = bool(sources) or isinstance(spec, AdoptedSpec)
        own = OwnCode(dict(sources), **method_facts(spec.method), files=code) if recorded else OwnCode()
        origin = {
            "versions": provenance.library_versions(),
            "commit": provenance.git_commit(),
            "machine": {**provenance.machine_info(), **gpu},
        }
        content = {"format": FORMAT, "id": spec.id, "spec": spec.to_dict(), **origin}
        if recorded:
            content["own"] = {key: value for key, value in dataclasses.asdict(own).items() if key != "files" or value}
        if data is not None:
            content["data"] = data
        if files is not None:
            content["files"] = files
        write_atomic(path / "run.json", json.dumps(content, indent=1).encode())
        return cls(path, spec, own, data, files)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open an existing run folder. No code that the run folder refers to is imported.

        Raises:
            UserError: If `run.json` is damaged or was edited.
        """
        file = path / "run.json"
        number = read_json(file, formats.AnyFormat, RETRAIN).format
        if number != FORMAT:
            raise UserError(
                f"{path} has run format {number!r}, but this release of unbraid reads format {FORMAT}. Update unbraid."
            )
        content = read_json(file, formats.RunFile, RETRAIN)
        try:
            spec = read_spec(content.spec, content.own.facts())
        except (TypeError, ValueError) as error:
            raise UserError(f"{file} does not contain a run that can be read: {error} {RETRAIN}") from error
        if spec.id != content.id:
            raise UserError(
                f"{file} has been edited: its spec is that of the run {spec.id}, but its id is {content.id}. The id "
                f"of a run is a hash of its spec. {RETRAIN}"
            )
        return cls(path, spec, content.own, content.data, content.files)

    def difference(self, spec: RunSpec, sources: Mapping[str, str], data: str | None) -> str:
        """Return a message if this run was started with other source code or on other data, or else an empty string.

        Args:
            spec: The spec that the run must have.
            sources: Digests of the current source code of the user's own method and network.
            data: The fingerprint of the current data, if they were passed as arrays.

        Raises:
            UserError: If the folder contains the run of another spec.
        """
        if self.spec.id != spec.id:
            raise UserError(
                f"{self.path} must contain the run {spec.id}. Got the run {self.spec.id} instead. {RETRAIN}"
            )
        if None not in (self.data, data) and self.data != data:
            return (
                f"The run {self.path} was trained on other data that are also called {spec.data!r}. Give your data "
                "another name (name=), choose another output folder, or pass retrain=True to delete the old run."
            )
        if changed := changed_sources(self.own.sources, sources):
            return (
                f"The source code of {changed[0]} has changed since the run {self.path} was started, so the run "
                "belongs to the old code. To train the run again with the new code, pass --retrain (retrain=True) or "
                "delete its folder. To keep the run, choose another output folder or give the changed code another "
                "name."
            )
        return ""

    @property
    def status(self) -> Status:
        """The status of the run, determined by which files exist.

        It is "new" (no training has been saved), "partial" (there is a checkpoint), "done" or "diverged".
        """
        weights = self.path / "weights.safetensors"
        if weights.exists() or weights.is_symlink():  # a link that leads nowhere is an error when the file is read
            return "diverged" if (self.path / "diverged.json").exists() else "done"
        return "partial" if (self.path / "checkpoint.safetensors").exists() else "new"

    def write_checkpoint(self, step: int, state: dict[str, Tensor], log: Log) -> None:
        """Write the training state at `step` and the log to one file, from which training can be resumed."""
        facts = {"step": step, "log": log, "id": self.spec.id}
        write_tensors(self.path / "checkpoint.safetensors", state, facts)

    def write_stack(self, runs: list[str]) -> None:
        """Record the ids of the runs of the stack in which this run is trained."""
        if self.read_stack() != runs:
            write_atomic(self.path / "stack.json", json.dumps({"runs": runs}).encode())

    def read_stack(self) -> list[str] | None:
        """Return the ids of the runs of the stack in which this run was trained, or None if they are not recorded.

        Raises:
            UserError: If `stack.json` is damaged.
        """
        file = self.path / "stack.json"
        if not file.exists():
            return None
        runs = read_json(file, formats.StackFile, DELETE_STACK).runs
        if self.spec.id not in runs or len(set(runs)) != len(runs) or len(runs) > MAX_STACK:
            raise UserError(
                f"{file} is damaged. It must list at most {MAX_STACK} different runs, one of which is {self.spec.id}. "
                f"{DELETE_STACK}"
            )
        return runs

    def checkpoint_step(self) -> int:
        """Return the step of the last checkpoint."""
        file = self.path / "checkpoint.safetensors"
        return self._checkpoint_facts(read_tensors(file, names=[])[1]).step

    def read_checkpoint(self) -> tuple[dict[str, Tensor], Log]:
        """Return the training state and the log of the last checkpoint."""
        state, metadata = read_tensors(self.path / "checkpoint.safetensors")
        return state, self._checkpoint_facts(metadata).log

    def _checkpoint_facts(self, metadata: Any) -> formats.CheckpointFacts:
        """Return the metadata of the checkpoint. Raise a UserError if it is not a checkpoint of this run."""
        file = self.path / "checkpoint.safetensors"
        facts = _check_metadata(file, formats.CheckpointFacts, metadata)
        self._check_owner(file, facts.id)
        if not 0 <= facts.step <= self.spec.steps:
            raise UserError(
                f"{file} must have a step from 0 to {self.spec.steps}, which is the number of steps of the run. Got "
                f"{facts.step} instead. {RESTORE}"
            )
        return facts

    def _check_owner(self, file: Path, owner: str | None) -> None:
        """Raise a UserError if a file belongs to another run. For checkpoints of release 0.1, `owner` is None."""
        if owner not in (None, self.spec.id):
            raise UserError(f"{file} belongs to the run {owner} and not to the run {self.spec.id}. {RESTORE}")

    def finish(self, step: int, weights: dict[str, Tensor], log: Log, diverged: dict[str, Any] | None = None) -> None:
        """Write the log and the weights, then delete the checkpoint and the record of the stack.

        The weights are written last because a run is considered finished when they exist.
        """
        write_jsonl(self.path / "log.jsonl", log)
        if diverged:
            write_atomic(self.path / "diverged.json", json.dumps(diverged).encode())
        else:
            (self.path / "diverged.json").unlink(missing_ok=True)  # left by an earlier attempt that was killed
        write_tensors(self.path / "weights.safetensors", weights, {"step": step, "id": self.spec.id})
        (self.path / "checkpoint.safetensors").unlink(missing_ok=True)
        (self.path / "stack.json").unlink(missing_ok=True)

    def weights(self) -> dict[str, Tensor]:
        """Return the trained parameters and buffers by name."""
        file = self.path / "weights.safetensors"
        weights, metadata = read_tensors(file)
        self._check_owner(file, _check_metadata(file, formats.WeightsFacts, metadata).id)
        return weights

    def check_weights(self) -> formats.WeightsFacts:
        """Return the metadata of the weights. Raise a UserError if they are not valid, or belong to another run.

        Only the header of the file is read, so this is fast. Damage in the rest of the file is not detected.
        """
        file = self.path / "weights.safetensors"
        facts = _check_metadata(file, formats.WeightsFacts, read_tensors(file, names=[])[1])
        self._check_owner(file, facts.id)
        return facts

    def divergence(self) -> dict[str, Any] | None:
        """Return the content of `diverged.json` (`step` and `term`), or None if the run did not diverge."""
        file = self.path / "diverged.json"
        return dataclasses.asdict(read_json(file, formats.DivergedFile, RETRAIN)) if file.exists() else None

    def read_log(self) -> Log:
        """Return the log of a finished run, or an empty list if there is no log."""
        return read_jsonl(self.path / "log.jsonl", dict[str, float], formats.LogLine, remedy=RETRAIN)


def _check_metadata(file: Path, kind: type[T], metadata: Any) -> T:
    """Return the metadata of a file of tensors as an instance of a class of `formats`, or raise a UserError."""
    try:
        facts: T = check(kind, metadata)
    except WrongContentError as error:
        raise UserError(f"{file} is damaged. {error} {RESTORE}") from error
    return facts


def delete_run(path: Path) -> None:
    """Delete the folder of a run. It is first moved, so that an interrupted deletion does not leave a part of a run."""
    trash = path.parent / ".replaced" / path.name  # `find_runs` does not search at this depth
    shutil.rmtree(trash, ignore_errors=True)
    make_folder(trash.parent)
    path.rename(trash)
    shutil.rmtree(trash.parent, ignore_errors=True)


def contains_runs(folder: Path) -> bool:
    """Return whether `find_runs` finds at least one run in a folder."""
    return (folder / "run.json").exists() or any(folder.glob("*/run.json"))


def find_runs(folder: Path) -> list[RunFolder]:
    """Return the runs in a folder, sorted by their specs. If `folder` is a run folder itself, return only that run.

    Raises:
        UserError: If a `run.json` is damaged, or if the folder of a run does not have the id of the run as its name. A
            copied folder would otherwise be counted as a second run.
    """
    if (folder / "run.json").exists():
        return [RunFolder.open(folder)]
    runs = [RunFolder.open(file.parent) for file in folder.glob("*/run.json")]
    for run in runs:
        if run.path.name != run.spec.id:
            raise UserError(
                f"{run.path} contains the run {run.spec.id}, so the folder must have the name {run.spec.id}. Rename "
                "the folder, or move it to another place if it is a copy of that run."
            )
    return sorted(runs, key=lambda run: run.spec.sort_key())
