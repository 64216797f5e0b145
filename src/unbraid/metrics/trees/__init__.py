"""Gradient-boosted trees that make the same cuts as scikit-learn's, without approximation, but many times faster."""

from unbraid.metrics.trees.boosting import Forest, boosted_trees
from unbraid.metrics.trees.fit_cache import cached_fits

__all__ = ["Forest", "boosted_trees", "cached_fits"]
