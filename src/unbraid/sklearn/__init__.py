"""Methods as scikit-learn estimators.

`VAE` has `fit`, `transform`, `inverse_transform` and `score`, and works in pipelines and searches. `GridSearchCV` and
`RandomizedSearchCV` are scikit-learn's searches with one difference: the candidates of each fold are trained together,
in stacks (groups of runs that are trained as one). `metric_scorer` makes a `scoring` function from a metric of
disentanglement.

>>> import numpy as np
>>> from sklearn.pipeline import make_pipeline
>>> from sklearn.preprocessing import StandardScaler
>>> from unbraid.sklearn import VAE
>>> X = np.random.default_rng(0).normal(size=(50, 6))
>>> model = make_pipeline(StandardScaler(), VAE("beta_vae", latents=2, steps=20, random_state=0))
>>> codes = model.fit_transform(X)
>>> codes.shape, model.inverse_transform(codes).shape
((50, 2), (50, 6))
"""

from __future__ import annotations

from unbraid.sklearn.estimator import VAE
from unbraid.sklearn.scorers import metric_scorer
from unbraid.sklearn.search import GridSearchCV, RandomizedSearchCV

__all__ = ["VAE", "GridSearchCV", "RandomizedSearchCV", "metric_scorer"]
