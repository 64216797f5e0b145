"""Gradient-boosted trees that make the same cuts as those of scikit-learn. They are exact and many times faster."""

from unbraid.metrics.trees.boosting import Forest, boosted_trees
from unbraid.metrics.trees.fit_cache import cached_fits
from unbraid.metrics.trees.regression import RegressionForest, boosted_regression

__all__ = ["Forest", "RegressionForest", "boosted_regression", "boosted_trees", "cached_fits"]
