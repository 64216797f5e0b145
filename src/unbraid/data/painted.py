"""The study's variants of dSprites: in colour, on noise, on a picture; their chance belongs to the run that draws."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from unbraid.data.base import BinaryImages, FactorData, Progress
from unbraid.data.dsprites import dsprites
from unbraid.errors import Refusal
from unbraid.noise import GAMMA, Noise, mix

SHAPE = (3, 64, 64)
PICTURE = (350, 274)  # rows and columns a picture is shrunk to fit, its proportions kept


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
        return words.view(torch.uint8)[:, :count].reshape(shape)


class Painted(BinaryImages):
    """Sprites painted with random bytes: a run's own where it draws, else bytes fixed for each example."""

    binary = False

    def __init__(self, sprites: BinaryImages, name: str) -> None:
        super().__init__(name, sprites.names, sprites.sizes, SHAPE, sprites.table)
        self.categorical = sprites.categorical

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b 3 64 64"]:
        """The images at `index` with pixels k/255; with `noise` the colours and backgrounds of one step of one run."""
        return self.paint(self._sprites(index), noise or ExampleNoise(index)).float() / 255

    def _examples(self, index: Tensor) -> Tensor:
        return self.paint(self._sprites(index), ExampleNoise(index))

    def _sprites(self, index: Tensor) -> UInt8[Tensor, "b 1 64 64"]:
        """The sprites at `index`, every pixel 0 or 1."""
        bit = torch.arange(8, dtype=torch.uint8, device=self.device)
        return (self.table[index].unsqueeze(-1) >> bit & 1).view(*index.shape, 1, *SHAPE[1:])

    def paint(self, sprite: UInt8[Tensor, "b 1 64 64"], noise: Noise | ExampleNoise) -> UInt8[Tensor, "b 3 64 64"]:
        """The painted images."""
        raise TypeError(f"{type(self).__name__} must define paint(sprite, noise).")


class Coloured(Painted):
    """Each sprite in one colour."""

    def paint(self, sprite: UInt8[Tensor, "b 1 64 64"], noise: Noise | ExampleNoise) -> UInt8[Tensor, "b 3 64 64"]:
        """The sprite times an RGB colour with channels uniform on 128 .. 255; the background stays black."""
        return sprite * _rgb(noise, len(sprite)).bitwise_or(128)


class Noisy(Painted):
    """Each sprite white on noise."""

    def paint(self, sprite: UInt8[Tensor, "b 1 64 64"], noise: Noise | ExampleNoise) -> UInt8[Tensor, "b 3 64 64"]:
        """The sprite plus uniform noise for every pixel and channel, cut at 255."""
        return noise.bytes(len(sprite), *SHAPE).bitwise_or(sprite * 255)


def _rgb(noise: Noise | ExampleNoise, count: int) -> UInt8[Tensor, "b 3 1 1"]:
    """A uniform colour an image."""
    return noise.bytes(count, 8)[:, :3, None, None]


class OnPicture(Painted):
    """Each sprite as the negative of a random piece of a picture behind it."""

    def __init__(self, sprites: BinaryImages, name: str, picture: UInt8[Tensor, "3 h w"]) -> None:
        super().__init__(sprites, name)
        self.picture = picture.to(self.device)

    def paint(self, sprite: UInt8[Tensor, "b 1 64 64"], noise: Noise | ExampleNoise) -> UInt8[Tensor, "b 3 64 64"]:
        """Background (crop + colour) / 2 with a random 64x64 crop and a uniform RGB colour; inverted on the sprite."""
        place = noise.bytes(len(sprite), 8).view(torch.int32).long().abs()
        crops = self.picture.unfold(1, 64, 1).unfold(2, 64, 1).permute(1, 2, 0, 3, 4)  # a view: one for each corner
        crop = crops[place[:, 0] % crops.shape[0], place[:, 1] % crops.shape[1]]
        background = (crop >> 1) + (_rgb(noise, len(sprite)) >> 1)
        return background ^ (sprite * 255)

    def to(self, device: str | torch.device) -> FactorData:
        """The same data on another device, the picture with it."""
        moved = super().to(device)
        assert isinstance(moved, OnPicture)
        moved.picture = self.picture.to(device)
        return moved


def color_dsprites(device: str | torch.device = "cpu", progress: Progress | None = None) -> Coloured:
    """Sprites of dSprites in random colours: 64x64x3, channels of the colour uniform on (.5, 1).

    Pixels are bytes. A run draws its own colours, a function of its seed and step; where no run draws (scores,
    pictures) an example always has the same colour. Reference: Locatello et al. (2019), arXiv:1811.12359.
    """
    return Coloured(dsprites(device, progress=progress), "color_dsprites")


def noisy_dsprites(device: str | torch.device = "cpu", progress: Progress | None = None) -> Noisy:
    """Sprites of dSprites on noise: 64x64x3, white sprites on uniform noise in every pixel and channel.

    Pixels are bytes. A run draws its own noise, a function of its seed and step; where no run draws (scores, pictures)
    an example always has the same noise. Reference: Locatello et al. (2019), arXiv:1811.12359.
    """
    return Noisy(dsprites(device, progress=progress), "noisy_dsprites")


def scream_dsprites(
    device: str | torch.device = "cpu", progress: Progress | None = None, picture: str | Path | None = None
) -> OnPicture:
    """Sprites of dSprites on a painting: 64x64x3, each the negative of a randomly tinted piece of a picture.

    The study used a photograph of Munch's Scream. Built in is a picture of our own in its manner (`swirls`), computed
    from waves; `picture` is any image file instead, shrunk to fit 350 rows and 274 columns. Pixels are bytes. A run
    draws its own pieces, a function of its seed and step; where no run draws, an example always has the same piece.
    Reference: Locatello et al. (2019), arXiv:1811.12359.
    """
    back = swirls() if picture is None else read_picture(Path(picture))
    return OnPicture(dsprites(device, progress=progress), "scream_dsprites", back)


def swirls() -> UInt8[Tensor, "3 350 274"]:
    """A painted sky over dark water: bands of orange, yellow and blue bent by slow waves, brush strokes along them."""
    y, x = torch.meshgrid(*(torch.linspace(0, s / 100, s, dtype=torch.float64) for s in PICTURE), indexing="ij")
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
    """An image file in RGB, shrunk to fit `PICTURE`, its proportions kept."""
    import numpy as np
    from PIL import Image

    try:
        with Image.open(path) as image:
            small = image.convert("RGB")
    except (OSError, ValueError) as error:
        raise Refusal(f"The picture {path} must be an image file that Pillow reads. Got: {error}.") from error
    small.thumbnail((PICTURE[1], PICTURE[0]), Image.Resampling.LANCZOS)
    if min(small.size) < 64:
        raise Refusal(
            f"The picture must be at least 64 pixels wide and high after shrinking to fit {PICTURE[1]}x{PICTURE[0]}. "
            f"Got {small.size[0]}x{small.size[1]} from {path}. Choose a larger or less narrow one."
        )
    return torch.from_numpy(np.array(small)).permute(2, 0, 1)
