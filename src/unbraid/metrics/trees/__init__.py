"""Gradient-boosted trees as scikit-learn defines them, without approximation but many times faster."""

from unbraid.metrics.trees.boosting import Forest, boosted_trees
from unbraid.metrics.trees.fit_cache import cached_fits

__all__ = ["Forest", "boosted_trees", "cached_fits"]
