"""Gradient-boosted trees as scikit-learn defines them, many times faster, without approximation."""

from unbraid.metrics.trees.boosting import Forest, boosted_trees
from unbraid.metrics.trees.memory import remembered

__all__ = ["Forest", "boosted_trees", "remembered"]
