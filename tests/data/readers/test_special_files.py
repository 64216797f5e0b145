"""Pipes, devices and loops of links in the place of published files are refused and never waited for."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from unbraid.data.files.archives import read_tar_files, read_zip_files
from unbraid.data.files.convert import cached_table
from unbraid.data.manipulation_files import read_manipulation
from unbraid.data.readers import npz
from unbraid.data.readers.binary import read_idx
from unbraid.data.readers.cars3d import read_cars3d
from unbraid.data.readers.natural_sprites import read_transitions
from unbraid.data.readers.pickled import read_pickle
from unbraid.errors import UserError

READERS: dict[str, Callable[[Path], object]] = {
    "tar": lambda path: list(read_tar_files(path)),
    "zip": lambda path: list(read_zip_files(path)),
    "npz": npz.array_names,
    "idx": lambda path: read_idx(path, (3,)),
    "mat": lambda path: read_cars3d(path.parent, objects=1),
    "pickle": read_pickle,
    "csv": lambda path: read_transitions(path, pairs=1),
    "table": lambda path: cached_table("name", [path], (1,), lambda: iter([np.zeros(1, np.uint8)])),
}


@pytest.mark.parametrize("name", READERS)
def test_pipes_and_devices_are_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path / "cache"))
    (tmp_path / "pipe").mkdir()
    (tmp_path / "device").mkdir()
    os.mkfifo(tmp_path / "pipe" / "a.mat")
    (tmp_path / "device" / "a.mat").symlink_to("/dev/zero")
    for kind in ("pipe", "device"):
        with pytest.raises(UserError, match=r"a\.mat must be an ordinary file"):
            READERS[name](tmp_path / kind / "a.mat")


@pytest.mark.parametrize("name", READERS)
def test_loops_of_links_are_not_followed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path / "cache"))
    (tmp_path / "a.mat").symlink_to("a.mat")
    with pytest.raises((UserError, OSError)) as caught:
        READERS[name](tmp_path / "a.mat")
    assert "a.mat" in str(caught.value)


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        (None, "The content must be an object"),
        ({"unbraid": "[1"}, "it is not a safetensors file with metadata of unbraid"),
        ({"unbraid": json.dumps({"kind": "manipulation", "format": 1})}, "'eps'"),
        ({"unbraid": json.dumps({"kind": "manipulation", "format": 1, "eps": [1]})}, "'eps' must be a number"),
        ({"unbraid": json.dumps({"kind": "manipulation", "format": 1, "eps": 1, "recipe": 3})}, "'recipe' must be"),
        ({"unbraid": json.dumps({"kind": "other", "format": 1, "eps": 1})}, "kind 'other'"),
    ],
)
def test_metadata_of_manipulations_are_checked(metadata: dict[str, str] | None, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    safetensors.numpy.save_file({"which": np.zeros(1, np.int16)}, file, metadata)
    with pytest.raises(UserError, match=reason):
        read_manipulation(file, tensors=False)
