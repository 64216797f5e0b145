"""Every published format is read as it is written, and nothing that is damaged or not what it says passes."""

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
from support.damage import cut, flipped, mutants, refusals, refused
from support.formats import npy, pixels
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
    arrays = formats.dsprites(SPRITES, pixels(96, 64, 64, high=2)) | (changes or {})
    if form == "npz":
        return formats.npz(folder / "d.npz", {key: npy(array) for key, array in arrays.items()}, deflated)
    pytest.importorskip("h5py")
    return formats.hdf5(folder / "d.hdf5", {key.replace("latents_", "latents/"): a for key, a in arrays.items()})


FORMS = ["npz", "hdf5"]


@pytest.mark.parametrize("form", FORMS)
def test_dsprites_is_read_from_either_form(tmp_path: Path, form: str) -> None:
    told: list[float] = []
    data = read_dsprites(sprite_file(tmp_path, form), SPRITES, progress=told.append)
    assert (data.sizes, data.shape, data.binary, told[-1]) == (SPRITES, (1, 64, 64), True, 1.0)
    assert np.array_equal(data.images(range(96))[:, 0], 255 * pixels(96, 64, 64, high=2))
    assert data.table.dtype == torch.uint8
    assert data.table.shape == (96, 512)


def swapped(array: Array) -> Array:
    array = array.copy()
    array[[40, 41]] = array[[41, 40]]
    return array


