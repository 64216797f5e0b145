"""Scores of a representation: pure functions of arrays, ``(codes, factors, ...) -> dict of floats``, without torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from unbraid.metrics.beta_vae import beta_vae
from unbraid.metrics.dci import dci
from unbraid.metrics.dcimig import dcimig
from unbraid.metrics.downstream import downstream, downstream_gbt, downstream_lr
from unbraid.metrics.explicitness import explicitness
from unbraid.metrics.factor_vae import factor_vae
from unbraid.metrics.fairness import fairness
from unbraid.metrics.infomec import infomec
from unbraid.metrics.irs import irs
from unbraid.metrics.jemmig import jemmig
from unbraid.metrics.mcc import mcc
from unbraid.metrics.mig import mig
from unbraid.metrics.mig_sup import mig_sup
from unbraid.metrics.modularity import modularity
from unbraid.metrics.sap import sap
from unbraid.metrics.udr import udr
from unbraid.metrics.unsupervised import unsupervised

METRICS: dict[str, Callable[..., dict[str, float]]] = {
    "beta_vae": beta_vae,
    "factor_vae": factor_vae,
    "mig": mig,
    "modularity": modularity,
    "dci": dci,
    "sap": sap,
    "explicitness": explicitness,
    "irs": irs,
    "unsupervised": unsupervised,
    "downstream_lr": downstream_lr,
    "downstream_gbt": downstream_gbt,
    "mcc": mcc,
    "infomec": infomec,
    "dcimig": dcimig,
    "jemmig": jemmig,
    "mig_sup": mig_sup,
    "fairness": fairness,
}


class Trait(NamedTuple):
    """The score that stands for a metric where there is room for one, how it is estimated, and from which rows."""

    headline: str
    estimator: str
    whole_table: bool = False  # draws its own interventions from every row; the others are given a sample
    low_is_good: bool = False


HISTOGRAM = "plug-in information on equal-width bins"
TREES = "gradient-boosted trees by the definition of scikit-learn 1.9: 100 stages of depth 3, exact cuts"
LOGISTIC = "multinomial logistic regression by the definition of scikit-learn 1.9: lbfgs, 100 iterations"

TRAITS: dict[str, Trait] = {
    "beta_vae": Trait("eval_accuracy", LOGISTIC, whole_table=True),
    "factor_vae": Trait("eval_accuracy", "majority vote", whole_table=True),
    "mig": Trait("discrete_mig", HISTOGRAM),
    "modularity": Trait("modularity_score", HISTOGRAM),
    "dci": Trait("disentanglement", TREES),
    "sap": Trait("SAP_score", "linear SVM on one code, primal, C 0.01"),
    "explicitness": Trait("explicitness_score_test", LOGISTIC),
    "irs": Trait("avg_score", "quantiles of deviations from conditional means"),
    "unsupervised": Trait("gaussian_total_correlation", "fitted Gaussian; " + HISTOGRAM, low_is_good=True),
    "downstream_lr": Trait("mean_test_accuracy", LOGISTIC + ", 10 strengths by 5-fold cross-validation"),
    "downstream_gbt": Trait("mean_test_accuracy", TREES),
    "mcc": Trait("mcc_pearson", "correlation with the best assignment"),
    "infomec": Trait("InfoM", HISTOGRAM + "; " + LOGISTIC),
    "dcimig": Trait("dcimig", HISTOGRAM),
    "jemmig": Trait("jemmig", HISTOGRAM),
    "mig_sup": Trait("mig_sup", HISTOGRAM),
    "fairness": Trait("mean_fairness:mean_pred:mean_sens", TREES, whole_table=True, low_is_good=True),
}

__all__ = [
    "METRICS",
    "TRAITS",
    "Trait",
    "beta_vae",
    "dci",
    "dcimig",
    "downstream",
    "downstream_gbt",
    "downstream_lr",
    "explicitness",
    "factor_vae",
    "fairness",
    "infomec",
    "irs",
    "jemmig",
    "mcc",
    "mig",
    "mig_sup",
    "modularity",
    "sap",
    "udr",
    "unsupervised",
]
