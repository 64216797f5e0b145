"""Published npz and HDF5 files are read correctly; damaged or wrong files are rejected."""

from __future__ import annotations

import hashlib
import pickle
import sys
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support import formats
from support.damage import check_user_error, count_user_errors, damaged_copies, flip_byte, truncate_file
from support.formats import npy_bytes, random_pixels
from unbraid.data.readers import dsprites_file
from unbraid.data.readers.dsprites_file import read_dsprites
from unbraid.data.readers.mpi3d import GRIDS, read_mpi3d
from unbraid.data.readers.shapes3d import read_shapes3d
from unbraid.data.rendered.dsprites import SHA256, SIZES, dsprites
from unbraid.errors import UserError

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


SPRITES = (3, 2, 4, 2, 2)


def sprite_file(folder: Path, form: str, changes: dict[str, Array] | None = None, deflated: bool = True) -> Path:
    arrays = formats.dsprites_arrays(SPRITES, random_pixels(96, 64, 64, high=2)) | (changes or {})
    if form == "npz":
        return formats.write_npz(folder / "d.npz", {key: npy_bytes(array) for key, array in arrays.items()}, deflated)
    pytest.importorskip("h5py")
    return formats.write_hdf5(folder / "d.hdf5", {key.replace("latents_", "latents/"): a for key, a in arrays.items()})


FORMS = ["npz", "hdf5"]


@pytest.mark.parametrize("form", FORMS)
def test_dsprites_is_read_from_npz_and_hdf5(tmp_path: Path, form: str) -> None:
    reported: list[float] = []
    data = read_dsprites(sprite_file(tmp_path, form), SPRITES, progress=reported.append)
    assert (data.sizes, data.shape, data.binary, reported[-1]) == (SPRITES, (1, 64, 64), True, 1.0)
    assert np.array_equal(data.images(range(96))[:, 0], 255 * random_pixels(96, 64, 64, high=2))
    assert data.table.dtype == torch.uint8
    assert data.table.shape == (96, 512)
    assert data.categorical == ("shape",)


def swap_rows(array: Array) -> Array:
    array = array.copy()
    array[[40, 41]] = array[[41, 40]]
    return array