LATENTS = formats.dsprites(SPRITES, pixels(1))
WRONG_SPRITES: dict[str, tuple[dict[str, Array], str]] = {
    "classes swapped": (
        {"latents_classes": swapped(LATENTS["latents_classes"])},
        r"latents_classes in row 40 of .* must be \[0 1 0 2 0 0\]. Got \[0 1 0 2 0 1\] instead",
    ),
    "values swapped": ({"latents_values": swapped(LATENTS["latents_values"])}, "latents_values in row 40"),
    "last row wrong": ({"latents_values": LATENTS["latents_values"] * np.r_[np.ones(95), 2][:, None]}, "row 95"),
    "a value is nan": ({"latents_values": LATENTS["latents_values"] * np.r_[np.nan, np.ones(95)][:, None]}, "row 0"),
    "five columns": (
        {"latents_classes": LATENTS["latents_classes"][:, 1:]},
        r"shape of 'latents.classes' .* \(96, 6\). Got \(96, 5\)",
    ),
    "too few images": ({"imgs": pixels(95, 64, 64, high=2)}, r"must be \(96, 64, 64\). Got \(95, 64, 64\)"),
    "other pixels": ({"imgs": pixels(96, 32, 32, high=2)}, r"Got \(96, 32, 32\)"),
    "not bytes": (
        {"imgs": pixels(96, 64, 64, high=2).astype(np.int16)},
        "uint8. Got int16|must be unsigned integers. Got int16",
    ),
    "not binary": ({"imgs": pixels(96, 64, 64)}, r"pixels of .* must lie in 0..1. Got \d+"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", WRONG_SPRITES)
def test_dsprites_refuses_what_is_not_as_published(tmp_path: Path, store: Path, form: str, case: str) -> None:
    changes, message = WRONG_SPRITES[case]
    path = sprite_file(tmp_path, form, changes)
    refused(message, lambda: read_dsprites(path, SPRITES), store)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("part", [0.0, 0.1, 0.6, 0.999])
def test_a_file_cut_short_is_refused(tmp_path: Path, store: Path, form: str, part: float) -> None:
    path = cut(sprite_file(tmp_path, form), part)
    refused(r"must be a whole \w+ file. Reading it failed", lambda: read_dsprites(path, SPRITES), store)


@pytest.mark.parametrize("deflated", [True, False])
def test_a_flipped_bit_is_found_by_the_archive_itself(tmp_path: Path, store: Path, deflated: bool) -> None:
    """In the middle of the images, where a stored one stays a number."""
    path = formats.npz(tmp_path / "m.npz", {"images": npy(pixels(72, 64, 64, 3))}, deflated)
    refused("Reading it failed", lambda: read_mpi3d("mpi3d_toy", flipped(path), TOY), store)


def test_a_flipped_bit_in_a_deflated_chunk_is_refused(tmp_path: Path, store: Path) -> None:
    path = flipped(sprite_file(tmp_path, "hdf5"))
    refused("Reading it failed", lambda: read_dsprites(path, SPRITES), store)


def test_objects_are_never_unpickled(tmp_path: Path, store: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "sprung",)

    objects = npy(np.zeros((), "u1"), "|O") + pickle.dumps(Trap())
    members = {key: npy(a) for key, a in formats.dsprites(SPRITES, pixels(96, 64, 64, high=2)).items()}
    read_dsprites(formats.npz(tmp_path / "d.npz", {"metadata": objects, **members}), SPRITES)
    path = formats.npz(tmp_path / "e.npz", {**members, "latents_classes": npy(np.zeros((96, 6)), "|O")})
    with pytest.raises(UserError, match=r"must be plain numbers in C order\. Got Python objects"):
        read_dsprites(path, SPRITES)
    assert not (tmp_path / "sprung").exists()


def test_damaged_archives_are_refused_and_never_worse(tmp_path: Path) -> None:
    path = sprite_file(tmp_path, "npz", deflated=False)

    def read(content: bytes) -> None:
        path.write_bytes(content)
        read_dsprites(path, SPRITES)

    assert refusals(read, mutants(path.read_bytes(), 99)) > 80


ODD_ARRAYS: dict[str, tuple[dict[str, bytes], str]] = {
    "no such array": ({"imgs": npy(pixels(3))}, "must have an array 'images'. Got imgs instead"),
    "empty": ({}, "must have an array 'images'. Got none"),
    "Fortran order": ({"images": npy(pixels(72, 64, 64, 3), fortran=True)}, "Got Fortran order"),
    "not an array": ({"images": b"text" * 99}, "Reading it failed"),
    "header cut": ({"images": npy(pixels(72, 64, 64, 3))[:40]}, "Reading it failed"),
    "data cut": ({"images": npy(pixels(72, 64, 64, 3))[:-1]}, r"length in bytes of 'images' .* 884,864. Got 884,863"),
    "absurd size": ({"images": npy(pixels(72)).replace(b"(72, )", b"(9999999999, 9999999)")}, "length in bytes"),
    "a dimension less": ({"images": npy(pixels(72, 64, 64))}, r"Got \(72, 64, 64\)"),
}
TOY = ((3, 3, 2, 1, 1, 2, 2), (2, 2, 2, 1, 1, 2, 2))


@pytest.mark.parametrize("case", ODD_ARRAYS)
def test_odd_arrays_are_refused(tmp_path: Path, store: Path, case: str) -> None:
    members, message = ODD_ARRAYS[case]
    path = formats.npz(tmp_path / "m.npz", members)
    refused(message, lambda: read_mpi3d("mpi3d_toy", path, TOY), store)


def test_a_missing_array_format_without_h5py_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Path
) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    (tmp_path / "3dshapes.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    refused(r"needs h5py.*pip install unbraid\[files\]", lambda: read_shapes3d(tmp_path / "3dshapes.h5"), store)


ROOM = (2, 3, 2, 2, 2, 3)


def test_shapes3d_is_read_and_its_labels_compared(tmp_path: Path, store: Path) -> None:
    pytest.importorskip("h5py")
    arrays = formats.shapes3d(ROOM, pixels(144, 64, 64, 3))
    data = read_shapes3d(formats.hdf5(tmp_path / "3dshapes.h5", arrays), ROOM)
    assert np.array_equal(data.images(range(144)).permute(0, 2, 3, 1), arrays["images"])
    assert data.factors([143]).tolist() == [[1, 2, 1, 1, 1, 2]]
    other = formats.hdf5(tmp_path / "other.h5", arrays | {"labels": swapped(arrays["labels"])})
    with pytest.raises(UserError, match=r"labels in row 40 .* must be \[0 1 0 0 1 1\]|labels in row 40"):
        read_shapes3d(other, ROOM)
    missing = formats.hdf5(tmp_path / "missing.h5", {"images": arrays["images"]})
    with pytest.raises(UserError, match=r"must have a dataset 'labels'\. Got images instead"):
        read_shapes3d(missing, ROOM)


@pytest.mark.parametrize("deflated", [True, False])
def test_mpi3d_takes_its_grid_from_the_number_of_images(tmp_path: Path, deflated: bool) -> None:
    images = pixels(72, 64, 64, 3)
    path = formats.npz(tmp_path / "m.npz", {"images": npy(images)}, deflated)
    data = read_mpi3d("mpi3d_toy", path, TOY)
    assert (data.sizes, data.shape) == (TOY[0], (3, 64, 64))
    assert np.array_equal(data.images(range(72)).permute(0, 2, 3, 1), images)
    subset = formats.npz(tmp_path / "s.npz", {"images": npy(images[:32])}, deflated)
    with pytest.warns(RuntimeWarning, match="holds the 32 images of the challenge's subset, not the 72"):
        assert read_mpi3d("mpi3d_toy", subset, TOY).sizes == TOY[1]
    neither = formats.npz(tmp_path / "n.npz", {"images": npy(images[:33])}, deflated)
    with pytest.raises(UserError, match=r"must be \(72, 64, 64, 3\) or \(32, 64, 64, 3\). Got \(33, 64, 64, 3\)"):
        read_mpi3d("mpi3d_toy", neither, TOY)


def test_mpi3d_has_the_sizes_distributed_now() -> None:
    counts = {name: [int(np.prod(sizes)) for sizes in grids] for name, grids in GRIDS.items()}
    both, whole = [1_036_800, 460_800], [1_036_800]
    assert counts == {"mpi3d_toy": both, "mpi3d_realistic": both, "mpi3d_real": whole, "mpi3d_complex": [460_800]}


def test_a_large_file_is_never_in_memory(tmp_path: Path) -> None:
    """123 MB of images pass through pieces of 16."""
    grid = (10_000, 1, 1, 1, 1, 1, 1)
    path = formats.npz(tmp_path / "m.npz", {"images": npy(np.zeros((10_000, 64, 64, 3), np.uint8))})
    tracemalloc.start()
    table = read_mpi3d("mpi3d_real", path, (grid,)).table
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert table.numel() == 122_880_000
    assert peak < 64e6


def test_the_real_small_dsprites_are_refused_for_their_size(shared: Path, store: Path) -> None:
    path = shared / "data/dsprites_real/neuromatch_dsprites_downsampled.npz"
    refused(r"'latents_classes' .* must be \(737280, 6\). Got \(46080, 5\)", lambda: read_dsprites(path), store)


def test_missing_files_are_asked_for(tmp_path: Path, store: Path) -> None:
    refused("dsprites_file must be in .*unbraid data get dsprites_file", lambda: dsprites_file(root=tmp_path), store)


@pytest.mark.slow
def test_the_whole_of_dsprites_passes_through_its_published_form(tmp_path: Path) -> None:
    images = dsprites()
    latents = formats.dsprites(SIZES, pixels(1))
    path = tmp_path / "dsprites_file" / "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz"
    path.parent.mkdir()
    formats.npz(path, {key: npy(latents[key]) for key in ("latents_classes", "latents_values")})
    head = npy(np.empty((0, 64, 64), np.uint8)).replace(b"(0, ", b"(737280, ").replace(b"     \n", b"\n")
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("imgs.npy", "w", force_zip64=True) as file,
    ):
        file.write(head)
        for rows in torch.arange(len(images)).split(8192):
            file.write((images.images(rows) // 255).numpy().data)
    data = dsprites_file(root=tmp_path)
    assert hashlib.sha256(data.table.numpy().data).hexdigest() == SHA256
