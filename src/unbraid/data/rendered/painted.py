"""Three variants of dSprites from Locatello et al. (2019), with coloured sprites, noise, or crops of a picture.

In training, colours and backgrounds are drawn from the random stream of the run. Otherwise, each example always has the
same colour or background.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from jaxtyping import Float, Int, Int64, UInt8
from torch import Tensor
from torch.nn.functional import pad

from unbraid.accel.capture import supports_kernels
from unbraid.data.dataset import BinaryImages, FactorData, Progress
from unbraid.data.rendered.dsprites import dsprites
from unbraid.errors import UserError
from unbraid.noise import GAMMA, Noise, as_bytes, mix, noise_kernels
from unbraid.runtime.files import refuse_special_file
from unbraid.runtime.read_errors import READ_ERRORS, read_reason

SHAPE = (3, 64, 64)
IMAGES_AT_ONCE = 32  # number of images whose noise is drawn together on a CPU
COLOURED, NOISY, NEGATIVE = range(3)  # COLOURED and NOISY must have the same values as in accel/kernels/paint.py
PICTURE_SIZE = (350, 274)  # maximum rows and columns of a picture; larger pictures are reduced proportionally


class ExampleNoise:
    """Random numbers that depend only on the index of an example."""

    def __init__(self, index: Int[Tensor, " b"]) -> None:
        self.keys, self.draws = mix((index + 1) * GAMMA), 0

    def bytes(self, *shape: int) -> UInt8[Tensor, "b ..."]:
        """Return uniform bytes of the given shape, as `Noise.bytes` does. The first axis has one entry per example."""
        self.draws += 1
        count = math.prod(shape[1:])
        words, keys = -(-count // 8), self.keys ^ self.draws
        if (kernels := noise_kernels(keys.device)) is not None:
            drawn = kernels.Draw.apply(keys, 0, (8 * words,), kernels.BYTES)
        else:
            counter = torch.arange(words, device=keys.device)
            drawn = as_bytes(mix(mix(keys)[:, None] + counter * GAMMA))
        return cast(Tensor, drawn[:, :count].reshape(shape))


@dataclass
class PartialNoise(Noise):
    """The noise of consecutive images of a training batch. `first` is the position of the first image in the batch."""

    first: int = 0

    def bytes(self, *shape: int) -> UInt8[Tensor, "b ..."]:
        """Return the random bytes of these images.

        They equal the corresponding bytes in the result of `Noise.bytes` for all images of the step. The number of
        bytes per image must be a multiple of 8.
        """
        self.draws += 1
        words_per_image = math.prod(shape[1:]) // 8
        counter = torch.arange(
            self.first * words_per_image, (self.first + shape[0]) * words_per_image, device=self.key.device
        )
        draw = torch.full((), self.draws, device=self.key.device) * GAMMA
        return as_bytes(mix(mix(self.key + draw) + counter * GAMMA)).view(shape)


class PaintedSprites(BinaryImages):
    """Sprites with random colours or backgrounds."""

    binary = False
    # How sprites are combined with the result of `backdrop`. COLOURED: the sprite is multiplied by the backdrop. NOISY:
    # the sprite is white on the backdrop. NEGATIVE: the sprite inverts the backdrop.
    kind = COLOURED

    def __init__(self, sprites: BinaryImages, name: str) -> None:
        super().__init__(name, sprites.names, sprites.sizes, SHAPE, sprites.table)
        self.categorical, self.cyclic = sprites.categorical, sprites.cyclic

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b 3 64 64"]:
        """Return the images at `index`. Pixels are multiples of 1/255.

        Colours and backgrounds are drawn from `noise`. If it is None, they depend only on the index.
        """
        source = noise or ExampleNoise(index)
        if supports_kernels(self.device):
            from unbraid.accel.kernels.paint import Paint

            backdrop = self.backdrop(len(index), source)
            return cast(Tensor, Paint.apply(self.table, index, backdrop, self.kind))  # type: ignore[no-untyped-call]
        return self.paint(self._sprites(index), source).float().div_(255)  # in place, to allocate only one large buffer

    def _examples(self, index: Tensor) -> Tensor:
        return self.paint(self._sprites(index), ExampleNoise(index))

    def _sprites(self, index: Tensor) -> UInt8[Tensor, "b 1 64 64"]:
        """Return the sprites at `index`, with pixels 0 or 1."""
        bit = torch.arange(8, dtype=torch.uint8, device=self.device)
        return (self.table[index].unsqueeze(-1) >> bit & 1).view(*index.shape, 1, *SHAPE[1:])

    def backdrop(self, count: int, noise: Noise | ExampleNoise) -> UInt8[Tensor, "b ..."]:
        """Return the bytes with which `count` sprites are painted: one colour or one background per sprite."""
        raise NotImplementedError(f"{type(self).__name__} must define backdrop(count, noise).")

    def paint(self, sprite: UInt8[Tensor, "b 1 64 64"], noise: Noise | ExampleNoise) -> UInt8[Tensor, "b 3 64 64"]:
        """Return the painted images."""
        backdrop = self.backdrop(len(sprite), noise)
        if self.kind == COLOURED:
            return sprite * backdrop
        return backdrop | sprite * 255 if self.kind == NOISY else backdrop ^ (sprite * 255)


class ColouredSprites(PaintedSprites):
    """Sprites in random colours on a black background."""

    def backdrop(self, count: int, noise: Noise | ExampleNoise) -> UInt8[Tensor, "b 3 1 1"]:
        """Draw RGB colours. Each channel is uniform on 128 .. 255."""
        return _draw_colours(noise, count).bitwise_or(128)


class SpritesOnNoise(PaintedSprites):
    """White sprites on a background of noise."""

    kind = NOISY

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b 3 64 64"]:
        """Return the images at `index`, as in the base class.

        On a CPU, noise is drawn for a few images at a time. The random numbers of a large batch would take more memory
        than the allocator reuses. Memory would then be requested from the operating system and returned in every step,
        which takes longer than drawing the noise.
        """
        if self.device.type != "cpu":
            return super().batch(index, noise)
        # Under vmap, `mapped` is a mapped tensor if `index` or the key is mapped. The tensor `image`, which is created
        # from it, is then mapped as well, so that results can be written into it.
        mapped = index if noise is None else index + noise.key
        image = mapped.new_empty((len(index), *SHAPE), dtype=torch.float32)
        for first in range(0, len(index), IMAGES_AT_ONCE):
            part = index[first : first + IMAGES_AT_ONCE]
            source = PartialNoise(noise.key, noise.draws, first) if noise else ExampleNoise(part)
            image[first : first + IMAGES_AT_ONCE] = self.paint(self._sprites(part), source)
        if noise:
            noise.draws += 1
        return image.div_(255)

    def backdrop(self, count: int, noise: Noise | ExampleNoise) -> UInt8[Tensor, "b 3 64 64"]:
        """Draw uniform noise for every pixel and channel."""
        return noise.bytes(count, *SHAPE)


def _to_integers(four: UInt8[Tensor, "b 8"]) -> Int[Tensor, "b 2"]:
    """Convert each group of four bytes to a signed 32-bit integer. The lowest byte comes first."""
    words = (four.long().unflatten(1, (2, 4)) << torch.arange(0, 32, 8, device=four.device)).sum(2)
    return torch.where(words < 1 << 31, words, words - (1 << 32))


def _draw_colours(noise: Noise | ExampleNoise, count: int) -> UInt8[Tensor, "b 3 1 1"]:
    """Draw a uniform RGB colour for each image."""
    return noise.bytes(count, 8)[:, :3, None, None]


class SpritesOnPicture(PaintedSprites):
    """Sprites on random crops of a picture. The colours of a crop are inverted where the sprite is.

    Attributes:
        digest: A digest of the picture of a user. It is empty for the default picture.
    """

    kind = NEGATIVE
    digest: str = ""

    @property
    def fingerprint(self) -> str | None:
        """The digest of the picture of a user, or None for the default picture, which the name identifies."""
        return self.digest or None

    def __init__(self, sprites: BinaryImages, name: str, picture: UInt8[Tensor, "3 h w"]) -> None:
        super().__init__(sprites, name)
        self.picture = picture.to(self.device)
        self.words = pack_shifted_pictures(self.picture >> 1)

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b 3 64 64"]:
        """Return the images at `index`, as in the base class. GPU kernels read crops directly from the picture."""
        if not supports_kernels(self.device):
            return super().batch(index, noise)
        from unbraid.accel.kernels.paint import Negative

        source = noise or ExampleNoise(index)
        corners, colour = self.corners(len(index), source), _draw_colours(source, len(index))[..., 0, 0]
        arguments = (self.table, index, self.picture, corners, colour)
        return cast(Tensor, Negative.apply(*arguments))  # type: ignore[no-untyped-call]

    def corners(self, count: int, noise: Noise | ExampleNoise) -> Int[Tensor, "b 2"]:
        """Draw the row and column of the top left corner of each crop, uniformly."""
        number = _to_integers(noise.bytes(count, 8)).abs()
        return torch.stack([number[:, i] % (self.picture.shape[i + 1] - 63) for i in range(2)], 1)

    def backdrop(self, count: int, noise: Noise | ExampleNoise) -> UInt8[Tensor, "b 3 64 64"]:
        """Return (crop + colour) / 2, where the 64x64 crops and the RGB colours are random and uniform."""
        row, column = self.corners(count, noise).unbind(1)
        crops = (
            self.words.unfold(2, 64, 1).unfold(3, 8, 1).permute(0, 2, 3, 1, 4, 5)
        )  # a view that contains the crop at every possible corner
        background = crops[column % 8, row, column // 8].view(torch.uint8)
        return background.add_(_draw_colours(noise, count) >> 1)

    def to(self, device: str | torch.device) -> FactorData:
        """Return the same data, including the picture, on a different device."""
        moved = super().to(device)
        assert isinstance(moved, SpritesOnPicture)
        moved.picture, moved.words = self.picture.to(device), self.words.to(device)
        return moved


def pack_shifted_pictures(picture: UInt8[Tensor, "3 h w"]) -> Int64[Tensor, "8 3 h v"]:
    """Return the picture shifted left by 0 to 7 pixels, with eight pixels packed into each 64-bit word.

    With these words, a crop can be copied word by word instead of byte by byte. Each row of a crop that begins at
    column c consists of 8 consecutive words, starting at word c // 8, of the picture that is shifted by c % 8 pixels.
    """
    width = (picture.shape[2] - 64) // 8 * 8 + 64  # no crop uses later columns of a shifted picture
    wide = pad(picture, (0, 7))
    return torch.stack([wide[..., i : i + width] for i in range(8)]).view(torch.int64)


def color_dsprites(device: str | torch.device = "cpu", progress: Progress | None = None) -> ColouredSprites:
    """Render dSprites in random colours: 737,280 images 64x64x3, with each channel of a colour uniform on (0.5, 1).

    In each training step, a run draws new colours. They depend on the random seed of the run and on the step. In
    scoring and in figures, an example always has the same colour.
    Reference: Locatello et al. (2019), arXiv:1811.12359.

    Args:
        device: Device on which to store the examples.
        progress: Called with the finished fraction, from 0 to 1.

    Returns:
        737,280 images of shape (3, 64, 64) with the factors of dSprites.
    """
    return ColouredSprites(dsprites(device, progress=progress), "color_dsprites")


def noisy_dsprites(device: str | torch.device = "cpu", progress: Progress | None = None) -> SpritesOnNoise:
    """Render dSprites on noise: 737,280 images 64x64x3 of white sprites on uniform noise in every pixel and channel.

    In each training step, a run draws new noise. It depends on the random seed of the run and on the step. In scoring
    and in figures, an example always has the same noise.
    Reference: Locatello et al. (2019), arXiv:1811.12359.

    Args:
        device: Device on which to store the examples.
        progress: Called with the finished fraction, from 0 to 1.

    Returns:
        737,280 images of shape (3, 64, 64) with the factors of dSprites.
    """
    return SpritesOnNoise(dsprites(device, progress=progress), "noisy_dsprites")


def scream_dsprites(
    device: str | torch.device = "cpu", progress: Progress | None = None, picture: str | Path | None = None
) -> SpritesOnPicture:
    """Render dSprites on a picture: 737,280 images 64x64x3 of tinted crops, with inverted colours where the sprite is.

    Locatello et al. used a photograph of Munch's painting The Scream. The default here is a computed picture in a
    similar style (`swirl_picture`). In each training step, a run draws new crops. They depend on the random seed of the
    run and on the step. In scoring and in figures, an example always has the same crop.
    Reference: Locatello et al. (2019), arXiv:1811.12359.

    Args:
        device: Device on which to store the examples.
        progress: Called with the finished fraction, from 0 to 1.
        picture: Path of an image file to use instead of the default picture. It is reduced to fit into 350 rows and
            274 columns.

    Returns:
        737,280 images of shape (3, 64, 64) with the factors of dSprites.

    Raises:
        UserError: If the picture cannot be read or is too small.
    """
    background = swirl_picture() if picture is None else read_picture(Path(picture))
    data = SpritesOnPicture(dsprites(device, progress=progress), "scream_dsprites", background)
    if picture is not None:
        data.digest = hashlib.sha256(background.numpy().tobytes()).hexdigest()[:16]
    return data


def swirl_picture() -> UInt8[Tensor, "3 350 274"]:
    """Compute a picture of a sky over dark water, with wavy bands of orange, yellow and blue and brush strokes."""
    y, x = torch.meshgrid(*(torch.linspace(0, s / 100, s, dtype=torch.float64) for s in PICTURE_SIZE), indexing="ij")
    waves = 0.35 * (1.7 * x + 0.6 * y).sin() + 0.22 * (3.1 * x - 1.9 * y + 1).sin() + 0.1 * (5.3 * x + 2.2 * y).cos()
    band = 6.5 * (y + waves)
    stroke = 0.12 * (9 * band + 3 * (7 * x).sin()).sin()
    warm = 0.5 + 0.5 * (band - 0.8).sin() + stroke
    dusk = ((y + waves - 1.7) * 2.5).sigmoid()
    red = (0.55 + 0.42 * warm) * (1 - 0.75 * dusk) + 0.1 * dusk
    green = (0.25 + 0.38 * warm) * (1 - 0.55 * dusk) + 0.16 * dusk * (1 + warm)
    blue = (0.22 - 0.1 * warm) * (1 - dusk) + (0.3 + 0.3 * warm) * dusk
    return (torch.stack([red, green, blue]).clamp(0, 1) * 255).round().to(torch.uint8)


def read_picture(path: Path) -> UInt8[Tensor, "3 h w"]:
    """Read an image file as RGB, and reduce it to fit into `PICTURE_SIZE` without changing its proportions."""
    import numpy as np
    from PIL import Image

    refuse_special_file(path)
    try:
        with Image.open(path) as image:
            small = image.convert("RGB")
    except (*READ_ERRORS, Image.DecompressionBombError) as error:
        raise UserError(
            f"The picture {path} must be an image file. Reading it with Pillow failed: {read_reason(error)}. Choose "
            "another picture."
        ) from error
    small.thumbnail((PICTURE_SIZE[1], PICTURE_SIZE[0]), Image.Resampling.LANCZOS)
    if min(small.size) < 64:
        raise UserError(
            f"A picture must be at least 64 pixels wide and high after it is reduced to fit into {PICTURE_SIZE[1]}x"
            f"{PICTURE_SIZE[0]}. Got {small.size[0]}x{small.size[1]} from {path} instead. Choose a larger or less "
            "narrow picture."
        )
    return torch.from_numpy(np.array(small)).permute(2, 0, 1)
