"""The data of a run: passed by the user, saved beside the runs, or loaded by the name in the spec.

Data that were passed as arrays have no file that their name refers to. ``train(..., save_data=True)`` therefore writes
them to ``<folder of the runs>/data/<fingerprint>.safetensors``. The file has the tensors `examples` and `labels`. If
a factor is continuous or a label is missing, it also has `exact`, the factor values as floating-point numbers. Its
metadata are described by `SavedData`. `run.json` records the fingerprint of data in memory as `data`, and a digest of
data that were read from the user's own files as `files`, so that changes of these files are noticed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from unbraid.data import DATASETS, is_path
from unbraid.data.dataset import FactorData
from unbraid.data.loading import DataLike, load_data
from unbraid.data.options import split_name
from unbraid.data.own.arrays import OwnData, assemble_data
from unbraid.data.own.label_table import Labels
from unbraid.errors import UserError, warn_user
from unbraid.label_kinds import without_announcements
from unbraid.runs.tensor_files import read_tensors, write_tensors
from unbraid.runtime.files import expand_user, make_folder
from unbraid.runtime.read_errors import read_reason
from unbraid.runtime.schema import WrongContentError, check

if TYPE_CHECKING:
    from unbraid.runs.folder import RunFolder
    from unbraid.runs.run import Run

FOLDER = "data"
MAX_BYTES = 2 * 1024**3  # maximum size of data that can be saved
DIGEST_EXAMPLES = 1000  # number of examples that `files_digest` reads
REMEDY = "Restore the file from a copy, or pass the data as data=."


@dataclass(frozen=True)
class SavedData:
    """The metadata of a file of data.

    Attributes:
        name: The name of the data.
        values: The original values of each factor (see `OwnData`).
        continuous: The names of the continuous factors.
    """

    name: str
    values: dict[str, list[Any]]
    continuous: list[str]


def memory_fingerprint(data: FactorData) -> str | None:
    """Return the fingerprint of data that were passed as arrays, or None for data that can be loaded by name."""
    return data.fingerprint if isinstance(data, OwnData) and data.in_memory else None


def files_digest(data: FactorData) -> str | None:
    """Return a digest of the content of data from the user's own files, or None for other data.

    It does not depend on the path of the files or on the times at which they were written. Only some of the examples of
    a large dataset are read. The digest therefore changes if examples are added, removed or labelled anew, but not
    always if single examples of a large dataset are replaced.
    """
    parts = []
    while hasattr(data, "base"):
        parts.append(getattr(data, "digest", ""))
        data = data.base
    if not isinstance(data, OwnData) or data.in_memory:
        parts.append(getattr(data, "digest", ""))
        return "+".join(filter(None, parts)) or None
    rows = torch.linspace(0, len(data) - 1, min(len(data), DIGEST_EXAMPLES), device=data.device).round().long()
    digest = hashlib.sha256(f"{parts} {len(data)} {data.shape} {data.values} {data.continuous}".encode())
    digest.update(data.images(rows).cpu().contiguous().numpy().data)
    digest.update(data.factor_values(slice(None)).cpu().contiguous().numpy().data)
    return digest.hexdigest()[:16]


def warn_about_changed_files(folder: RunFolder, digest: str | None) -> None:
    """Warn if the files of a run's data have changed since it was started. `digest` is that of the present data."""
    if None not in (folder.files, digest) and folder.files != digest:
        warn_user(
            f"The data {folder.spec.data} have changed since runs in {folder.path.parent} were started. What is "
            "computed now uses the changed data. Restore the data, or train the runs again (--retrain, retrain=True), "
            "unless only labels have changed that the training does not use."
        )


def can_be_loaded(name: str) -> bool:
    """Return whether the name of a dataset is in the registry or looks like a path."""
    plain_name, _ = split_name(name)
    return plain_name in DATASETS or is_path(plain_name)


def check_data_to_save(data: FactorData, out: object) -> None:
    """Raise a UserError if data cannot be saved beside runs."""
    if out is None:
        raise UserError("save_data=True needs a folder for the runs. Got none. Pass one with out=.")
    if memory_fingerprint(data) is None:
        raise UserError(
            f"save_data=True is for data in memory, from arrays or a torch Dataset. {data.name} can be loaded by its "
            "name. Leave out save_data=True."
        )
    if data.table.nbytes > MAX_BYTES:
        raise UserError(
            f"Data that are saved with runs must have at most {MAX_BYTES / 1e9:.1f} GB. Got "
            f"{data.table.nbytes / 1e9:.1f} GB instead. Store them yourself with np.save or np.savez, and train on the "
            "path of the file."
        )


def save_data(folder: Path, data: OwnData) -> Path:
    """Write data to the folder of runs, if they are not there yet. Return the path of the file."""
    path = folder / FOLDER / f"{data.fingerprint}.safetensors"
    if path.exists():
        return path
    everything = slice(None)
    tensors = {"examples": data.table.cpu().contiguous(), "labels": data.factors(everything).cpu().contiguous()}
    if data.continuous or data.missing_labels:
        tensors["exact"] = data.factor_values(everything).cpu().contiguous()
    make_folder(path.parent)
    write_tensors(path, tensors, asdict(SavedData(data.name, data.values, list(data.continuous))))
    return path


