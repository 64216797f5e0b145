"""Datasets with known factors: sizes, names, index <-> factors, and the images."""

from __future__ import annotations

from collections.abc import Callable

import torch

from unbraid.data.base import BinaryImages, FactorData, Progress
from unbraid.data.dsprites import dsprites
from unbraid.data.sprites import sprites
from unbraid.data.toy import Toy, toy
from unbraid.errors import unknown

DATASETS: dict[str, Callable[..., FactorData]] = {"dsprites": dsprites, "sprites": sprites, "toy": toy}


def load(name: str, *, device: str | torch.device = "cpu", progress: Progress | None = None) -> FactorData:
    """The dataset called `name` on `device`; `progress` is told the fraction done while it is made."""
    if name not in DATASETS:
        raise ValueError(unknown("dataset", name, DATASETS))
    return DATASETS[name](device=device, progress=progress)


__all__ = ["DATASETS", "BinaryImages", "FactorData", "Progress", "Toy", "dsprites", "load", "sprites", "toy"]
