"""Cars3D is read from the archive, the folder and the npz; MATLAB files are decoded correctly."""

from __future__ import annotations

import hashlib
import io
import itertools
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import loadmat, savemat

from support import formats
from support.damage import check_user_error, count_user_errors, damaged_copies, flip_byte, truncate_file
from support.formats import npy_bytes, random_pixels
from unbraid.data.dataset import FactorData
from unbraid.data.readers import cars3d, mat
from unbraid.data.readers.cars3d import read_cars3d
from unbraid.data.sampling import laplace_transitions
from unbraid.errors import UserError
from unbraid.noise import Noise

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def car(seed: int) -> Array:
    return np.asfortranarray(random_pixels(128, 128, 3, 24, 4, seed=seed))


def resize_image(image: Array, size: int = 64) -> Array:
    return np.asarray(Image.fromarray(np.ascontiguousarray(image)).resize((size, size), Image.Resampling.LANCZOS))


CARS = {"car_002_mesh": car(2), "car_001_mesh": car(1)}


def car_archive(path: Path, changes: dict[str, bytes] | None = None) -> Path:
    members = {"data/cars/list.txt": b"car_002_mesh\ncar_001_mesh\n", "data/shapes48.mat": b"other"}
    members |= {"data/sprites/sprites_1.mat": b"other", "data/cars/._car_001_mesh.mat": b"leftover"}
    for compressed, (name, images) in enumerate(CARS.items()):
        mask = images[:, :, 0]
        members[f"data/cars/{name}.mat"] = formats.mat5_bytes({"im": images, "mask": mask}, bool(compressed))
    return formats.write_tar(path, members | (changes or {}))


def assert_cars(data: FactorData) -> None:
    assert (data.names, data.sizes) == (("elevation", "azimuth", "object"), (4, 24, 2))
    key = torch.zeros((), dtype=torch.int64)
    assert not laplace_transitions(data, Noise.from_seed(key, key), 200).changed[:, 2].any(), "a pair has one object"
    for elevation, azimuth, number in [(0, 0, 0), (0, 1, 1), (3, 2, 0), (2, 23, 1), (3, 23, 1)]:
        expected = resize_image(CARS[f"car_00{number + 1}_mesh"][:, :, :, azimuth, elevation])
        found = data.images(data.index([[elevation, azimuth, number]]))[0]
        assert np.array_equal(found.permute(1, 2, 0), expected)


def test_cars3d_is_read_from_the_archive_sorted_by_name(tmp_path: Path) -> None:
    reported: list[float] = []
    assert_cars(read_cars3d(car_archive(tmp_path / "cars.tar.gz"), objects=2, progress=reported.append))
    assert reported == sorted(reported)
    assert reported[-1] == 1.0


def test_cars3d_is_read_from_a_folder_and_from_matlab_7_3(tmp_path: Path) -> None:
    (tmp_path / "cars").mkdir()
    for name, images in CARS.items():
        (tmp_path / "cars" / f"{name}.mat").write_bytes(formats.mat5_bytes({"im": images}))
    assert_cars(read_cars3d(tmp_path / "cars", objects=2))
    pytest.importorskip("h5py")
    formats.write_mat73(tmp_path / "cars" / "car_001_mesh.mat", {"im": CARS["car_001_mesh"]})
    assert_cars(read_cars3d(tmp_path / "cars", objects=2))


@pytest.mark.parametrize("compressed", [True, False])
def test_matlab_files_agree_with_scipy(compressed: bool) -> None:
    """The reader decodes files that scipy writes, and scipy decodes the files that the tests write."""
    arrays, file = {"a": random_pixels(2), "im": random_pixels(3, 4, 5), "z": random_pixels(9, 9)}, io.BytesIO()
    savemat(file, {"first": np.arange(3.0), **arrays}, do_compression=compressed)
    assert np.array_equal(mat.read_array(Path("cars.mat"), file.getvalue(), "im", (3, 4, 5)), arrays["im"])
    assert np.array_equal(loadmat(io.BytesIO(formats.mat5_bytes(arrays, compressed)))["im"], arrays["im"])