def read_saved_data(path: Path) -> OwnData:
    """Read a file that `save_data` wrote.

    Raises:
        UserError: If the file is too large or damaged, or if the fingerprint of its data is not the one in its name.
    """
    if path.stat().st_size > MAX_BYTES + 2**28:
        raise UserError(f"{path} must have at most {MAX_BYTES / 1e9:.1f} GB. Got a larger file. {REMEDY}")
    tensors, metadata = read_tensors(path)
    try:
        facts: SavedData = check(SavedData, metadata)
        data = _assemble(facts, tensors)
    except (KeyError, IndexError, RuntimeError, TypeError, ValueError, WrongContentError) as error:
        raise UserError(f"{path} does not contain data that can be read: {read_reason(error)}. {REMEDY}") from error
    if data.fingerprint != path.stem:
        raise UserError(f"{path} must contain the data {path.stem}. Got {data.fingerprint} instead. {REMEDY}")
    return data


def _assemble(facts: SavedData, tensors: dict[str, Tensor]) -> OwnData:
    """Make a dataset from the content of a file. Raise an error if its parts do not fit together."""
    examples, labels, exact = tensors["examples"], tensors["labels"], tensors.get("exact")
    n, k = len(examples), len(facts.values)
    sizes = torch.tensor([len(values) for values in facts.values.values()], dtype=torch.int64)
    if (examples.dtype, examples.ndim) not in ((torch.uint8, 4), (torch.float32, 2)) or not n:
        raise ValueError(f"The examples have shape {tuple(examples.shape)} and type {examples.dtype}.")
    if labels.shape != (n, k) or labels.dtype != torch.int64 or ((labels < -1) | (labels >= sizes)).any():
        raise ValueError("The labels do not fit the examples and their values.")
    if exact is not None and (exact.shape != (n, k) or exact.dtype != torch.float64):
        raise ValueError("The exact labels do not fit the examples.")
    numbers = None if exact is None else np.ascontiguousarray(exact.numpy())
    return assemble_data(facts.name, examples, Labels(labels.numpy(), facts.values, tuple(facts.continuous), numbers))


def folder_data(folder: RunFolder) -> FactorData:
    """Return the data of a stored run: those saved beside it, or those loaded by the name in its spec.

    Raises:
        UserError: If the run was trained on data in memory that were not saved, or if the data cannot be loaded.
    """
    if folder.data is not None:
        for parent in (folder.path.parent, folder.path):
            if (path := parent / FOLDER / f"{folder.data}.safetensors").is_file():
                return read_saved_data(path)
    if folder.data is not None or not can_be_loaded(folder.spec.data):
        raise _missing_data(f"The run {folder.path}", folder.spec.data)
    with without_announcements():
        return _load_by_name(f"The run {folder.path}", folder.spec.data)


def _load_by_name(what: str, name: str, device: str | torch.device = "cpu", quiet: bool = True) -> FactorData:
    """Load data by name. If they are a path that does not exist, the error says how to pass their new path."""
    plain_name, _ = split_name(name)
    paths = {name, plain_name, name.rpartition("?")[0] or name}  # a path may contain question marks
    if plain_name not in DATASETS and not any(os.path.lexists(expand_user(path)) for path in paths):
        raise UserError(
            f"{what} was trained on {name}, which does not exist. If the data were moved, pass their new path with its "
            "options as data= in Python, or create a link to them at the old path. Otherwise, restore them."
        )
    return load_data(name, device, quiet)


def run_data(
    run: Run, data: DataLike | None = None, device: str | torch.device = "cpu", quiet: bool = False
) -> FactorData:
    """Return the data of a run.

    They are `data` if it is given, otherwise the data that the run keeps in memory, if any, and otherwise the data that
    its spec names.

    Raises:
        UserError: If the data cannot be loaded, or if the examples of `data` do not have the shape that the run needs.
    """
    chosen = run.data if data is None else data
    if chosen is None and not can_be_loaded(run.spec.data):
        raise _missing_data(f"The run {run.id}", run.spec.data)
    with nullcontext() if data is not None else without_announcements():  # they were shown in training
        if chosen is None:
            loaded = _load_by_name(f"The run {run.id}", run.spec.data, device, quiet)
        else:
            loaded = load_data(chosen, device, quiet)
    shape = None if data is None else run.net.shape
    if shape is not None and tuple(loaded.shape) != shape:
        raise UserError(
            f"The data must have examples of the shape {shape}, like the data of the run {run.id}. Got "
            f"the shape {tuple(loaded.shape)} of {loaded.name!r} instead. Choose other data or other runs."
        )
    return loaded


def remember_data(runs: Sequence[Run], data: FactorData) -> None:
    """Let runs keep their data in memory if the data cannot be loaded by name."""
    if memory_fingerprint(data) is not None or not can_be_loaded(data.name):
        for run in runs:
            run.data = data


def _missing_data(what: str, name: str) -> UserError:
    return UserError(
        f"{what} was trained on data in memory ({name!r}), which are not stored. In Python, pass these data "
        "with the argument data=. To store them with the runs, train with save_data=True."
    )
