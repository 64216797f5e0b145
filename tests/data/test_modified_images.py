"""Files of modified images in the layout of the original datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support import formats
from unbraid.analysis.demystifying import dataset_variant
from unbraid.data import load
from unbraid.data.dataset import BinaryImages, FactorData
from unbraid.data.image_options import apply_image_options
from unbraid.data.in_memory import ByteImages
from unbraid.data.modified_images import file_digest, read_modified_images
from unbraid.data.readers.shapes3d import NAMES as ROOM_NAMES
from unbraid.data.rendered.dsprites import NAMES
from unbraid.errors import UserError

Array = np.ndarray[Any, Any]
SPRITES, ROOM = (3, 2, 4, 2, 2), (2, 3, 2, 3, 2, 2)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path / "cache"))


def sprites_base() -> FactorData:
    """Return dSprites on a small grid."""
    return BinaryImages("dsprites", NAMES, SPRITES, (1, 64, 64), torch.zeros(96, 512, dtype=torch.uint8))


def random_bytes(*shape: int) -> Array:
    return np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)


def write_npz(path: Path, arrays: dict[str, Array]) -> Path:
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("form", ["npz", "h5"])
def test_images_of_the_file_replace_those_of_dsprites(form: str, tmp_path: Path) -> None:
    """Pixels have 256 levels. Factors and grid are those of the base dataset."""
    images, base, path = random_bytes(96, 64, 64), sprites_base(), tmp_path / f"modified.{form}"
    arrays = formats.dsprites_arrays(SPRITES, images)
    if form == "npz":
        write_npz(path, arrays)
    else:
        pytest.importorskip("h5py")
        formats.write_hdf5(path, {key.replace("latents_", "latents/"): array for key, array in arrays.items()})
    data = apply_image_options(base, {"modified": str(path)})
    assert data.name == f"dsprites?modified={path}"
    assert np.array_equal(data.images(slice(None))[:, 0].numpy(), images)
    index = torch.tensor([3, 50])
    torch.testing.assert_close(data.batch(index), torch.from_numpy(images[[3, 50]])[:, None] / 255)
    assert torch.equal(data.factors(slice(None)), base.factors(slice(None)))
    assert (data.gridded, data.binary, data.sizes) == (True, False, SPRITES)
    assert data.to("cpu").batch(index).shape == (2, 1, 64, 64)
    assert dataset_variant(data.name) == ("dsprites", "modified")


def test_images_of_the_file_replace_those_of_shapes3d(tmp_path: Path) -> None:
    n = int(np.prod(ROOM))
    images = random_bytes(n, 64, 64, 3)
    base = ByteImages("shapes3d", ROOM_NAMES, ROOM, (3, 64, 64), torch.zeros(n, 3, 64, 64, dtype=torch.uint8))
    path = write_npz(tmp_path / "rooms.npz", formats.shapes3d_arrays(ROOM, images))
    data = read_modified_images(base, path)
    assert np.array_equal(data.images(slice(None)).numpy(), images.transpose(0, 3, 1, 2))


def test_other_layouts_and_datasets_are_rejected(tmp_path: Path) -> None:
    arrays = formats.dsprites_arrays(SPRITES, random_bytes(96, 64, 64))
    swapped = {**arrays, "latents_classes": arrays["latents_classes"][::-1]}
    for changed, message in (
        (swapped, "latents_classes in row 0"),
        ({**arrays, "imgs": arrays["imgs"][:50]}, "shape of 'imgs'"),
        ({**arrays, "imgs": arrays["imgs"] / 255.0}, "type of 'imgs'"),
        ({"images": arrays["imgs"]}, "must have an array"),
    ):
        with pytest.raises(UserError, match=message):
            read_modified_images(sprites_base(), write_npz(tmp_path / "other.npz", changed))
    with pytest.raises(UserError, match="Files of modified images exist for dsprites"):
        load(f"sprites?modified={write_npz(tmp_path / 'm.npz', arrays)}")
    with pytest.raises(UserError, match="There is no such file"):
        read_modified_images(sprites_base(), tmp_path / "missing.npz")


def test_the_digest_depends_on_the_content(tmp_path: Path) -> None:
    """Stored scores on two files with the same name are not confused."""
    first, second = random_bytes(96, 64, 64), random_bytes(96, 64, 64)
    second[40, 3, 3] += 1
    path = tmp_path / "m.npz"
    digests = []
    for images in (first, first, second):
        data = read_modified_images(sprites_base(), write_npz(path, formats.dsprites_arrays(SPRITES, images)))
        digests.append(data.fingerprint)
    assert digests[0] == digests[1] != digests[2]
    assert digests[2] == file_digest(path)
