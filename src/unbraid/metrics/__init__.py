"""Metrics of disentanglement.

Each metric is a pure function of arrays, ``(codes, factors, ...) -> dict of floats``. One row of `codes` and `factors`
belongs to one example. One column of `codes` is one latent, and one column of `factors` is one known factor of the
data. Importing this package never imports torch.
"""

from __future__ import annotations

from typing import NamedTuple

from unbraid.errors import UserError, unknown_name_message
from unbraid.metrics.aam import aam
from unbraid.metrics.beta_vae import beta_vae
from unbraid.metrics.centrality import model_centrality
from unbraid.metrics.d_lsbd import d_lsbd
from unbraid.metrics.dci import dci
from unbraid.metrics.dci_es import dci_es
from unbraid.metrics.dcimig import dcimig
from unbraid.metrics.downstream import downstream, downstream_gbt, downstream_lr
from unbraid.metrics.explicitness import explicitness
from unbraid.metrics.factor_vae import factor_vae
from unbraid.metrics.factorised_support import factorised_support
from unbraid.metrics.fairness import fairness
from unbraid.metrics.flatness import flatness
from unbraid.metrics.infomec import infomec
from unbraid.metrics.irs import irs
from unbraid.metrics.jemmig import jemmig
from unbraid.metrics.linearity import linearity
from unbraid.metrics.mcc import mcc
from unbraid.metrics.mig import mig
from unbraid.metrics.mig_sup import mig_sup
from unbraid.metrics.modularity import modularity
from unbraid.metrics.nk import nk
from unbraid.metrics.omes import omes
from unbraid.metrics.options import MetricRegistry, base_name
from unbraid.metrics.reduced_downstream import reduced_downstream
from unbraid.metrics.sap import sap
from unbraid.metrics.similarity import debiased_cka, fit_linear_map, linear_cka, linear_r2, procrustes_distance
from unbraid.metrics.snc import snc
from unbraid.metrics.strong_downstream import strong_downstream
from unbraid.metrics.udr import udr
from unbraid.metrics.unified import unified
from unbraid.metrics.unsupervised import unsupervised
from unbraid.metrics.z_max_var import z_max_var
from unbraid.runtime.plugins import Registry

METRICS = MetricRegistry("metrics", {
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
    "d_lsbd": d_lsbd,
    "strong_downstream": strong_downstream,
    "reduced_downstream": reduced_downstream,
    "unified": unified,
    "z_max_var": z_max_var,
    "dci_es": dci_es,
    "omes": omes,
    "snc": snc,
    "nk": nk,
    "factorised_support": factorised_support,
    "aam": aam,
    "flatness": flatness,
    "linearity": linearity,
})  # fmt: skip


FIRST_REVISION = "0.1.0"  # revision of a metric whose numbers have not changed since the first version of unbraid


class Trait(NamedTuple):
    """Properties of a metric.

    Attributes:
        headline: Key of the one score that represents the metric in tables and plots.
        estimator: How the metric is estimated. This text is part of the identity of a score.
        whole_table: Whether the metric receives all rows and draws its own samples from them. Other metrics receive a
            sample of the rows.
        low_is_good: Whether low values of the headline score are better.
        revision: The version of unbraid that last changed the numbers of the metric. It is part of the identity of a
            score, so stored scores stay valid in later versions that compute the same numbers. A metric that another
            package defines may use any text, as long as the text changes whenever the numbers change.
        on_request: Whether the metric is computed only if it is named. All other metrics are computed by default.
        later_options: Options that the identity of a score leaves out. They were added after scores had been stored,
            and their defaults compute the same numbers as before.
    """

    headline: str
    estimator: str
    whole_table: bool = False
    low_is_good: bool = False
    revision: str = FIRST_REVISION
    on_request: bool = False
    later_options: tuple[str, ...] = ()


HISTOGRAM = "plug-in information on equal-width bins"
TREES = "gradient-boosted trees by the definition of scikit-learn 1.9: 100 stages of depth 3, exact cuts"
LOGISTIC = "multinomial logistic regression by the definition of scikit-learn 1.9: lbfgs, 100 iterations"
SVM = "linear SVM on one code, primal, C 0.01"


