"""A small dataset to manipulate, and a short adversarial training on it."""

from __future__ import annotations

from typing import Any

import numpy as np

from unbraid.data import FactorData, from_arrays
from unbraid.manipulation.adversarial_training import AdversarialTraining
from unbraid.manipulation.settings import fill_settings

SMALL: dict[str, Any] = {"steps": 4, "batch": 8, "samples": 2, "learning_rate": 1e-3, "quiet": True}


def discs(across: int = 8, down: int = 6) -> FactorData:
    """Return 16 x 16 images of a soft disc at all positions of a grid, as a user's dataset in memory."""
    y, x = np.mgrid[0:16, 0:16]
    places = [(i, j) for i in range(across) for j in range(down)]
    images = [np.exp(-((x - 4 - i) ** 2 + (y - 5 - j) ** 2) / 6) for i, j in places]
    return from_arrays(np.stack(images), np.array(places), names=["right", "down"])


def short_training(data: FactorData, seed: int = 0) -> AdversarialTraining:
    """Return an adversarial training after four steps."""
    settings = fill_settings(data, 0.1, 4, 8, 2, 1, "closest", None, "bernoulli", 1e-3, seed)
    training = AdversarialTraining(data, settings)
    for step in range(4):
        training.step(step)
    return training