LATENTS = formats.dsprites_arrays(SPRITES, random_pixels(1))
WRONG_SPRITES: dict[str, tuple[dict[str, Array], str]] = {
    "classes swapped": (
        {"latents_classes": swap_rows(LATENTS["latents_classes"])},
        r"latents_classes in row 40 of .* must be \[0 1 0 2 0 0\]. Got \[0 1 0 2 0 1\] instead",
    ),
    "values swapped": ({"latents_values": swap_rows(LATENTS["latents_values"])}, "latents_values in row 40"),
    "last row wrong": ({"latents_values": LATENTS["latents_values"] * np.r_[np.ones(95), 2][:, None]}, "row 95"),
    "a value is nan": ({"latents_values": LATENTS["latents_values"] * np.r_[np.nan, np.ones(95)][:, None]}, "row 0"),
    "five columns": (
        {"latents_classes": LATENTS["latents_classes"][:, 1:]},
        r"shape of 'latents.classes' .* \(96, 6\). Got \(96, 5\)",
    ),
    "too few images": ({"imgs": random_pixels(95, 64, 64, high=2)}, r"must be \(96, 64, 64\). Got \(95, 64, 64\)"),
    "other pixels": ({"imgs": random_pixels(96, 32, 32, high=2)}, r"Got \(96, 32, 32\)"),
    "not bytes": (
        {"imgs": random_pixels(96, 64, 64, high=2).astype(np.int16)},
        "uint8. Got int16|must be unsigned integers. Got int16",
    ),
    "not binary": ({"imgs": random_pixels(96, 64, 64)}, r"pixels of .* must lie in 0..1. Got \d+"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", WRONG_SPRITES)
def test_dsprites_rejects_files_that_differ_from_the_published_one(
    tmp_path: Path, store: Path, form: str, case: str
) -> None:
    changes, message = WRONG_SPRITES[case]
    path = sprite_file(tmp_path, form, changes)
    check_user_error(message, lambda: read_dsprites(path, SPRITES), store)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("part", [0.0, 0.1, 0.6, 0.999])
def test_truncated_file_is_rejected(tmp_path: Path, store: Path, form: str, part: float) -> None:
    path = truncate_file(sprite_file(tmp_path, form), part)
    check_user_error(r"must be a complete \w+ file. Reading it failed", lambda: read_dsprites(path, SPRITES), store)


@pytest.mark.parametrize("deflated", [True, False])
def test_flipped_bit_is_detected_by_the_archive(tmp_path: Path, store: Path, deflated: bool) -> None:
    """The bit is in the middle of the images, where an uncompressed value stays a valid number."""
    path = formats.write_npz(tmp_path / "m.npz", {"images": npy_bytes(random_pixels(72, 64, 64, 3))}, deflated)
    check_user_error("Reading it failed", lambda: read_mpi3d("mpi3d_toy", flip_byte(path), TOY), store)


def test_flipped_bit_in_a_compressed_chunk_is_rejected(tmp_path: Path, store: Path) -> None:
    path = flip_byte(sprite_file(tmp_path, "hdf5"))
    check_user_error("Reading it failed", lambda: read_dsprites(path, SPRITES), store)


def test_objects_in_published_files_are_never_unpickled(tmp_path: Path, store: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "unpickled",)

    objects = npy_bytes(np.zeros((), "u1"), "|O") + pickle.dumps(Trap())
    members = {
        key: npy_bytes(a) for key, a in formats.dsprites_arrays(SPRITES, random_pixels(96, 64, 64, high=2)).items()
    }
    read_dsprites(formats.write_npz(tmp_path / "d.npz", {"metadata": objects, **members}), SPRITES)
    path = formats.write_npz(tmp_path / "e.npz", {**members, "latents_classes": npy_bytes(np.zeros((96, 6)), "|O")})
    with pytest.raises(UserError, match=r"must be numbers in C order\. Got Python objects"):
        read_dsprites(path, SPRITES)
    assert not (tmp_path / "unpickled").exists()


def test_damaged_npz_raises_only_user_errors(tmp_path: Path) -> None:
    path = sprite_file(tmp_path, "npz", deflated=False)

    def read(content: bytes) -> None:
        path.write_bytes(content)
        read_dsprites(path, SPRITES)

    assert count_user_errors(read, damaged_copies(path.read_bytes(), 99)) > 80


ODD_ARRAYS: dict[str, tuple[dict[str, bytes], str]] = {
    "no such array": ({"imgs": npy_bytes(random_pixels(3))}, "must have an array 'images'. Got imgs instead"),
    "empty": ({}, "must have an array 'images'. Got none"),
    "Fortran order": ({"images": npy_bytes(random_pixels(72, 64, 64, 3), fortran=True)}, "Got Fortran order"),
    "not an array": ({"images": b"text" * 99}, "Reading it failed"),
    "header with a name": (
        {"images": npy_bytes(random_pixels(72, 64, 64, 3)).replace(b"'descr'", b" descr ")},
        r"Reading it failed: its structure is not valid\. Check",
    ),
    "header cut": ({"images": npy_bytes(random_pixels(72, 64, 64, 3))[:40]}, "Reading it failed"),
    "data cut": (
        {"images": npy_bytes(random_pixels(72, 64, 64, 3))[:-1]},
        r"length in bytes of 'images' .* 884,864. Got 884,863",
    ),
    "absurd size": (
        {"images": npy_bytes(random_pixels(72)).replace(b"(72, )", b"(9999999999, 9999999)")},
        "length in bytes",
    ),
    "a dimension less": ({"images": npy_bytes(random_pixels(72, 64, 64))}, r"Got \(72, 64, 64\)"),
}
TOY = ((3, 3, 2, 1, 1, 2, 2), (2, 2, 2, 1, 1, 2, 2))


@pytest.mark.parametrize("case", ODD_ARRAYS)
def test_unexpected_arrays_are_rejected(tmp_path: Path, store: Path, case: str) -> None:
    members, message = ODD_ARRAYS[case]
    path = formats.write_npz(tmp_path / "m.npz", members)
    check_user_error(message, lambda: read_mpi3d("mpi3d_toy", path, TOY), store)


def test_missing_h5py_is_reported_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Path) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    (tmp_path / "3dshapes.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    check_user_error(
        r"needs h5py.*pip install unbraid\[files\]", lambda: read_shapes3d(tmp_path / "3dshapes.h5"), store
    )


ROOM = (2, 3, 2, 2, 2, 3)


def test_shapes3d_is_read_and_its_labels_checked(tmp_path: Path, store: Path) -> None:
    pytest.importorskip("h5py")
    arrays = formats.shapes3d_arrays(ROOM, random_pixels(144, 64, 64, 3))
    data = read_shapes3d(formats.write_hdf5(tmp_path / "3dshapes.h5", arrays), ROOM)
    assert np.array_equal(data.images(range(144)).permute(0, 2, 3, 1), arrays["images"])
    assert data.factors([143]).tolist() == [[1, 2, 1, 1, 1, 2]]
    assert data.categorical == ("shape",)
    other = formats.write_hdf5(tmp_path / "other.h5", arrays | {"labels": swap_rows(arrays["labels"])})
    with pytest.raises(UserError, match=r"labels in row 40 .* must be \[0 1 0 0 1 1\]|labels in row 40"):
        read_shapes3d(other, ROOM)
    missing = formats.write_hdf5(tmp_path / "missing.h5", {"images": arrays["images"]})
    with pytest.raises(UserError, match=r"must have a dataset 'labels'\. Got images instead"):
        read_shapes3d(missing, ROOM)


@pytest.mark.parametrize("deflated", [True, False])
def test_number_of_images_decides_the_grid_of_mpi3d(tmp_path: Path, deflated: bool) -> None:
    images = random_pixels(72, 64, 64, 3)
    path = formats.write_npz(tmp_path / "m.npz", {"images": npy_bytes(images)}, deflated)
    data = read_mpi3d("mpi3d_toy", path, TOY)
    assert (data.sizes, data.shape) == (TOY[0], (3, 64, 64))
    assert data.categorical == ("object_color", "object_shape", "background_color")
    assert np.array_equal(data.images(range(72)).permute(0, 2, 3, 1), images)
    subset = formats.write_npz(tmp_path / "s.npz", {"images": npy_bytes(images[:32])}, deflated)
    with pytest.warns(RuntimeWarning, match="contains the 32 images of the 2019 challenge, not the 72"):
        assert read_mpi3d("mpi3d_toy", subset, TOY).sizes == TOY[1]
    neither = formats.write_npz(tmp_path / "n.npz", {"images": npy_bytes(images[:33])}, deflated)
    with pytest.raises(UserError, match=r"must be \(72, 64, 64, 3\) or \(32, 64, 64, 3\). Got \(33, 64, 64, 3\)"):
        read_mpi3d("mpi3d_toy", neither, TOY)


def test_mpi3d_has_the_currently_distributed_sizes() -> None:
    counts = {name: [int(np.prod(sizes)) for sizes in grids] for name, grids in GRIDS.items()}
    both, whole = [1_036_800, 460_800], [1_036_800]
    assert counts == {"mpi3d_toy": both, "mpi3d_realistic": both, "mpi3d_real": whole, "mpi3d_complex": [460_800]}


def test_large_file_is_never_completely_in_memory(tmp_path: Path) -> None:
    """123 MB of images are read in pieces of 16 MB."""
    grid = (10_000, 1, 1, 1, 1, 1, 1)
    path = formats.write_npz(tmp_path / "m.npz", {"images": npy_bytes(np.zeros((10_000, 64, 64, 3), np.uint8))})
    tracemalloc.start()
    table = read_mpi3d("mpi3d_real", path, (grid,)).table
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert table.numel() == 122_880_000
    assert peak < 64e6


def test_smaller_dsprites_file_is_rejected_for_its_size(shared: Path, store: Path) -> None:
    path = shared / "data/dsprites_real/neuromatch_dsprites_downsampled.npz"
    check_user_error(
        r"'latents_classes' .* must be \(737280, 6\). Got \(46080, 5\)", lambda: read_dsprites(path), store
    )


def test_missing_files_are_reported_with_the_command(tmp_path: Path, store: Path) -> None:
    check_user_error(
        "dsprites_file must be in .*unbraid data get dsprites_file", lambda: dsprites_file(root=tmp_path), store
    )


@pytest.mark.slow
def test_complete_dsprites_is_read_from_its_published_form(tmp_path: Path) -> None:
    images = dsprites()
    latents = formats.dsprites_arrays(SIZES, random_pixels(1))
    path = tmp_path / "dsprites_file" / "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz"
    path.parent.mkdir()
    formats.write_npz(path, {key: npy_bytes(latents[key]) for key in ("latents_classes", "latents_values")})
    head = npy_bytes(np.empty((0, 64, 64), np.uint8)).replace(b"(0, ", b"(737280, ").replace(b"     \n", b"\n")
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("imgs.npy", "w", force_zip64=True) as file,
    ):
        file.write(head)
        for rows in torch.arange(len(images)).split(8192):
            file.write((images.images(rows) // 255).numpy().data)
    data = dsprites_file(root=tmp_path)
    assert hashlib.sha256(data.table.numpy().data).hexdigest() == SHA256
