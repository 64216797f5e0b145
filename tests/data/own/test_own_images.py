"""Image files of every format are read at the requested size; unreadable files are named in the error."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from support.own import random_pixels, save_image, save_images, truncate_to_half, write_csv
from unbraid.data import from_folder
from unbraid.errors import UserError


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    return tmp_path / "photos"


EXACT = {"png": {}, "bmp": {}, "tif": {}, "tiff": {}, "gif": {}, "webp": {"lossless": True}}


@pytest.mark.parametrize("suffix", [*EXACT, "PNG"])
def test_images_of_the_right_size_are_not_changed(folder: Path, suffix: str) -> None:
    image = random_pixels(64, 64)
    save_image(folder / f"a.{suffix}", image, **EXACT.get(suffix, {}))
    data = from_folder(folder, channels=1)
    assert data.images([0])[0, 0].tolist() == image.tolist()


@pytest.mark.parametrize("suffix", ["jpg", "jpeg"])
def test_jpegs_are_almost_unchanged(folder: Path, suffix: str) -> None:
    image = np.array(Image.fromarray(random_pixels(4, 4, 3)).resize((64, 64), Image.Resampling.BICUBIC))
    save_image(folder / f"a.{suffix}", image, quality=95)
    found = from_folder(folder).images([0])[0].permute(1, 2, 0).numpy()
    assert np.abs(found.astype(int) - image).mean() < 4


def test_files_are_sorted_and_hidden_files_skipped(folder: Path) -> None:
    save_images(folder, "b.png", "a/z.png", "c.png", ".hidden.png", ".git/x.png", "a.png")
    (folder / "notes.txt").write_text("not an image")
    data = from_folder(folder, size=8, labels="none")
    given = [random_pixels(8, 8, key=1000 * i).tolist() for i in (1, 5, 0, 2)]
    assert data.images(slice(None))[:, 0].tolist() == given
    assert data.name == f"{folder.resolve()}?size=8&labels=none"
    assert not data.gridded
    assert repr(data).endswith("4 examples of shape (1, 8, 8), no factors")


@pytest.mark.parametrize(("shape", "window"), [((64, 97), np.s_[:, 16:80]), ((70, 64), np.s_[3:67, :])])
def test_central_square_is_cropped(folder: Path, shape: tuple[int, int], window: Any) -> None:
    image = random_pixels(*shape)
    save_image(folder / "a.png", image)
    assert from_folder(folder).images([0])[0, 0].tolist() == image[window].tolist()


def test_uniform_image_stays_uniform_at_every_size(folder: Path) -> None:
    save_image(folder / "a.png", np.full((50, 30, 3), (10, 200, 77), np.uint8))
    for size in (1, 32, 128):
        found = from_folder(folder, size=size).images([0])
        assert found.shape == (1, 3, size, size)
        assert found.unique(dim=3).flatten().tolist() == [10] * size + [200] * size + [77] * size


def test_gradient_is_preserved_when_scaled(folder: Path) -> None:
    save_image(folder / "a.png", np.tile(np.arange(0, 256, 2, dtype=np.uint8), (128, 1)))
    found = from_folder(folder, size=32).images([0])[0, 0, 16].double()
    expected = torch.arange(32).double() * 8 + 3  # the mean of four pixels two apart
    assert (found - expected)[2:-2].abs().max() <= 1


COLOURS: dict[str, tuple[Image.Image, int]] = {
    "grey": (Image.fromarray(random_pixels(8, 8)), 1),
    "bits": (Image.fromarray(random_pixels(8, 8)).convert("1"), 1),
    "grey with alpha": (Image.fromarray(random_pixels(8, 8)).convert("LA"), 1),
    "sixteen bits": (Image.fromarray(random_pixels(8, 8).astype(np.uint16) * 257), 1),
    "colour": (Image.fromarray(random_pixels(8, 8, 3)), 3),
    "grey palette": (Image.fromarray(random_pixels(8, 8)).convert("P"), 1),
    "colour palette": (Image.fromarray(random_pixels(8, 8, 3)).quantize(8), 3),
}


@pytest.mark.parametrize("kind", COLOURS)
def test_files_decide_between_grey_and_colour(folder: Path, kind: str) -> None:
    image, channels = COLOURS[kind]
    save_image(folder / "b.png", image)
    assert from_folder(folder, size=8).shape == (channels, 8, 8)
    assert from_folder(folder, size=8, channels=1).shape == (1, 8, 8)
    assert from_folder(folder, size=8, channels=3).shape == (3, 8, 8)
    save_image(folder / "a.png", COLOURS["colour"][0])
    assert from_folder(folder, size=8).shape == (3, 8, 8)


def test_16_bit_images_are_scaled_to_8_bit(folder: Path) -> None:
    save_image(folder / "a.png", random_pixels(8, 8).astype(np.uint16) * 257)
    assert from_folder(folder, size=8).images([0])[0, 0].tolist() == random_pixels(8, 8).tolist()


@pytest.mark.parametrize("channels", [1, 3])
def test_transparent_pixels_become_black(folder: Path, channels: int) -> None:
    colours = np.full((8, 8, 4), 200, np.uint8)
    colours[..., 3] = np.where(np.arange(8) < 4, 0, 255)
    save_image(folder / "a.png", colours)
    found = from_folder(folder, size=8, channels=channels).images([0])
    assert found.shape == (1, channels, 8, 8)
    assert found[..., :4].unique().tolist() == [0]
    assert found[..., 4:].unique().tolist() == [200]


def test_transparent_palette_colour_becomes_black(folder: Path) -> None:
    image = Image.fromarray((np.indices((8, 8)).sum(0) % 2).astype(np.uint8), "P")
    image.putpalette([255, 0, 0, 0, 0, 255])
    save_image(folder / "a.png", image, transparency=0)
    found = from_folder(folder, size=8).images([0])[0, :, 0, :2]
    assert found.T.tolist() == [[0, 0, 0], [0, 0, 255]]


def test_photos_are_rotated_upright(folder: Path) -> None:
    image = random_pixels(8, 8)
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated camera: the first row is the right side
    save_image(folder / "a.png", image, exif=exif)
    assert from_folder(folder, size=8).images([0])[0, 0].tolist() == np.rot90(image, -1).tolist()


def test_first_frame_of_an_animation_is_used(folder: Path) -> None:
    frames = [Image.fromarray(random_pixels(8, 8, key=1000 * i)) for i in range(3)]
    save_image(folder / "a.gif", frames[0], save_all=True, append_images=frames[1:])
    assert from_folder(folder, size=8, channels=1).images([0])[0, 0].tolist() == random_pixels(8, 8).tolist()


BROKEN: dict[str, Callable[[Path], object]] = {
    "truncated": truncate_to_half,
    "empty": lambda path: path.write_bytes(b""),
    "not an image": lambda path: path.write_text("<html>404</html>"),
    "only a header": lambda path: path.write_bytes(path.read_bytes()[:30]),
    "floats": lambda path: Image.fromarray(np.zeros((8, 8), np.float32)).save(path, "TIFF"),
    "missing": lambda path: (path.unlink(), path.symlink_to("nowhere")),
}


@pytest.mark.parametrize("damage", BROKEN)
@pytest.mark.parametrize("suffix", ["png", "jpg", "gif"])
def test_broken_image_is_named_in_the_error(folder: Path, damage: str, suffix: str) -> None:
    save_image(folder / "good.png", random_pixels(64, 64))
    bad = save_image(folder / f"bad.{suffix}", random_pixels(64, 64))
    BROKEN[damage](bad)
    with pytest.raises(UserError, match=rf"bad\.{suffix}"):
        from_folder(folder)


def test_broken_image_error_names_the_remedy(folder: Path) -> None:
    bad = save_image(folder / "bad.png", random_pixels(64, 64))
    truncate_to_half(bad)
    with pytest.raises(
        UserError, match=r"bad\.png must be a complete image\. .*truncated.* Replace or remove the file"
    ):
        from_folder(folder)


def test_folders_without_images_are_rejected(folder: Path) -> None:
    with pytest.raises(UserError, match=r"contain images \(\.png, .*Got 0 other files instead\. Choose a different"):
        from_folder(folder)
    np.save(folder / "x.npy", np.zeros(3))
    with pytest.raises(UserError, match=r"Got 1 other files instead\. To use the arrays in x\.npy, pass that file"):
        from_folder(folder)
    with pytest.raises(UserError, match=r"nowhere must be a folder of images.*Got a path that does not exist instead"):
        from_folder(folder / "nowhere")
    with pytest.raises(UserError, match=r"Got a file instead\. Use from_file for arrays"):
        from_folder(folder / "x.npy")


@pytest.mark.parametrize("size", [0, -3, 5000])
def test_unsupported_sizes_are_rejected_with_the_supported_ones(folder: Path, size: int) -> None:
    with pytest.raises(
        UserError, match=rf"Got {size} instead.*locatello and burgess need square images of 16, 32, 64, 128, 256 .* mlp"
    ):
        from_folder(folder, size=size)
    with pytest.raises(UserError, match=r"must be 1 \(grey\) or 3 \(colour\)\. Got 4"):
        from_folder(folder, channels=4)


def test_few_small_files_are_not_cached(folder: Path, store: Path) -> None:
    save_images(folder, "a.png")
    from_folder(folder)
    assert not store.exists()


def test_large_folder_is_decoded_once_until_a_file_changes(folder: Path, store: Path) -> None:
    before, after = random_pixels(1300, 1300, 3), random_pixels(1300, 1300, 3, key=7)
    file = save_image(folder / "a.bmp", before)  # 5 MB
    first = from_folder(folder, size=32)
    kept = {path.name for path in store.glob("own-*.npy")}
    assert len(kept) == 2
    assert from_folder(folder, size=32).fingerprint == first.fingerprint

    state = file.stat()
    save_image(file, after)
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert torch.equal(from_folder(folder, size=32).table, first.table)  # size and modification time have not changed

    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    changed = from_folder(folder, size=32)
    assert not torch.equal(changed.table, first.table)
    assert changed.fingerprint != first.fingerprint
    now = {path.name for path in store.glob("own-*.npy")}
    assert len(now) == 2
    assert not now & kept


def test_fingerprint_depends_on_names_sizes_labels_and_options(folder: Path) -> None:
    save_images(folder, "a.png", "b.png")
    seen = [from_folder(folder, size=8).fingerprint]
    assert seen == [from_folder(folder, size=8).fingerprint]
    write_csv(folder, "file,v\na.png,1\nb.png,2\n")
    seen.append(from_folder(folder, size=8).fingerprint)
    write_csv(folder, "file,v\na.png,2\nb.png,1\n")
    seen.append(from_folder(folder, size=8).fingerprint)
    seen.append(from_folder(folder, size=16).fingerprint)
    save_images(folder, "c.png")
    seen.append(from_folder(folder, size=8, labels="none").fingerprint)
    (folder / "c.png").rename(folder / "d.png")
    seen.append(from_folder(folder, size=8, labels="none").fingerprint)
    assert len(set(seen)) == len(seen) == 6


@pytest.mark.parametrize("channels", [None, 3])
def test_progress_of_a_folder_increases_to_one(folder: Path, channels: int | None) -> None:
    save_images(folder, *(f"{i}.png" for i in range(5)))
    save_image(folder / "large.bmp", random_pixels(1300, 1300, 3))
    for _ in range(2):
        seen: list[float] = []
        from_folder(folder, channels=channels, progress=seen.append)
        assert seen == sorted(seen)
        assert seen[-1] == 1


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_something_else_in_place_of_an_image_is_refused(kind: str, folder: Path) -> None:
    """A pipe that nothing writes to would make the command wait for ever."""
    save_image(folder / "0.png", random_pixels(8, 8))
    if kind == "pipe":
        os.mkfifo(folder / "1.png")
    else:
        (folder / "1.png").symlink_to("/dev/zero")
    with pytest.raises(UserError, match=r"1\.png must be an ordinary file\. Got a pipe or a device"):
        from_folder(folder)
