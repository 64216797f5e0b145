"""dSprites in colour, on noise and on a picture."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from PIL import Image
from scipy import stats
from torch import Tensor
from torch.func import vmap

from support.builtin_data import draw_indices, load_dataset
from unbraid.data import load
from unbraid.data.rendered import painted
from unbraid.data.rendered.painted import (
    IMAGES_AT_ONCE,
    SpritesOnNoise,
    SpritesOnPicture,
    pack_shifted_pictures,
    swirl_picture,
)
from unbraid.errors import UserError
from unbraid.noise import Noise
from unbraid.runs.run_data import files_digest


def test_a_run_paints_with_its_own_noise() -> None:
    index = torch.arange(0, 737_280, 60_000)
    for name in ("color_dsprites", "noisy_dsprites", "scream_dsprites"):
        data = load_dataset(name)
        first, again, other = (data.batch(index, Noise(torch.tensor(key))) for key in (1, 1, 2))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        assert not torch.equal(first, data.batch(index))
        keys = torch.tensor([1, 2])
        assert torch.equal(vmap(lambda key, d=data: d.batch(index, Noise(key)))(keys), torch.stack([first, other]))


def test_painted_images_follow_their_definitions() -> None:
    index = draw_indices(load_dataset("dsprites"), 200)
    sprite = load_dataset("dsprites").batch(index).bool().expand(-1, 3, -1, -1)
    colour, noisy, scream = (
        load_dataset(name).images(index) for name in ("color_dsprites", "noisy_dsprites", "scream_dsprites")
    )
    assert not colour[~sprite].any()
    shades = [image[:, mask].unique(dim=1) for image, mask in zip(colour, sprite[:, 0], strict=True)]
    assert all(shade.shape == (3, 1) and int(shade.min()) >= 128 for shade in shades)
    assert stats.kstest((torch.cat(shades, 1).flatten() - 128) / 127, "uniform").pvalue > 1e-4
    assert (noisy[sprite] == 255).all()
    assert stats.chisquare(torch.bincount(noisy[~sprite].int(), minlength=256).numpy()).pvalue > 1e-5
    background = torch.where(sprite, 255 - scream, scream)  # the sprite is the negative of the background
    tint = background.int() - (swirl_picture().int() // 2).amin((1, 2))[:, None, None]
    assert int(background.max()) <= 254
    assert int(tint.min()) >= 0
    smooth = (background[:, :, :, 1:].int() - background[:, :, :, :-1].int()).abs().float().mean()
    assert float(smooth) < 3  # a picture, not noise


def test_noise_drawn_in_parts_equals_noise_drawn_at_once() -> None:
    data = load_dataset("noisy_dsprites")
    assert isinstance(data, SpritesOnNoise)
    for n in (0, 1, IMAGES_AT_ONCE, 2 * IMAGES_AT_ONCE + 3):
        index, noise, other = draw_indices(data, n), Noise(torch.tensor(5), 2), Noise(torch.tensor(5), 2)
        whole = data.paint(data._sprites(index), noise).float() / 255
        assert torch.equal(data.batch(index, other), whole)
        assert other.draws == noise.draws
        assert torch.equal(data.batch(index), data.images(index) / 255)
    keys, rows = torch.tensor([1, 2]), torch.stack([index, index.flip(0)])
    alone = torch.stack([data.batch(i, Noise(key)) for i, key in zip(rows, keys, strict=True)])
    assert torch.equal(vmap(lambda i, key: data.batch(i, Noise(key)))(rows, keys), alone)
    assert torch.equal(vmap(lambda i: data.batch(i, Noise(keys[0])))(rows)[0], alone[0])
    assert torch.equal(vmap(data.batch)(rows)[1], data.batch(rows[1]))


def test_crops_copied_by_words_equal_crops_of_the_picture() -> None:
    for width in (64, 65, 71, 72, 274):
        picture = Noise(torch.tensor(width)).bytes(3, 80, 8 * width).view(3, 80, -1)[:, :, :width]
        crops = pack_shifted_pictures(picture).unfold(3, 8, 1)
        for column in range(width - 63):
            found = crops[column % 8, :, :, column // 8].contiguous().view(torch.uint8)
            assert torch.equal(found, picture[:, :, column : column + 64])


def test_sprites_on_a_user_picture(tmp_path: Path) -> None:
    Image.new("RGB", (400, 300), (10, 200, 90)).save(tmp_path / "flat.png")
    data = load(f"scream_dsprites?picture={tmp_path / 'flat.png'}")
    assert isinstance(data, SpritesOnPicture)
    assert data.picture.shape == (3, 206, 274)
    corner = data.images([0])[0, :, 0, 0].int()
    assert ((corner - torch.tensor([5, 100, 45])) >= 0).all()
    Image.new("RGB", (400, 300), (10, 200, 91)).save(tmp_path / "flat.png")
    changed = load(data.name)
    assert isinstance(changed, SpritesOnPicture)
    assert None not in (data.fingerprint, files_digest(data))
    assert (changed.fingerprint, files_digest(changed)) != (data.fingerprint, files_digest(data))
    for broken, message in (
        (tmp_path / "none.png", "must be an image file"),
        (tmp_path / "thin.png", "at least 64 pixels"),
    ):
        Image.new("RGB", (2000, 30)).save(tmp_path / "thin.png")
        with pytest.raises(UserError, match=message):
            load(f"scream_dsprites?picture={broken}")


def test_a_damaged_picture_is_refused(tmp_path: Path) -> None:
    """For a damaged chunk of a PNG file, Pillow raises a SyntaxError."""
    Image.new("RGB", (400, 300), (10, 200, 90)).save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(content[:-24] + b"(" + content[-24:])
    with pytest.raises(UserError, match=r"a\.png must be an image file.*broken PNG file"):
        load(f"scream_dsprites?picture={tmp_path / 'a.png'}")


def test_a_pipe_in_place_of_a_picture_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(UserError, match="must be an ordinary file"):
        load(f"scream_dsprites?picture={tmp_path / 'a.png'}")


@pytest.mark.parametrize("name", ["color_dsprites", "noisy_dsprites", "scream_dsprites"])
def test_kernels_equal_the_cpu_code(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU kernels, run by Triton's interpreter, are bitwise equal to the CPU code, for runs and fixed examples."""
    pytest.importorskip("triton")
    data = load(name)
    index = torch.tensor([[0, 5], [70_000, len(data) - 1]])
    keys = torch.tensor([11, 12])

    def batch(i: Tensor, key: Tensor) -> Tensor:
        return data.batch(i, Noise(key))

    plain = vmap(batch)(index, keys), data.batch(index[0])
    monkeypatch.setattr(painted, "supports_kernels", lambda device: True)
    if name == "noisy_dsprites":
        monkeypatch.setattr(painted.SpritesOnNoise, "batch", painted.PaintedSprites.batch)
    assert torch.equal(vmap(batch)(index, keys), plain[0])
    assert torch.equal(data.batch(index[0]), plain[1])
