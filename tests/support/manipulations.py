"""Small data to manipulate, and a short game on it."""

from __future__ import annotations

from typing import Any

import numpy as np

from unbraid.data import FactorData, from_arrays
from unbraid.manipulation.game import Game, recipe_of

SMALL: dict[str, Any] = {"steps": 4, "batch": 8, "samples": 2, "learning_rate": 1e-3, "quiet": True}


def discs(across: int = 8, down: int = 6) -> FactorData:
    """Soft discs of 16 x 16 pixels that move: a user's own grid of images, in memory."""
    y, x = np.mgrid[0:16, 0:16]
    places = [(i, j) for i in range(across) for j in range(down)]
    images = [np.exp(-((x - 4 - i) ** 2 + (y - 5 - j) ** 2) / 6) for i, j in places]
    return from_arrays(np.stack(images), np.array(places), names=["right", "down"])


def played(data: FactorData, **changes: Any) -> Game:
    """A game after a few steps."""
    game = Game(data, recipe_of(data, 0.1, 4, 8, 2, 1, "closest", None, "bernoulli", 1e-3, changes.get("seed", 0)))
    for step in range(4):
        game.step(step)
    return game
