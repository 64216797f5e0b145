"""Linear estimators that equal those of scikit-learn but are many times faster. They are compiled on first use."""

from __future__ import annotations

from unbraid.metrics.linear.logistic import Logistic, logistic_regression, logistic_regression_cv
from unbraid.metrics.linear.svm import svm_accuracies

__all__ = ["Logistic", "logistic_regression", "logistic_regression_cv", "svm_accuracies"]
