"""The nine metric configurations of the large study with the estimators of scikit-learn, called as in its library.

These functions measure the cost of scores without our estimators: new points are drawn for each metric, and loops over
factors and codes run in Python. Interventions are drawn from the factor grid and encoded one batch at a time.

Reference: Locatello et al. (2019), arXiv:1811.12359, and its public library, disentanglement_lib.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import sqrtm
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import mutual_info_score, roc_auc_score
from sklearn.model_selection import KFold
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

Array = np.ndarray[Any, np.dtype[Any]]
Encoder = Callable[[Array], Array]
TRAIN, TEST, BATCH = 10_000, 5_000, 64
SIZES = (10, 100, 1_000, 10_000)


class Reference:
    """Scores of an encoder on factors that are drawn from a grid."""

    def __init__(
        self, sizes: tuple[int, ...], encode: Encoder, seed: int = 0, train: int = TRAIN, test: int = TEST
    ) -> None:
        self.sizes, self.encode, self.rng, self.train, self.test = (
            sizes,
            encode,
            np.random.default_rng(seed),
            train,
            test,
        )

    def points(self, count: int) -> tuple[Array, Array]:
        """Draw independent factors, and return their codes and the factors."""
        factors = self.rng.integers(self.sizes, size=(count, len(self.sizes)))
        return self.encode(factors), factors

    def beta_vae(self) -> dict[str, float]:
        """Return the accuracy of predicting the shared factor from mean absolute differences of codes."""
        parts = [[self._difference() for _ in range(n)] for n in (self.train, self.test)]
        (x, y), (tx, ty) = ((np.array([p[0] for p in part]), np.array([p[1] for p in part])) for part in parts)
        return {"eval_accuracy": float(LogisticRegression().fit(x, y).score(tx, ty))}

    def _difference(self) -> tuple[Array, int]:
        index = int(self.rng.integers(len(self.sizes)))
        first, second = (self.rng.integers(self.sizes, size=(BATCH, len(self.sizes))) for _ in range(2))
        second[:, index] = first[:, index]
        return np.abs(self.encode(first) - self.encode(second)).mean(axis=0), index

    def factor_vae(self) -> dict[str, float]:
        """Return the accuracy of predicting the fixed factor, by majority votes, from the code that varies least."""
        variances = np.var(self.points(self.train)[0], axis=0, ddof=1)
        active = np.sqrt(variances) >= 0.05
        train_votes, test_votes = (self._votes(n, variances, active) for n in (self.train, self.test))
        assigned = train_votes.argmax(axis=0)
        return {"eval_accuracy": float(sum(test_votes[assigned[i], i] for i in range(len(variances))) / self.test)}

    def _votes(self, count: int, variances: Array, active: Array) -> Array:
        votes = np.zeros((len(self.sizes), len(variances)))
        for _ in range(count):
            index = int(self.rng.integers(len(self.sizes)))
            factors = self.rng.integers(self.sizes, size=(BATCH, len(self.sizes)))
            factors[:, index] = factors[0, index]
            local = np.var(self.encode(factors), axis=0, ddof=1)
            votes[index, np.where(active, local / variances, np.inf).argmin()] += 1
        return votes

    def _information(self, codes: Array, others: Array) -> Array:
        bins = [np.digitize(c, np.histogram(c, 20)[1][:-1]) for c in codes.T]
        return np.array([[mutual_info_score(v, b) for v in others.T] for b in bins])

    def mig(self) -> dict[str, float]:
        """Return the mutual information gap."""
        codes, factors = self.points(self.train)
        ordered = np.sort(self._information(codes, factors), axis=0)
        entropies = np.array([mutual_info_score(v, v) for v in factors.T])
        return {"discrete_mig": float(np.mean((ordered[-1] - ordered[-2]) / entropies))}

    def modularity_explicitness(self) -> dict[str, float]:
        """Return modularity, and explicitness by the AUC of logistic regressions."""
        (codes, factors), (test_codes, test_factors) = self.points(self.train), self.points(self.test)
        squares = self._information(codes, factors) ** 2
        best = squares.max(axis=1)
        modularity = np.mean(1 - (squares.sum(axis=1) - best) / best / (len(self.sizes) - 1))
        scaler = StandardScaler().fit(codes)
        aucs = []
        for v, tv in zip(factors.T, test_factors.T, strict=True):
            model = LogisticRegression().fit(scaler.transform(codes), v)
            probabilities = model.predict_proba(scaler.transform(test_codes))
            aucs.append(roc_auc_score(np.eye(int(v.max()) + 1)[tv], probabilities, average="macro"))
        return {"modularity_score": float(modularity), "explicitness_score_test": float(np.mean(aucs))}

    def dci(self) -> dict[str, float]:
        """Return disentanglement, completeness and informativeness by boosted trees."""
        (codes, factors), (test_codes, test_factors) = self.points(self.train), self.points(self.test)
        models = [GradientBoostingClassifier().fit(codes, v) for v in factors.T]
        accuracies = [np.mean(m.predict(test_codes) == v) for m, v in zip(models, test_factors.T, strict=True)]
        r = np.stack([m.feature_importances_ for m in models], axis=1) + 1e-11
        rows, columns = r / r.sum(axis=1, keepdims=True), r / r.sum(axis=0)
        d = 1 + (rows * np.log(rows)).sum(axis=1) / np.log(r.shape[1])
        c = 1 + (columns * np.log(columns)).sum(axis=0) / np.log(r.shape[0])
        return {
            "disentanglement": float(d @ r.sum(axis=1) / r.sum()),
            "completeness": float(c @ r.sum(axis=0) / r.sum()),
            "informativeness_test": float(np.mean(accuracies)),
        }

    def sap(self) -> dict[str, float]:
        """Return the gap in accuracy of linear SVMs on single codes."""
        (codes, factors), (test_codes, test_factors) = self.points(self.train), self.points(self.test)
        matrix = np.zeros((codes.shape[1], factors.shape[1]))
        for i in range(codes.shape[1]):
            for j in range(factors.shape[1]):
                model = LinearSVC(C=0.01, class_weight="balanced").fit(codes[:, [i]], factors[:, j])
                matrix[i, j] = np.mean(model.predict(test_codes[:, [i]]) == test_factors[:, j])
        ordered = np.sort(matrix, axis=0)
        return {"SAP_score": float(np.mean(ordered[-1] - ordered[-2]))}

    def unsupervised(self) -> dict[str, float]:
        """Return total correlation, Wasserstein correlation and mean pairwise information."""
        codes, _ = self.points(self.train)
        covariance = np.cov(codes.T)
        diagonal = np.diag(covariance)
        root = np.real(np.trace(sqrtm(covariance * diagonal[:, None])))
        bins = np.stack([np.digitize(c, np.histogram(c, 20)[1][:-1]) for c in codes.T], axis=1)
        information = self._information(codes, bins)
        d = len(diagonal)
        return {
            "gaussian_total_correlation": float(0.5 * (np.log(diagonal).sum() - np.linalg.slogdet(covariance)[1])),
            "gaussian_wasserstein_correlation": float(2 * np.trace(covariance) - 2 * root),
            "mutual_info_score": float((information.sum() - np.trace(information)) / (d * (d - 1))),
        }

    def downstream_lr(self) -> dict[str, float]:
        """Return the accuracies of cross-validated logistic regressions for four sizes."""
        return self._downstream(lambda: LogisticRegressionCV(Cs=10, cv=KFold(5)))

    def downstream_gbt(self) -> dict[str, float]:
        """Return the accuracies of boosted trees for four sizes."""
        return self._downstream(GradientBoostingClassifier)

    def _downstream(self, model: Callable[[], Any]) -> dict[str, float]:
        scores = {}
        for size in (n for n in SIZES if n <= self.train):
            (codes, factors), (test_codes, test_factors) = self.points(size), self.points(self.test)
            pairs = zip(factors.T, test_factors.T, strict=True)
            accuracies = [np.mean(model().fit(codes, v).predict(test_codes) == tv) for v, tv in pairs]
            scores[f"{size}:mean_test_accuracy"] = float(np.mean(accuracies))
        return scores


CONFIGURATIONS = (
    "beta_vae",
    "factor_vae",
    "mig",
    "modularity_explicitness",
    "dci",
    "sap",
    "unsupervised",
    "downstream_lr",
    "downstream_gbt",
)


def ignore_warnings() -> None:
    """Ignore warnings about iteration limits and deprecations, which are part of the protocol."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.simplefilter("ignore", FutureWarning)
