"""Find, write, read and check files with manipulations.

A file contains a table of patterns and, for each example of a dataset, the index of its pattern. The metadata of the
file describe the dataset and how the manipulation was learned.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from jaxtyping import Int, Int8, Int16
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.files.locate import data_folder
from unbraid.data.own.arrays import OwnData
from unbraid.errors import UserError
from unbraid.runtime.files import expand_user, make_folder, write_atomic
from unbraid.runtime.schema import WrongContentError, check

FORMAT = 1
KIND = "manipulation"
DIGEST_IMAGES = 1000  # maximum number of images from which the digest of a user's own data is computed
DATA_KEYS = ("base", "names", "sizes", "shape", "examples", "labels")  # keys of the metadata that describe the dataset


@dataclass(frozen=True)
class Facts:
    """The metadata fields of a manipulation whose types are checked. `recipe` and `final` are not always present."""

    kind: str
    format: int
    eps: float
    recipe: dict[str, Any] = field(default_factory=dict)
    final: dict[str, float] = field(default_factory=dict)


def plain_name(data: FactorData) -> str:
    """Return the name of a dataset without its options. If the name is a path, return only its last part."""
    return Path(data.name.partition("?")[0]).name


def default_file(data: FactorData, root: str | Path | None = None) -> Path:
    """Return the path of the file with the default manipulation of a dataset."""
    return data_folder(root) / "modified" / f"{plain_name(data)}.safetensors"


def find_file(file: str, data: FactorData, root: str | Path | None = None) -> Path:
    """Return the path of a file with a manipulation.

    `file` is a path, the name of a file in the folder ``modified`` of the data folder, or "default" (see
    `default_file`). If there is no such file, raise a UserError that says which paths were tried and how to create it.
    """
    default = default_file(data, root)
    candidates = [default] if file == "default" else [expand_user(file), default.parent / file]
    for path in candidates:
        if path.is_file():
            return path
    plain = data.name.partition("?")[0]
    raise UserError(
        f"The manipulation of {plain} must be in {' or '.join(map(str, candidates))}. There is no such file. To create "
        f"it, run: unbraid data modify {plain} --out {candidates[0]}"
    )


def describe_data(data: FactorData) -> dict[str, Any]:
    """Return a description of a dataset.

    The description is stored in the file of a manipulation. When the file is applied to a dataset, the stored
    description must equal that of the dataset.

    Built-in and published datasets are identified by name. A user's own data may be moved to a different folder, so
    they are identified by their factors and shape. If the labels do not form a full grid, the key `labels` contains a
    digest of them, because the order of the examples matters.
    """
    labels = None if data.gridded else _digest(data.factors(slice(None)))
    layout = {"names": list(data.names), "sizes": list(data.sizes), "shape": list(data.shape), "examples": len(data)}
    return {"base": None if isinstance(data, OwnData) else plain_name(data), **layout, "labels": labels}


def images_source(data: FactorData) -> str:
    """Return what identifies the images from which a manipulation is learned.

    This is the name of a dataset with its options, such as a holdout. For a user's own data, it is a digest of at most
    1,000 images.
    """
    if not isinstance(data, OwnData):
        return data.name
    rows = torch.linspace(0, len(data) - 1, min(len(data), DIGEST_IMAGES), device=data.device).round().long()
    return hashlib.sha256(data.images(rows).cpu().contiguous().numpy().tobytes()).hexdigest()[:16]


def _digest(labels: Int[Tensor, "n k"]) -> str:
    return hashlib.sha256(labels.cpu().contiguous().numpy().tobytes()).hexdigest()[:16]


def check_file(path: Path, metadata: Mapping[str, Any], data: FactorData) -> None:
    """Raise a UserError if a file was made for a different dataset."""
    for key, expected in describe_data(data).items():
        if metadata[key] != expected:
            plain = data.name.partition("?")[0]
            raise UserError(
                f"{path} must be made for {plain}, with '{key}' {expected}. Got '{key}' {metadata[key]} instead. To "
                f"create a file for these data, run: unbraid data modify {plain} --out FILE"
            )


def write_manipulation(
    path: Path, patterns: Int8[Tensor, "p c h w"], which: Int16[Tensor, " n"], metadata: Mapping[str, Any]
) -> None:
    """Write a manipulation to a file.

    Args:
        path: Path of the file.
        patterns: Table of patterns.
        which: Index of the pattern of each example.
        metadata: Contains the key `eps`, the keys of `describe_data`, and any other metadata.
    """
    make_folder(path.parent)
    tensors = {"patterns": patterns.cpu().contiguous(), "which": which.cpu().contiguous()}
    content = {"format": FORMAT, "kind": KIND, **metadata}
    write_atomic(path, safetensors.torch.save(tensors, {"unbraid": json.dumps(content)}))


def read_manipulation(path: Path, tensors: bool = True) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors and the metadata of a manipulation.

    The tensors are read only if `tensors` is true. Raises a UserError if the file is damaged or not a manipulation.
    """
    try:
        with safetensors.safe_open(path, "pt") as file:
            metadata = json.loads((file.metadata() or {}).get("unbraid", "null"))
            facts = check(Facts, metadata)
            if facts.kind != KIND or facts.format != FORMAT or not 0 < facts.eps <= 1:
                raise UserError(f"kind {facts.kind!r}, format {facts.format}, eps {facts.eps}")
            keys = ("patterns", "which") if tensors else ()
            return {name: file.get_tensor(name) for name in keys}, {**dict.fromkeys(DATA_KEYS), **metadata}
    except (OSError, ValueError, RecursionError, WrongContentError, safetensors.SafetensorError) as error:
        known = isinstance(error, OSError | UserError | WrongContentError)
        reason = error if known else "it is not a safetensors file with metadata of unbraid"
        raise UserError(
            f"{path} must be a complete file that was written by 'unbraid data modify', format {FORMAT}. Reading it "
            f"failed: {reason}. Restore a complete copy, or delete the file and create it again."
        ) from error
