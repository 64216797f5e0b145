"""MNIST, small NORB and CelebA are read correctly; damaged or wrong files are rejected."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import unbraid as ub
from support import formats
from support.formats import random_pixels
from unbraid.data.readers import binary
from unbraid.data.readers.celeba import read_celeba
from unbraid.data.readers.mnist import read_mnist
from unbraid.data.readers.smallnorb import PARTS as NORB_PARTS
from unbraid.data.readers.smallnorb import SIZES, read_smallnorb, read_smallnorb_grid
from unbraid.errors import UserError
from unbraid.methods import PCL, PMP, AdaGVAE, AdaMLVAE, Method, SlowVAE
from unbraid.noise import Noise

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write_files(folder: Path, contents: dict[str, bytes]) -> dict[str, Path]:
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return {name: folder / name for name in contents}


PARTS = {"train": 5, "t10k": 3}


def mnist_contents(suffix: str = "") -> dict[str, bytes]:
    contents = {}
    for seed, (part, rows) in enumerate(PARTS.items()):
        contents[f"{part}-images-idx3-ubyte{suffix}"] = formats.idx_bytes(random_pixels(rows, 28, 28, seed=seed))
        contents[f"{part}-labels-idx1-ubyte{suffix}"] = formats.idx_bytes(random_pixels(rows, seed=seed, high=10))
    return {name: formats.gzip_bytes(c) if suffix else c for name, c in contents.items()}


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_mnist_is_read_and_padded(tmp_path: Path, suffix: str) -> None:
    data = read_mnist("mnist", "digit", write_files(tmp_path, mnist_contents(suffix)), PARTS)
    assert (len(data), data.names, data.sizes, data.shape) == (8, ("digit",), (10,), (1, 32, 32))
    expected = np.concatenate([random_pixels(rows, 28, 28, seed=seed) for seed, rows in enumerate(PARTS.values())])
    assert np.array_equal(data.images(range(8))[:, 0, 2:-2, 2:-2], expected)
    assert data.images(range(8)).sum() == expected.sum()
    assert data.factors([5, 6, 7])[:, 0].tolist() == random_pixels(3, seed=1, high=10).tolist()
    plain = read_mnist("mnist", "digit", write_files(tmp_path, mnist_contents(suffix)), PARTS, pad=0)
    assert plain.shape == (1, 28, 28)


def change_file(name: str, change: Callable[[bytes], bytes]) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return lambda contents: contents | {name: change(contents[name])}


WRONG_DIGITS: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "labels for images": (
        "train-images-idx3-ubyte",
        lambda c: formats.idx_bytes(random_pixels(5)),
        "0x00000803. Got 0x00000801",
    ),
    "floats": ("train-images-idx3-ubyte", lambda c: c[:2] + b"\x0d" + c[3:], "Got 0x00000d03"),
    "fewer": (
        "t10k-images-idx3-ubyte",
        lambda c: formats.idx_bytes(random_pixels(2, 28, 28)),
        r"\(3, 28, 28\). Got \(2, 28, 28\)",
    ),
    "cut": ("t10k-images-idx3-ubyte", lambda c: c[:-1], "ends 1 bytes early, after 2,351 of 2,352"),
    "longer": ("t10k-images-idx3-ubyte", lambda c: c + b"\0", "more bytes after the end"),
    "header cut": ("t10k-labels-idx1-ubyte", lambda c: c[:6], "early"),
    "empty": ("t10k-labels-idx1-ubyte", lambda c: b"", "early"),
    "mislabelled": ("t10k-labels-idx1-ubyte", lambda c: c[:-1] + b"\x0a", r"labels of .*t10k.* in 0..9. Got 10"),
    "absurd size": ("train-images-idx3-ubyte", lambda c: c[:4] + b"\xff" * 12 + c[16:], r"Got \(4294967295,"),
    "zip cut": ("train-images-idx3-ubyte", lambda c: formats.gzip_bytes(c)[:-9], "Reading it failed"),
    "zip flipped": (
        "train-images-idx3-ubyte",
        lambda c: formats.gzip_bytes(c)[:-6] + b"abcdef",
        "Reading it failed: CRC",
    ),
}


@pytest.mark.parametrize("case", WRONG_DIGITS)
def test_mnist_rejects_files_that_differ_from_the_published_ones(tmp_path: Path, case: str) -> None:
    name, change, message = WRONG_DIGITS[case]
    files = write_files(tmp_path, change_file(name, change)(mnist_contents()))
    with pytest.raises(UserError, match=message):
        read_mnist("mnist", "digit", files, PARTS)


NORB = {"training": "smallnorb-5x46789x9x18x6x2x96x96", "testing": "smallnorb-5x01235x9x18x6x2x96x96"}
# Instance, elevation, azimuth and lighting of four pairs in each part; the published azimuth is doubled.
INFO = {
    "training": [[4, 0, 0, 0], [9, 8, 34, 5], [6, 3, 12, 1], [7, 1, 2, 3]],
    "testing": [[0, 0, 0, 0], [5, 8, 34, 5], [1, 2, 20, 2], [3, 4, 6, 4]],
}
CATEGORY = [0, 4, 2, 1]


def norb_contents(suffix: str = "") -> dict[str, bytes]:
    contents = {}
    for seed, (part, stem) in enumerate(NORB.items()):
        contents[f"{stem}-{part}-dat.mat{suffix}"] = formats.norb_bytes(random_pixels(4, 2, 96, 96, seed=seed))
        contents[f"{stem}-{part}-cat.mat{suffix}"] = formats.norb_bytes(np.array(CATEGORY, np.int32))
        contents[f"{stem}-{part}-info.mat{suffix}"] = formats.norb_bytes(np.array(INFO[part], np.int32))
    return {name: formats.gzip_bytes(c) if suffix else c for name, c in contents.items()}


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_smallnorb_is_read_with_instances_outside_the_factors(tmp_path: Path, suffix: str) -> None:
    data = read_smallnorb(write_files(tmp_path, norb_contents(suffix)), rows=4)
    assert (len(data), data.sizes, data.shape) == (8, (5, 9, 18, 6), (1, 64, 64))
    assert data.names == ("category", "elevation", "azimuth", "lighting")
    assert data.categorical == ("category",)
    assert data.factors([1, 6]).tolist() == [[4, 8, 17, 5], [2, 2, 10, 2]]
    assert data.instance.tolist() == [row[0] for part in INFO.values() for row in part]
    left = Image.fromarray(random_pixels(4, 2, 96, 96, seed=1)[2, 0]).resize((64, 64), Image.Resampling.LANCZOS)
    assert np.array_equal(data.images([6])[0, 0], np.asarray(left))
    assert torch.equal(data.to("cpu").instance, data.instance)


def matrix(part: str, kind: str) -> str:
    return f"{NORB[part]}-{part}-{kind}.mat"


def info(rows: list[list[int]]) -> bytes:
    return formats.norb_bytes(np.array(rows, np.int32))


WRONG_TOYS: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "integers for images": (matrix("training", "dat"), lambda c: info([[0]]), "0x1e3d4c55. Got 0x1e3d4c54"),
    "big-endian": (matrix("testing", "cat"), lambda c: c[3::-1] + c[4:], "0x1e3d4c54. Got 0x544c3d1e"),
    "fewer": (matrix("testing", "cat"), lambda c: formats.norb_bytes(np.zeros(3, np.int32)), r"\(4,\). Got \(3,\)"),
    "a dimension more": (matrix("testing", "cat"), lambda c: info([[0]] * 4), "number of dimensions .* 1. Got 2"),
    "cut": (matrix("testing", "dat"), lambda c: c[:-5], "ends 5 bytes early"),
    "longer": (matrix("training", "info"), lambda c: c + b"\0", "more bytes after the end"),
    "odd azimuth": (matrix("training", "info"), lambda c: info([[4, 0, 1, 0], *INFO["training"][1:]]), "odd"),
    "elevation 9": (matrix("training", "info"), lambda c: info([[4, 9, 0, 0], *INFO["training"][1:]]), "0..8. Got 9"),
    "category -1": (matrix("testing", "cat"), lambda c: c[:-4] + b"\xff" * 4, "category .* 0..4. Got -1"),
    "instance of the other part": (
        matrix("testing", "info"),
        lambda c: info([[4, 1, 0, 0], *INFO["testing"][1:]]),
        "instances of the other part .* 0. Got 1",
    ),
    "testing twice": (matrix("testing", "info"), lambda c: info(INFO["training"]), "distinct labels .* 8. Got 4"),
}


@pytest.mark.parametrize("case", WRONG_TOYS)
def test_smallnorb_rejects_files_that_differ_from_the_published_ones(tmp_path: Path, case: str) -> None:
    name, change, message = WRONG_TOYS[case]
    with pytest.raises(UserError, match=message):
        read_smallnorb(write_files(tmp_path, change_file(name, change)(norb_contents())), rows=4)


GRID = (2, 10, 1, 3, 2)  # sizes of a small grid in the order category, instance, elevation, azimuth, lighting


def norb_grid_contents() -> tuple[dict[str, bytes], dict[tuple[int, ...], Array]]:
    """Return files with one image per combination of `GRID` in random order, and the left images by combination."""
    contents, left, rng = {}, {}, np.random.default_rng(0)
    for part, stem in NORB.items():
        cells = [cell for cell in np.ndindex(*GRID) if cell[1] in NORB_PARTS[part]]
        cells = [cells[i] for i in rng.permutation(len(cells))]
        pixels = rng.integers(0, 256, (len(cells), 2, 96, 96), dtype=np.uint8)
        left |= {cell: pair[0] for cell, pair in zip(cells, pixels, strict=True)}
        rows = [[cell[1], cell[2], 2 * cell[3], cell[4]] for cell in cells]
        contents[f"{stem}-{part}-dat.mat"] = formats.norb_bytes(pixels)
        contents[f"{stem}-{part}-cat.mat"] = formats.norb_bytes(np.array([cell[0] for cell in cells], np.int32))
        contents[f"{stem}-{part}-info.mat"] = info(rows)
    return contents, left


def test_smallnorb_with_the_instance_as_a_factor_is_a_grid_in_c_order(tmp_path: Path) -> None:
    """Every image is at the index of its labels, in whichever order the files have them."""
    contents, left = norb_grid_contents()
    data = read_smallnorb_grid(write_files(tmp_path, contents), sizes=GRID)
    assert (SIZES, math.prod(SIZES)) == ((5, 10, 9, 18, 6), 48_600)
    assert data.gridded
    assert data.names == ("category", "instance", "elevation", "azimuth", "lighting")
    assert data.categorical == ("category", "instance")
    for i, cell in enumerate(np.ndindex(*GRID)):
        assert data.factors([i]).tolist() == [list(cell)]
        small = Image.fromarray(left[cell]).resize((64, 64), Image.Resampling.LANCZOS)
        assert np.array_equal(data.images(data.index([cell]))[0, 0], np.asarray(small))


@pytest.mark.parametrize("method", [PMP(subspaces=2), AdaGVAE(), AdaMLVAE(), SlowVAE(), PCL()])
def test_pair_methods_accept_smallnorb_as_a_grid(tmp_path: Path, method: Method) -> None:
    contents, _ = norb_grid_contents()
    files = write_files(tmp_path, contents)
    method.check(read_smallnorb_grid(files, sizes=GRID), 8, 4)
    with pytest.raises(UserError, match=r"not a full grid. Use smallnorb\?instance=factor"):
        method.check(read_smallnorb(files, rows=60), 8, 4)


def test_smallnorb_rejects_other_values_of_its_option() -> None:
    with pytest.raises(UserError, match=r"must be hidden or factor\. Got 'both'"):
        ub.data.load("smallnorb?instance=both")


def test_smallnorb_header_has_at_least_three_dimensions(tmp_path: Path) -> None:
    """The header of the published category file: 1 dimension, and the words 24300, 1, 1."""
    head = bytes.fromhex("544c3d1e 01000000 ec5e0000 01000000 01000000")
    (tmp_path / "cat.mat").write_bytes(head + np.arange(24300, dtype="<i4").tobytes())
    assert np.array_equal(binary.read_norb_integers(tmp_path / "cat.mat", (24300,)), np.arange(24300))


NAMES = [f"{i:06d}.jpg" for i in range(1, 6)]
MARKS = random_pixels(5, 40, high=2)


def face(seed: int) -> Array:
    """Return a smooth picture, which JPEG compresses well."""
    return np.asarray(Image.fromarray(random_pixels(4, 3, 3, seed=seed)).resize((178, 218), Image.Resampling.BICUBIC))


def faces(folder: Path, form: str, changes: dict[str, bytes] | None = None) -> Path:
    contents = {name: formats.jpeg_bytes(face(i)) for i, name in reversed(list(enumerate(NAMES)))} | (changes or {})
    if form == "zip":
        members = {name if "/" in name else f"img_align_celeba/{name}": content for name, content in contents.items()}
        return formats.write_zip(folder / "img_align_celeba.zip", members)
    (folder / "img_align_celeba").mkdir()
    write_files(folder / "img_align_celeba", contents)
    return folder / "img_align_celeba"


def marks(folder: Path, text: str | None = None) -> Path:
    (folder / "list_attr_celeba.txt").write_text(text or formats.attribute_list(NAMES, MARKS))
    return folder / "list_attr_celeba.txt"


@pytest.mark.parametrize("form", ["folder", "zip"])
@pytest.mark.parametrize("size", [64, 32])
def test_celeba_is_read_in_the_order_of_its_list(tmp_path: Path, form: str, size: int) -> None:
    data = read_celeba(faces(tmp_path, form), marks(tmp_path), size, rows=5)
    assert (len(data), len(data.names), data.sizes, data.shape) == (5, 40, (2,) * 40, (3, size, size))
    assert data.names[:2] == ("Attribute_0", "Attribute_1")
    assert np.array_equal(data.factors(range(5)), MARKS)
    middle = Image.fromarray(face(3)).crop((0, 20, 178, 198)).resize((size, size), Image.Resampling.LANCZOS)
    found = data.images([3])[0].permute(1, 2, 0).int()
    assert (found - torch.from_numpy(np.array(middle)).int()).abs().max() <= 8  # the error of JPEG at quality 95
    assert set(data.draw(Noise(torch.tensor(1)), 99).tolist()) == set(range(5))


LINES = formats.attribute_list(NAMES, MARKS).splitlines()
WRONG_LISTS: dict[str, tuple[list[str], str]] = {
    "other count": (["6", *LINES[1:]], "first line .* must be 5. Got 6"),
    "a row less": (LINES[:-1], "number of rows .* must be 5. Got 4"),
    "a name less": ([LINES[0], LINES[1].split(" ", 1)[1], *LINES[2:]], "number of attributes .* 40. Got 39"),
    "a value less": ([*LINES[:4], LINES[4].rsplit(" ", 1)[0], *LINES[5:]], "Line 5 of"),
    "zero for no": ([line.replace("-1", "0") for line in LINES], "40 values 1 or -1"),
    "a name twice": ([*LINES[:-1], LINES[-2]], "distinct file names .* 5. Got 4"),
    "page of text": (["<html>", "<body>"], "first line .* 5. Got <html>"),
    "unknown picture": (
        [*LINES[:-1], LINES[-1].replace(NAMES[-1], "000009.jpg")],
        "must contain the file 000009.jpg",
    ),
    "outside": ([*LINES[:-1], LINES[-1].replace(NAMES[-1], "../secret")], r"must contain the file \.\./secret"),
}


@pytest.mark.parametrize("form", ["folder", "zip"])
@pytest.mark.parametrize("case", WRONG_LISTS)
def test_celeba_rejects_lists_that_differ_from_the_published_one(
    tmp_path: Path, store: Path, form: str, case: str
) -> None:
    lines, message = WRONG_LISTS[case]
    (tmp_path / "secret").write_bytes(formats.jpeg_bytes(face(0)))
    with pytest.raises(UserError, match=message):
        read_celeba(faces(tmp_path, form), marks(tmp_path, "\n".join(lines) + "\n"), rows=5)
    assert not list(store.glob("*.npy"))


WRONG_FACES: dict[str, tuple[dict[str, bytes], str]] = {
    "other size": ({NAMES[2]: formats.jpeg_bytes(random_pixels(178, 178, 3))}, r"\(178, 218\). Got \(178, 178\)"),
    "cut": ({NAMES[2]: formats.jpeg_bytes(face(2))[:2000]}, "000003.jpg must be a complete picture"),
    "text": ({NAMES[2]: b"not a picture"}, "000003.jpg must be a complete picture"),
    "empty": ({NAMES[2]: b""}, "000003.jpg must be a complete picture"),
}


@pytest.mark.parametrize("form", ["folder", "zip"])
@pytest.mark.parametrize("case", WRONG_FACES)
def test_celeba_rejects_damaged_pictures(tmp_path: Path, store: Path, form: str, case: str) -> None:
    changes, message = WRONG_FACES[case]
    with pytest.raises(UserError, match=message):
        read_celeba(faces(tmp_path, form, changes), marks(tmp_path), rows=5)
    assert not list(store.glob("*.npy"))


def test_celeba_rejects_a_zip_with_paths_outside(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="must stay inside"):
        read_celeba(faces(tmp_path, "zip", {"../img_align_celeba/x.jpg": b"x"}), marks(tmp_path), rows=5)
