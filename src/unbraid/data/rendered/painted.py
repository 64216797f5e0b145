"""The study's variants of dSprites: in colour, on noise, on a picture; their chance belongs to the run that draws."""

from __future__ import annotations

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
from unbraid.noise import GAMMA, Noise, as_bytes, mix

SHAPE = (3, 64, 64)
IMAGES_AT_ONCE = 32  # images whose noise a CPU draws at once
COLOURED, NOISY, NEGATIVE = range(3)  # the first two as in engine/kernels/paint
PICTURE_SIZE = (350, 274)  # rows and columns a picture is shrunk to fit, its proportions kept


class ExampleNoise:
    """Random numbers that belong to examples: the same index always gets the same ones, as files on disk would."""

    def __init__(self, index: Int[Tensor, " b"]) -> None:
        self.keys, self.draws = mix((index + 1) * GAMMA), 0

    def bytes(self, *shape: int) -> UInt8[Tensor, "b ..."]:
        """Uint8 uniform on 0 .. 255 for every example; `shape` begins with their number, as a run's noise has it."""
        self.draws += 1
        count = math.prod(shape[1:])
        counter = torch.arange(-(-count // 8), device=self.keys.device)
        words = mix(mix(self.keys ^ self.draws)[:, None] + counter * GAMMA)
        return as_bytes(words)[:, :count].reshape(shape)


@dataclass
class PartialNoise(Noise):
    """The share of a run's noise that falls to the images from number `first` on, out of a step's many."""

    first: int = 0

    def bytes(self, *shape: int) -> UInt8[Tensor, "b ..."]:
        """Those that ``Noise.bytes`` of all images has for these; each image must take a multiple of 8."""
        self.draws += 1
        each = math.prod(shape[1:]) // 8
        counter = torch.arange(self.first * each, (self.first + shape[0]) * each, device=self.key.device)
        draw = torch.full((), self.draws, device=self.key.device) * GAMMA
        return as_bytes(mix(mix(self.key + draw) + counter * GAMMA)).view(shape)


class PaintedSprites(BinaryImages):
    """Sprites painted with random bytes: a run's own where it draws, else bytes fixed for each example."""

    binary = False
    kind = COLOURED  # sprite times `behind`; NOISY: white on it; NEGATIVE: inverting it

    def __init__(self, sprites: BinaryImages, name: str) -> None:
        super().__init__(name, sprites.names, sprites.sizes, SHAPE, sprites.table)
        self.categorical = sprites.categorical

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b 3 64 64"]:
        """The images at `index` with pixels k/255; with `noise` the colours and backgrounds of one step of one run."""
        chance = noise or ExampleNoise(index)
        if supports_kernels(self.device):
            from unbraid.accel.kernels.paint import Paint

            behind = self.behind(len(index), chance)
            return cast(Tensor, Paint.apply(self.table, index, behind, self.kind))  # type: ignore[no-untyped-call]
        return self.paint(self._sprites(index), chance).float().div_(255)  # one large buffer

    def _examples(self, index: Tensor) -> Tensor:
        return self.paint(self._sprites(index), ExampleNoise(index))

    def _sprites(self, index: Tensor) -> UInt8[Tensor, "b 1 64 64"]:
        """The sprites at `index`, every pixel 0 or 1."""
        bit = torch.arange(8, dtype=torch.uint8, device=self.device)
        return (self.table[index].unsqueeze(-1) >> bit & 1).view(*index.shape, 1, *SHAPE[1:])

    def behind(self, count: int, noise: Noise | ExampleNoise) -> UInt8[Tensor, "b ..."]:
        """The bytes that `count` sprites are painted with: a colour each, or an image behind it."""
        raise UserError(f"{type(self).__name__} must define behind(count, noise).")

    def paint(self, sprite: UInt8[Tensor, "b 1 64 64"], noise: Noise | ExampleNoise) -> UInt8[Tensor, "b 3 64 64"]:
        """The painted images."""
        behind = self.behind(len(sprite), noise)
        if self.kind == COLOURED:
            return sprite * behind
        return behind | sprite * 255 if self.kind == NOISY else behind ^ (sprite * 255)


class ColouredSprites(PaintedSprites):
    """Each sprite in one colour; the background stays black."""

    def behind(self, count: int, noise: Noise | ExampleNoise) -> UInt8[Tensor, "b 3 1 1"]:
        """RGB colours with channels uniform on 128 .. 255."""
        return _draw_colours(noise, count).bitwise_or(128)


class SpritesOnNoise(PaintedSprites):
    """Each sprite white on noise."""

    kind = NOISY

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b 3 64 64"]:
        """As all painted images; a CPU draws for few at a time, straight into place.

        The words of a large batch would outgrow what the allocator keeps, and pages returned to the system and fetched
        anew with every step cost more than all the drawing.
        """
        if self.device.type != "cpu":
            return super().batch(index, noise)
        mapped = index if noise is None else index + noise.key  # under vmap wherever one of the two is
        image = mapped.new_empty((len(index), *SHAPE), dtype=torch.float32)
        for first in range(0, len(index), IMAGES_AT_ONCE):
            part = index[first : first + IMAGES_AT_ONCE]
            chance = PartialNoise(noise.key, noise.draws, first) if noise else ExampleNoise(part)
            image[first : first + IMAGES_AT_ONCE] = self.paint(self._sprites(part), chance)
        if noise:
            noise.draws += 1
        return image.div_(255)

    def behind(self, count: int, noise: Noise | ExampleNoise) -> UInt8[Tensor, "b 3 64 64"]:
        """Uniform noise for every pixel and channel."""
        return noise.bytes(count, *SHAPE)


def _to_integers(four: UInt8[Tensor, "b 8"]) -> Int[Tensor, "b 2"]:
    """Every four bytes as a signed 32-bit integer, the lowest first."""
    words = (four.long().unflatten(1, (2, 4)) << torch.arange(0, 32, 8, device=four.device)).sum(2)
    return torch.where(words < 1 << 31, words, words - (1 << 32))


def _draw_colours(noise: Noise | ExampleNoise, count: int) -> UInt8[Tensor, "b 3 1 1"]:
    """A uniform colour an image."""
    return noise.bytes(count, 8)[:, :3, None, None]


class SpritesOnPicture(PaintedSprites):
    """Each sprite as the negative of a random piece of a picture behind it."""

    kind = NEGATIVE

    def __init__(self, sprites: BinaryImages, name: str, picture: UInt8[Tensor, "3 h w"]) -> None:
        super().__init__(sprites, name)
        self.picture = picture.to(self.device)
        self.words = shifted_words(self.picture >> 1)

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b 3 64 64"]:
        """As all painted images; kernels read crops from the picture itself."""
        if not supports_kernels(self.device):
            return super().batch(index, noise)
        from unbraid.accel.kernels.paint import Negative

        chance = noise or ExampleNoise(index)
        place, colour = self.corners(len(index), chance), _draw_colours(chance, len(index))[..., 0, 0]
        given = (self.table, index, self.picture, place, colour)
        return cast(Tensor, Negative.apply(*given))  # type: ignore[no-untyped-call]

    def corners(self, count: int, noise: Noise | ExampleNoise) -> Int[Tensor, "b 2"]:
        """Where in the picture crops begin: row and column, uniform."""
        place = _to_integers(noise.bytes(count, 8)).abs()
        return torch.stack([place[:, i] % (self.picture.shape[i + 1] - 63) for i in range(2)], 1)

    def behind(self, count: int, noise: Noise | ExampleNoise) -> UInt8[Tensor, "b 3 64 64"]:
        """(crop + colour) / 2 with a random 64x64 crop and a uniform RGB colour."""
        row, column = self.corners(count, noise).unbind(1)
        crops = self.words.unfold(2, 64, 1).unfold(3, 8, 1).permute(0, 2, 3, 1, 4, 5)  # a view: one for each corner
        background = crops[column % 8, row, column // 8].view(torch.uint8)
        return background.add_(_draw_colours(noise, count) >> 1)

    def to(self, device: str | torch.device) -> FactorData:
        """The same data on another device, the picture with it."""
        moved = super().to(device)
        assert isinstance(moved, SpritesOnPicture)
        moved.picture, moved.words = self.picture.to(device), self.words.to(device)
        return moved


def shifted_words(picture: UInt8[Tensor, "3 h w"]) -> Int64[Tensor, "8 3 h v"]:
    """Eight pixels to a word, the picture shifted left by 0 to 7 pixels: crops are copied by words, not by bytes.

    A crop from column c is 8 words from word c // 8 of shift c % 8.
    """
    width = (picture.shape[2] - 64) // 8 * 8 + 64  # where the last word that any crop reaches ends
    wide = pad(picture, (0, 7))
    return torch.stack([wide[..., i : i + width] for i in range(8)]).view(torch.int64)


def color_dsprites(device: str | torch.device = "cpu", progress: Progress | None = None) -> ColouredSprites:
    """Sprites of dSprites in random colours: 64x64x3, channels of the colour uniform on (.5, 1).

    Pixels are bytes. A run draws its own colours, a function of its seed and step; where no run draws (scores,
    pictures) an example always has the same colour. Reference: Locatello et al. (2019), arXiv:1811.12359.
    """
    return ColouredSprites(dsprites(device, progress=progress), "color_dsprites")


def noisy_dsprites(device: str | torch.device = "cpu", progress: Progress | None = None) -> SpritesOnNoise:
    """Sprites of dSprites on noise: 64x64x3, white sprites on uniform noise in every pixel and channel.

    Pixels are bytes. A run draws its own noise, a function of its seed and step; where no run draws (scores, pictures)
    an example always has the same noise. Reference: Locatello et al. (2019), arXiv:1811.12359.
    """
    return SpritesOnNoise(dsprites(device, progress=progress), "noisy_dsprites")


def scream_dsprites(
    device: str | torch.device = "cpu", progress: Progress | None = None, picture: str | Path | None = None
) -> SpritesOnPicture:
    """Sprites of dSprites on a painting: 64x64x3, each the negative of a randomly tinted piece of a picture.

    The study used a photograph of Munch's Scream. Built in is a picture of our own in its manner (`swirl_picture`), computed
    from waves; `picture` is any image file instead, shrunk to fit 350 rows and 274 columns. Pixels are bytes. A run
    draws its own pieces, a function of its seed and step; where no run draws, an example always has the same piece.
    Reference: Locatello et al. (2019), arXiv:1811.12359.
    """
    back = swirl_picture() if picture is None else read_picture(Path(picture))
    return SpritesOnPicture(dsprites(device, progress=progress), "scream_dsprites", back)


def swirl_picture() -> UInt8[Tensor, "3 350 274"]:
    """A painted sky over dark water: bands of orange, yellow and blue bent by slow waves, brush strokes along them."""
    y, x = torch.meshgrid(*(torch.linspace(0, s / 100, s, dtype=torch.float64) for s in PICTURE_SIZE), indexing="ij")
    bend = 0.35 * (1.7 * x + 0.6 * y).sin() + 0.22 * (3.1 * x - 1.9 * y + 1).sin() + 0.1 * (5.3 * x + 2.2 * y).cos()
    band = 6.5 * (y + bend)
    stroke = 0.12 * (9 * band + 3 * (7 * x).sin()).sin()
    warm = 0.5 + 0.5 * (band - 0.8).sin() + stroke
    dusk = ((y + bend - 1.7) * 2.5).sigmoid()
    red = (0.55 + 0.42 * warm) * (1 - 0.75 * dusk) + 0.1 * dusk
    green = (0.25 + 0.38 * warm) * (1 - 0.55 * dusk) + 0.16 * dusk * (1 + warm)
    blue = (0.22 - 0.1 * warm) * (1 - dusk) + (0.3 + 0.3 * warm) * dusk
    return (torch.stack([red, green, blue]).clamp(0, 1) * 255).round().to(torch.uint8)


def read_picture(path: Path) -> UInt8[Tensor, "3 h w"]:
    """An image file in RGB, shrunk to fit `PICTURE_SIZE`, its proportions kept."""
    import numpy as np
    from PIL import Image

    try:
        with Image.open(path) as image:
            small = image.convert("RGB")
    except (OSError, ValueError) as error:
        raise UserError(f"The picture {path} must be an image file that Pillow reads. Got: {error}.") from error
    small.thumbnail((PICTURE_SIZE[1], PICTURE_SIZE[0]), Image.Resampling.LANCZOS)
    if min(small.size) < 64:
        raise UserError(
            f"The picture must be at least 64 pixels wide and high after shrinking to fit {PICTURE_SIZE[1]}x{PICTURE_SIZE[0]}. "
            f"Got {small.size[0]}x{small.size[1]} from {path}. Choose a larger or less narrow one."
        )
    return torch.from_numpy(np.array(small)).permute(2, 0, 1)