WHOLE_CAR = formats.mat5_bytes({"im": CARS["car_001_mesh"]})
WRONG_CARS: dict[str, tuple[dict[str, bytes], str]] = {
    "other shape": (
        {"data/cars/car_001_mesh.mat": formats.mat5_bytes({"im": random_pixels(64, 64, 3, 24, 4)})},
        r"shape of 'im' .*car_001_mesh.mat must be \(128, 128, 3, 24, 4\). Got \(64, 64, 3, 24, 4\)",
    ),
    "no images": (
        {"data/cars/car_001_mesh.mat": formats.mat5_bytes({"mask": random_pixels(8, 8)})},
        "array 'im'. Got mask",
    ),
    "cut": ({"data/cars/car_001_mesh.mat": WHOLE_CAR[:-1000]}, "car_001_mesh.mat must be a complete MATLAB file"),
    "cut at once": ({"data/cars/car_001_mesh.mat": WHOLE_CAR[:100]}, "must be a complete MATLAB file"),
    "empty": ({"data/cars/car_001_mesh.mat": b""}, "must be a complete MATLAB file"),
    "text": ({"data/cars/car_001_mesh.mat": b"<html>not found</html>" * 99}, "car_001_mesh.mat"),
    "one more": ({"data/cars/car_003_mesh.mat": WHOLE_CAR}, "number of .mat files in cars/ .* must be 2. Got 3"),
    "outside": ({"../cars/car_003_mesh.mat": WHOLE_CAR}, "Its paths must stay inside"),
}


@pytest.mark.parametrize("case", WRONG_CARS)
def test_cars3d_rejects_files_that_differ_from_the_published_ones(tmp_path: Path, store: Path, case: str) -> None:
    changes, message = WRONG_CARS[case]
    path = car_archive(tmp_path / "cars.tar.gz", changes)
    check_user_error(message, lambda: read_cars3d(path, objects=2), store)


def test_damaged_archive_of_cars_is_rejected(tmp_path: Path, store: Path) -> None:
    check_user_error(
        "complete tar", lambda: read_cars3d(truncate_file(car_archive(tmp_path / "a.tar.gz")), objects=2), store
    )
    check_user_error(
        "must be a complete", lambda: read_cars3d(flip_byte(car_archive(tmp_path / "b.tar.gz")), objects=2), store
    )


def test_too_large_member_of_an_archive_is_rejected(tmp_path: Path, store: Path) -> None:
    path, large = tmp_path / "cars.tar.gz", tarfile.TarInfo("data/cars/car_001_mesh.mat")
    large.size = 1 << 40
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(large)
    check_user_error("must not exceed .* Got 1,099,511,627,776", lambda: read_cars3d(path, objects=2), store)


def test_cars3d_is_read_from_an_npz_of_64_or_128_pixels(tmp_path: Path, store: Path) -> None:
    order = itertools.product(range(4), range(24), sorted(CARS))
    large = np.stack([CARS[name][:, :, :, azimuth, elevation] for elevation, azimuth, name in order])
    assert_cars(read_cars3d(formats.write_npz(tmp_path / "large.npz", {"images": npy_bytes(large)}), objects=2))
    small = npy_bytes(np.stack([resize_image(image) for image in large]))
    sizes = npy_bytes(np.array([4, 24, 2]))
    assert_cars(read_cars3d(formats.write_npz(tmp_path / "c.npz", {"images": small, "factor_sizes": sizes}), objects=2))
    wrong = formats.write_npz(tmp_path / "w.npz", {"images": small, "factor_sizes": npy_bytes(np.array([24, 4, 2]))})
    with pytest.raises(UserError, match=r"factor_sizes .* must be \[4, 24, 2\]. Got \[24, 4, 2\]"):
        read_cars3d(wrong, objects=2)


def test_published_cars_have_the_known_order_and_means(shared: Path) -> None:
    """The means in shared/data.md are of a bilinear filter; Lanczos overshoots at edges and is clipped at white."""
    data = cars3d(root=shared / "data")
    assert (len(data), data.sizes, data.shape) == (17_568, (4, 24, 183), (3, 64, 64))
    means = data.table.view(17_568, 3, -1).float().mean((0, 2)) / 255
    assert torch.allclose(means, torch.tensor([0.8976676, 0.8891658, 0.8851475]), atol=2e-3)
    assert hashlib.sha256(data.images([0, 1, 17_567]).numpy().data).digest() == _first_two_and_last(shared)
    start = data.batch(data.index([[1, 5, 60]]))
    next_view, next_car = (data.batch(data.index([row])) for row in ([1, 6, 60], [1, 5, 61]))
    assert (start - next_view).square().mean() < (start - next_car).square().mean()


def _first_two_and_last(shared: Path) -> bytes:
    with np.load(shared / "data/cars3d/cars3d_64x64.npz") as archive:
        images = archive["images"][[0, 1, 17_567]]
    return hashlib.sha256(np.ascontiguousarray(images.transpose(0, 3, 1, 2)).data).digest()


@pytest.mark.parametrize("compressed", [True, False])
def test_damaged_matlab_files_raise_only_user_errors(compressed: bool) -> None:
    content = formats.mat5_bytes({"im": random_pixels(3, 4, 5), "mask": random_pixels(9, 9)}, compressed)
    count = count_user_errors(
        lambda spoiled: mat.read_array(Path("cars.mat"), spoiled, "im", (3, 4, 5)), damaged_copies(content, 999, 124)
    )
    assert count > 300
