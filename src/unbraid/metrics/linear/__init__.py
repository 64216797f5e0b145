"""Linear estimators.

The classifiers solve the same optimisation problems as scikit-learn, many times faster. They are compiled on first use.
"""

from __future__ import annotations

from unbraid.metrics.linear.logistic import Logistic, logistic_regression, logistic_regression_cv
from unbraid.metrics.linear.ridge import Ridge, ridge_regression, ridge_regression_cv
from unbraid.metrics.linear.svm import svm_accuracies

__all__ = [
    "Logistic",
    "Ridge",
    "logistic_regression",
    "logistic_regression_cv",
    "ridge_regression",
    "ridge_regression_cv",
    "svm_accuracies",
]
