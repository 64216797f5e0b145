"""Files of manipulations: where they are found, the data that they belong to, and how they are written and read.

A file contains a table of patterns and, for each example, the number of its pattern. Its metadata describe the data and
how the manipulation was learned.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from jaxtyping import Int, Int8, Int16
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.files.locate import data_folder
from unbraid.data.own.arrays import OwnData
from unbraid.errors import UserError
from unbraid.runtime.files import make_folder, write_atomic

FORMAT = 1
KIND = "manipulation"
DATA_KEYS = ("base", "names", "sizes", "shape", "examples", "labels")  # keys that describe the data


def plain_name(data: FactorData) -> str:
    """Return the name of the data without options, and without the folder if the name is a path."""
    return Path(data.name.partition("?")[0]).name


def default_file(data: FactorData, root: str | Path | None = None) -> Path:
    """Return the path of the default manipulation of a dataset."""
    return data_folder(root) / "modified" / f"{plain_name(data)}.safetensors"


def find_file(file: str, data: FactorData, root: str | Path | None = None) -> Path:
    """Return the path of a manipulation, or raise an error that says where it was searched and how to create it."""
    default = default_file(data, root)
    places = [default] if file == "default" else [Path(file).expanduser(), default.parent / file]
    for place in places:
        if place.is_file():
            return place
    plain = data.name.partition("?")[0]
    raise UserError(
        f"The manipulation of {plain} must be in {' or '.join(map(str, places))}. There is no such file. Create it: "
        f"unbraid data modify {plain} --out {places[0]}"
    )


def describe_data(data: FactorData) -> dict[str, Any]:
    """Return the description by which a manipulation recognises the data that it was made for.

    Built-in and published data are identified by name. A user's data may move, so they are identified by their factors
    and shape. If these do not fill a grid, `labels` is a digest of all labels, because a pattern belongs to a row.
    """
    labels = None if data.gridded else _digest(data.factors(slice(None)))
    layout = {"names": list(data.names), "sizes": list(data.sizes), "shape": list(data.shape), "examples": len(data)}
    return {"base": None if isinstance(data, OwnData) else plain_name(data), **layout, "labels": labels}


def _digest(labels: Int[Tensor, "n k"]) -> str:
    return hashlib.sha256(labels.cpu().contiguous().numpy().tobytes()).hexdigest()[:16]


def check_file(path: Path, facts: Mapping[str, Any], data: FactorData) -> None:
    """Reject a file that was made for other data."""
    for key, expected in describe_data(data).items():
        if facts[key] != expected:
            plain = data.name.partition("?")[0]
            raise UserError(
                f"{path} must be made for {plain}, with '{key}' {expected}. Got '{key}' {facts[key]} instead. Create a "
                f"file for these data: unbraid data modify {plain} --out FILE"
            )


def write_manipulation(
    path: Path, patterns: Int8[Tensor, "p c h w"], which: Int16[Tensor, " n"], facts: Mapping[str, Any]
) -> None:
    """Write a manipulation; `facts` contains `eps`, the result of `describe_data`, and any other metadata."""
    make_folder(path.parent)
    tensors = {"patterns": patterns.cpu().contiguous(), "which": which.cpu().contiguous()}
    metadata = {"format": FORMAT, "kind": KIND, **facts}
    write_atomic(path, safetensors.torch.save(tensors, {"unbraid": json.dumps(metadata)}))


def read_manipulation(path: Path, tensors: bool = True) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors, if `tensors`, and the metadata of a manipulation; reject damaged and other files."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            facts = json.loads(file.metadata()["unbraid"])
            if facts["kind"] != KIND or facts["format"] != FORMAT or not 0 < float(facts["eps"]) <= 1:
                raise UserError(f"kind {facts['kind']}, format {facts['format']}, eps {facts['eps']}")
            keys = ("patterns", "which") if tensors else ()
            return {name: file.get_tensor(name) for name in keys}, {**dict.fromkeys(DATA_KEYS), **facts}
    except (OSError, KeyError, TypeError, ValueError, safetensors.SafetensorError) as error:
        raise UserError(
            f"{path} must be a complete file of 'unbraid data modify', format {FORMAT}. It cannot be read ({error}). "
            "Restore a complete copy, or delete the file and create it again."
        ) from error
