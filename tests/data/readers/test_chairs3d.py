"""3D chairs are read from the archive or the folder, ordered by chair, elevation and azimuth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from support import formats
from support.damage import check_user_error, truncate_file
from support.formats import png_bytes
from unbraid.data import load
from unbraid.data.dataset import FactorData
from unbraid.data.readers.chairs3d import read_chairs3d

Array = np.ndarray[Any, Any]

ANGLES = [int(360 / 31 * k) for k in range(1, 32)]  # 11, 23, ..., 360
CHAIRS = ("b2", "a1")


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def rendering(chair: int, elevation: int, azimuth: int) -> Array:
    """A white picture of 600x600 pixels with a square whose colour and position depend on the view."""
    image = np.full((600, 600, 3), 255, np.uint8)
    image[110 + azimuth * 4 : 300 + azimuth * 4, 150 + 40 * elevation : 350] = (100 * chair, 50 * elevation, azimuth)
    return image


def members() -> dict[str, bytes]:
    """The files of the archive. The views of a chair are numbered, elevation by elevation."""
    found = {"rendered_chairs/all_chair_names.mat": b"names"}
    for chair, name in enumerate(CHAIRS):
        for elevation, degrees in enumerate((20, 30)):
            for azimuth, angle in enumerate(ANGLES):
                file = f"image_{elevation * 31 + azimuth:03d}_p{degrees:03d}_t{angle:03d}_r096.png"
                picture = png_bytes(rendering(chair, elevation, azimuth))
                found[f"rendered_chairs/{name}/renders/{file}"] = picture
    return found


@pytest.fixture(scope="module")
def contents() -> dict[str, bytes]:
    return members()


def write_folder(folder: Path, contents: dict[str, bytes]) -> Path:
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder / "rendered_chairs"


def check_chairs(data: FactorData) -> None:
    assert (data.names, data.sizes) == (("chair", "elevation", "azimuth"), (2, 2, 31))
    assert data.cyclic == {"azimuth": 31}
    for chair, elevation, azimuth in [(0, 0, 0), (1, 0, 5), (0, 1, 30), (1, 1, 12)]:
        number = CHAIRS.index(sorted(CHAIRS)[chair])
        square = Image.fromarray(rendering(number, elevation, azimuth)[100:500, 100:500])
        expected = np.asarray(square.resize((64, 64), Image.Resampling.LANCZOS))
        found = data.images(data.index([[chair, elevation, azimuth]]))[0]
        assert np.array_equal(found.permute(1, 2, 0), expected)


def test_renderings_are_read_from_the_archive_and_from_a_folder(tmp_path: Path, contents: dict[str, bytes]) -> None:
    reported: list[float] = []
    archive = formats.write_tar(tmp_path / "rendered_chairs.tar", contents)
    check_chairs(read_chairs3d(archive, chairs=2, progress=reported.append))
    assert reported[-1] == 1.0
    check_chairs(read_chairs3d(write_folder(tmp_path, contents), chairs=2))


def test_the_folder_is_found(tmp_path: Path, contents: dict[str, bytes]) -> None:
    """The whole dataset has more chairs, so the error names the folder that was found."""
    folder = write_folder(tmp_path / "chairs3d", contents)
    with pytest.raises(ValueError, match=r"number of renderings of .* must be 86,366. Got 124 instead") as error:
        load("chairs3d", root=tmp_path)
    assert str(folder) in str(error.value)


FIRST = f"rendered_chairs/a1/renders/image_000_p020_t{ANGLES[0]:03d}_r096.png"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {FIRST: png_bytes(np.zeros((64, 64, 3), np.uint8))},
            r"width and height .* must be \(600, 600\)",
        ),
        (
            {FIRST: b"no picture"},
            "t011_r096.png must be a complete picture file. Reading it failed: cannot identify image file.",
        ),
        ({FIRST: None}, "number of renderings of .* must be 124. Got 123"),
        (
            {FIRST: None, FIRST.replace("t011", "t012"): png_bytes(rendering(0, 0, 0))},
            r"number of chairs, elevations and azimuths .* must be \(2, 2, 31\). Got \(2, 2, 32\)",
        ),
    ],
)
def test_files_that_differ_from_the_published_ones_are_rejected(
    changes: dict[str, bytes | None], message: str, tmp_path: Path, store: Path, contents: dict[str, bytes]
) -> None:
    changed = {name: content for name, content in {**contents, **changes}.items() if content is not None}
    archive = formats.write_tar(tmp_path / "a.tar", changed)
    check_user_error(message, lambda: read_chairs3d(archive, chairs=2), store)


def test_a_damaged_archive_is_rejected(tmp_path: Path, store: Path, contents: dict[str, bytes]) -> None:
    archive = truncate_file(formats.write_tar(tmp_path / "a.tar", contents))
    check_user_error("complete tar", lambda: read_chairs3d(archive, chairs=2), store)
