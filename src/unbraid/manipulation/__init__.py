"""Small changes of images under which VAEs prefer entangled codes: how they are learned, measured and shown."""

from unbraid.manipulation.game import modify
from unbraid.manipulation.gap import gap
from unbraid.manipulation.picture import compare
from unbraid.manipulation.recipe import Recipe

__all__ = ["Recipe", "compare", "gap", "modify"]
