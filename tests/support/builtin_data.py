"""Built-in datasets, each generated once per test session."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from unbraid.data import BinaryImages, FactorData, dsprites, load
from unbraid.data.rendered.painted import ColouredSprites, SpritesOnNoise, SpritesOnPicture, swirl_picture
from unbraid.noise import Noise


@functools.cache
def load_dataset(name: str) -> FactorData:
    """Return a built-in dataset, without the cache on disk."""
    if name == "dsprites":
        return dsprites(cache=False)
    if name.endswith("dsprites"):
        plain = load_dataset("dsprites")
        assert isinstance(plain, BinaryImages)
        painted = {"color_dsprites": ColouredSprites, "noisy_dsprites": SpritesOnNoise}
        return painted[name](plain, name) if name in painted else SpritesOnPicture(plain, name, swirl_picture())
    return load(name)


def draw_indices(data: FactorData, n: int, key: int = 5) -> Tensor:
    """Return the indices of `n` random examples."""
    return data.draw(Noise(torch.tensor(key)), n)
