"""Recipes: named sets of settings with which a manipulation is trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unbraid.errors import UserError, unknown_name_message

RECIPES: dict[str, dict[str, Any]] = {
    "default": {
        "learning_rate": 1e-3, "pace": 0.1, "rounds": 3, "warm": 0.1, "objective": "log_ratio", "normalise": True,
        "scalar": "diagonal",
    },
    "paper": {
        "learning_rate": 1e-4, "pace": 1.0, "rounds": 3, "warm": 0.0, "objective": "difference", "normalise": False,
        "scalar": "random",
    },
}  # fmt: skip
"""The settings of each recipe (see `ManipulationSettings`).

"default" contains the values that worked in experiments with this library. "paper" contains the values that Zietlow,
Rolinek, Martius (2021), arXiv:2102.06822, state. Both learning rates are 1e-4, the pairs are trained on three batches
for each batch of the manipulation, and the objective is the difference of the errors. The paper mentions no warm-up, no
normalisation and no initial direction, so the recipe "paper" has none of them.
"""


CHOICES = {"objective": ("log_ratio", "difference"), "scalar": ("diagonal", "random")}
"""The settings of a recipe whose values are names, and the names that are allowed."""

MAX_ROUNDS = 1000
"""The largest number of batches on which the pairs are trained in each step."""


def fill_recipe(recipe: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a recipe. Given values that are not None replace those of the recipe.

    >>> fill_recipe("paper", {"rounds": 5, "pace": None})["rounds"], fill_recipe("paper", {"pace": None})["pace"]
    (5, 1.0)
    """
    if recipe not in RECIPES:
        raise UserError(unknown_name_message("recipe of a manipulation", recipe, RECIPES))
    return RECIPES[recipe] | {name: value for name, value in given.items() if value is not None}
