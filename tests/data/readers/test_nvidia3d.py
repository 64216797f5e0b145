"""Isaac3D and Falcor3D are read from an archive or a folder, and wrong files are rejected."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from support import formats
from support.damage import check_user_error
from support.formats import npy_bytes, random_pixels
from unbraid.data import load
from unbraid.data.readers.nvidia3d import FALCOR3D, ISAAC3D, Format, read_nvidia3d

Array = np.ndarray[Any, Any]

FORMS = {"isaac3d": ISAAC3D, "falcor3d": FALCOR3D}
SMALL = {"isaac3d": (2, 1, 1, 2, 1, 1, 3, 1, 1), "falcor3d": (2, 3, 1, 1, 1, 2, 1)}


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def labels_of(sizes: tuple[int, ...]) -> Array:
    """The published labels: the values of each factor are equally spaced in [0, 1], and the last varies fastest."""
    return formats.all_combinations([np.linspace(0, 1, size).tolist() for size in sizes])


def members(form: Format, sizes: tuple[int, ...]) -> dict[str, bytes]:
    pictures = random_pixels(math.prod(sizes), 128, 128, 3)
    found = {f"images/{i:06d}.png": formats.png_bytes(image) for i, image in enumerate(pictures)}
    return found | {form.labels: npy_bytes(labels_of(sizes))}


def write_folder(folder: Path, contents: dict[str, bytes]) -> dict[str, Path]:
    """Write the unpacked archive, and return its folder of pictures and its file of labels."""
    (folder / "images").mkdir(parents=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (labels,) = (name for name in contents if not name.startswith("images"))
    return {"down128/images": folder / "images", f"down128/{labels}": folder / labels}


@pytest.mark.parametrize("name", FORMS)
def test_pictures_are_read_from_a_folder_and_from_a_zip_archive(name: str, tmp_path: Path) -> None:
    form, sizes = FORMS[name], SMALL[name]
    contents = members(form, sizes)
    archive = formats.write_zip(tmp_path / "a.zip", {f"down128/{key}": value for key, value in contents.items()})
    first, second = (
        read_nvidia3d(form, files, sizes)
        for files in (write_folder(tmp_path / "folder", contents), {"down128.zip": archive})
    )
    assert (first.names, first.sizes, first.shape) == (form.names, sizes, (3, 64, 64))
    for data in (first, second):
        for i, pixels in enumerate(random_pixels(math.prod(sizes), 128, 128, 3)):
            expected = np.asarray(Image.fromarray(pixels).resize((64, 64), Image.Resampling.LANCZOS))
            assert np.array_equal(data.images([i])[0].permute(1, 2, 0), expected)


@pytest.mark.parametrize(("name", "count"), [("isaac3d", 737_280), ("falcor3d", 233_280)])
def test_published_grids_have_the_published_number_of_images(name: str, count: int) -> None:
    form = FORMS[name]
    assert math.prod(form.sizes) == count
    assert len(form.names) == len(set(form.names)) == len(form.sizes)


def test_files_are_found_in_the_folder_of_the_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(FALCOR3D, sizes=SMALL["falcor3d"])
    monkeypatch.setattr("unbraid.data.readers.nvidia3d.FALCOR3D", small)
    contents = {f"Falcor3D_down128/{key}": value for key, value in members(small, small.sizes).items()}
    (tmp_path / "falcor3d").mkdir()
    formats.write_zip(tmp_path / "falcor3d" / "Falcor3D_down128.zip", contents)
    assert load("falcor3d", root=tmp_path).sizes == small.sizes


LABELS = labels_of(SMALL["falcor3d"])
WRONG: dict[str, tuple[Callable[[dict[str, bytes]], dict[str, bytes]], str]] = {
    "missing picture": (
        lambda c: {k: v for k, v in c.items() if "000007" not in k},
        "contain the file 000007.png",
    ),
    "no labels": (lambda c: {k: v for k, v in c.items() if "images" in k}, "must contain the file train-rec.labels"),
    "other size": (
        lambda c: c | {"images/000003.png": formats.png_bytes(random_pixels(64, 64, 3))},
        r"width and height of .*000003.png must be \(128, 128\). Got \(64, 64\)",
    ),
    "damaged picture": (lambda c: c | {"images/000003.png": b"no picture"}, "000003.png must be a complete picture"),
    "other order": (
        lambda c: c | {"train-rec.labels": npy_bytes(LABELS[::-1][:, ::-1].copy())},
        "Column 0 of the labels in .*train-rec.labels must have a different number for each of the 2 values",
    ),
    "too few labels": (lambda c: c | {"train-rec.labels": npy_bytes(LABELS[1:])}, r"shape .* must be \(12, 7\)"),
    "integers": (
        lambda c: c | {"train-rec.labels": npy_bytes(LABELS.astype(np.int64))},
        "must be floating-point numbers. Got int64",
    ),
    "cut labels": (
        lambda c: c | {"train-rec.labels": npy_bytes(LABELS)[:-9]},
        "train-rec.labels must be a complete npy file",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_files_that_differ_from_the_published_ones_are_rejected(case: str, tmp_path: Path, store: Path) -> None:
    change, message = WRONG[case]
    contents = change(members(FALCOR3D, SMALL["falcor3d"]))
    archive = formats.write_zip(tmp_path / "a.zip", contents)
    check_user_error(message, lambda: read_nvidia3d(FALCOR3D, {"a.zip": archive}, SMALL["falcor3d"]), store)