class Traits(Registry[Trait]):
    """The properties of each metric, by name. A metric of another package has them in the attribute `trait`.

    A metric with options has the properties of the metric without them.
    """

    def __contains__(self, name: object) -> bool:
        return name in METRICS

    def __missing__(self, name: str) -> Trait:
        if "?" in name:
            return self[base_name(name)]
        trait = getattr(METRICS[name], "trait", None)
        if not isinstance(trait, Trait):
            raise UserError(
                f"The metric {name!r} must have an attribute 'trait' of type unbraid.metrics.Trait. Got {trait!r} "
                "instead. Set it after the definition of the function."
            )
        return trait


TRAITS = Traits("metrics", {
    "beta_vae": Trait("eval_accuracy", LOGISTIC, whole_table=True),
    "factor_vae": Trait("eval_accuracy", "majority vote", whole_table=True),
    "mig": Trait("discrete_mig", HISTOGRAM),
    "modularity": Trait("modularity_score", HISTOGRAM),
    "dci": Trait("disentanglement", TREES),
    "sap": Trait("SAP_score", SVM),
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
    "d_lsbd": Trait(
        "d_lsbd", "plane of largest variance along complete lines", whole_table=True, low_is_good=True, on_request=True
    ),
    "strong_downstream": Trait("mean_strong_test_accuracy", TREES, whole_table=True, on_request=True),
    "reduced_downstream": Trait("mean_test_accuracy_other_factors", TREES, on_request=True),
    "unified": Trait("mutual_information:dci_disentanglement", f"{TREES}; {HISTOGRAM}; {SVM}", on_request=True),
    "z_max_var": Trait("eval_accuracy", "majority vote", whole_table=True, on_request=True),
    "dci_es": Trait(
        "mean_informativeness", "decision trees of scikit-learn with growing depth", on_request=True,
        later_options=("probes", "sizes"),
    ),
    "omes": Trait("omes", "correlation of pairs that differ in one factor", whole_table=True, on_request=True),
    "snc": Trait("snc", "bins with equal counts of one code", on_request=True),
    "nk": Trait("nk", TREES, on_request=True),
    "factorised_support": Trait(
        "fos_standardised", "Hausdorff distances of pairs of codes", low_is_good=True, on_request=True
    ),
    "aam": Trait("aam", HISTOGRAM, on_request=True),
    "flatness": Trait("ave_flatness", "widths and lengths of lines of codes", whole_table=True, on_request=True),
    "linearity": Trait("linear_ratio", "variances and distances in lines of codes", whole_table=True, on_request=True),
})  # fmt: skip

DEFAULT_METRICS = tuple(name for name in METRICS if not TRAITS[name].on_request)
"""The metrics that are computed if none are named. The name "all" stands for every metric in `METRICS`."""


def headline(metric: str) -> str:
    """Return the column name of a metric's headline score, in the form ``metric.key``.

    Args:
        metric: A key of `METRICS`.

    Returns:
        The name of the column that holds the headline score in result tables.

    Raises:
        UserError: If there is no such metric.

    Example:
        >>> headline("mig")
        'mig.discrete_mig'
    """
    if metric not in TRAITS:
        raise UserError(unknown_name_message("metric", metric, TRAITS))
    return f"{metric}.{TRAITS[metric].headline}"


__all__ = [
    "DEFAULT_METRICS",
    "METRICS",
    "TRAITS",
    "Trait",
    "aam",
    "beta_vae",
    "d_lsbd",
    "dci",
    "dci_es",
    "dcimig",
    "debiased_cka",
    "downstream",
    "downstream_gbt",
    "downstream_lr",
    "explicitness",
    "factor_vae",
    "factorised_support",
    "fairness",
    "fit_linear_map",
    "flatness",
    "headline",
    "infomec",
    "irs",
    "jemmig",
    "linear_cka",
    "linear_r2",
    "linearity",
    "mcc",
    "mig",
    "mig_sup",
    "model_centrality",
    "modularity",
    "nk",
    "omes",
    "procrustes_distance",
    "reduced_downstream",
    "sap",
    "snc",
    "strong_downstream",
    "udr",
    "unified",
    "unsupervised",
    "z_max_var",
]
