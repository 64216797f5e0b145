"""Files of tensors with metadata and a checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from unbraid.errors import UserError
from unbraid.runtime.files import write_atomic

RESTORE = "Delete the file to train the run again from step 0, or restore the file from a copy."


def content_digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> str:
    """Return the SHA-256 digest of tensors (names, types, shapes and values) and metadata, in hexadecimal."""
    digest = hashlib.sha256(json.dumps(metadata).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
    """Write a safetensors file atomically.

    `metadata` and the additional field `sha256` (see `content_digest`) are stored as JSON in the single metadata entry
    `unbraid`. If there were several entries, their order in the file could vary. With a single entry, equal content
    always gives equal bytes.
    """
    complete = {**metadata, "sha256": content_digest(tensors, metadata)}
    write_atomic(path, safetensors.torch.save(tensors, {"unbraid": json.dumps(complete)}))


def read_tensors(path: Path, names: list[str] | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors (all of them, or those in `names`) and the metadata of a file written by `write_tensors`.

    If all tensors are read, the checksum is verified. Files of release 0.1 have no checksum, so they are not verified.

    Raises:
        UserError: If the file is damaged or was not written by `write_tensors`.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe or a device could have no end
            raise OSError("it must be an ordinary file")
        with safetensors.safe_open(path, "pt") as file:
            wanted = list(file.keys()) if names is None else names
            metadata = dict(json.loads(file.metadata()["unbraid"]))
            tensors = {name: file.get_tensor(name) for name in wanted}
    except (OSError, KeyError, TypeError, ValueError, RecursionError, safetensors.SafetensorError) as error:
        reason = error if isinstance(error, OSError) else "it is not a safetensors file with metadata of unbraid"
        raise UserError(f"{path} is damaged or incomplete ({reason}). {RESTORE}") from error
    stated = metadata.pop("sha256", None)
    if names is None and stated is not None and stated != content_digest(tensors, metadata):
        raise UserError(f"{path} is damaged: its content does not match its checksum. {RESTORE}")
    return tensors, metadata
