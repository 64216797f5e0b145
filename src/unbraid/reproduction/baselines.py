"""Published numbers of baselines: scores of FactorVAE, training losses, and critics' estimates of total correlation.

The scores are those of Lin et al. (2020), the losses are those of Dubois et al. (2019), and the estimates of critics
are those in table 1 of the paper on DeVAE, Wu et al. (2023).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pandas import DataFrame, Series

from unbraid.reproduction.agreement import CellKey, OurResult, OurResults, Published, Target
from unbraid.reproduction.rows import longest_runs, published_name, runs_on_published_data

SCORES_REFERENCE = "Lin et al. (2020), arXiv:1906.06034"
LOSSES_REFERENCE = "Dubois et al. (2019), disentangling-vae"
CRITIC_REFERENCE = "DeVAE (2023), arXiv:2303.12959, table 1"
SEEDS = 10
# Means over 10 runs of FactorVAE on dSprites. Each mean is followed by the number that the source prints after a
# plus-minus sign. These numbers are much smaller than the usual standard deviation over seeds, so we take them as
# standard errors.
SCORES = {
    "gamma": ("FactorVAE", "DCI", "SAP", "explicitness", "modularity", "MIG", "BetaVAE"),
    "1": ".79 .01  .67 .03  .47 .03  .78 .01  .79 .01  .27 .03  .79 .02",
    "10": ".83 .01  .70 .02  .57 .00  .79 .00  .79 .00  .40 .01  .83 .01",
    "20": ".83 .01  .72 .02  .57 .00  .79 .00  .79 .01  .40 .01  .85 .00",
    "40": ".82 .01  .74 .01  .56 .00  .79 .00  .77 .01  .43 .01  .84 .01",
}
SCORE_COLUMNS = {
    "FactorVAE": "factor_vae.eval_accuracy",
    "MIG": "mig.discrete_mig",
    "BetaVAE": "beta_vae.eval_accuracy",
    "modularity": "modularity.modularity_score",
}
OTHER_ESTIMATORS = {  # scores that the source does not compute as unbraid does
    "DCI": "the source fits a random forest per factor, where unbraid fits boosted trees",
    "SAP": "the source uses squared correlations, where unbraid uses a classifier for discrete factors",
    "explicitness": "it is not known whether the explicitness of the source is that of unbraid",
}
LOSSES = {  # reconstruction error and KL in nats, of one run per method
    "vae": (17.99, 25.40),
    "beta_vae": (35.61, 15.35),
    "beta_tcvae": (42.21, 13.60),
    "annealed_vae": (81.06, 25.00),
    "factor_vae": (36.63, 21.74),
}
LOSS_SETTINGS: dict[str, dict[str, float]] = {  # hyperparameters of these runs
    "vae": {},
    "beta_vae": {"setting.beta": 4.0},
    "beta_tcvae": {"setting.beta": 6.4},
    "annealed_vae": {"setting.gamma": 100.0, "setting.c_max": 25.0},
    "factor_vae": {"setting.gamma": 6.4},
}
LOSS_COLUMNS = {"reconstruction": "train.rec", "KL": "train.kl"}
LOSS_TOLERANCE = 0.05  # as a fraction of the published value (one run has no standard deviation)
CRITIC = {  # mean estimate of 10 critics after 2,000 iterations, by number of dimensions and correlation
    (10, 0.3): 0.23, (10, 0.6): 1.08, (10, 0.9): 4.14,
    (100, 0.3): 2.17, (100, 0.6): 10.27, (100, 0.9): 23.39,
    (1000, 0.3): 8.62, (1000, 0.6): 17.40, (1000, 0.9): 22.47,
}  # fmt: skip
CRITIC_TOLERANCE = 0.05  # as a fraction of the published value


def published_scores() -> Iterator[Published]:
    """Yield the scores of FactorVAE. A printed error of 0.00 is taken as 0.005, its maximum before rounding."""
    source = "repository of the authors, table 1; the printed error is taken as a standard error of 10 runs"
    for gamma, digits in SCORES.items():
        if isinstance(digits, str):
            values = [float(digit) for digit in digits.split()]
            for column, value, error in zip(SCORES["gamma"], values[::2], values[1::2], strict=True):
                spread = max(error, 0.005) * math.sqrt(SEEDS)
                yield Published(f"factor_vae gamma={gamma}, dsprites", column, value, spread, SEEDS, source=source)


def published_losses() -> Iterator[Published]:
    """Yield the training losses."""
    for method, values in LOSSES.items():
        for column, value in zip(LOSS_COLUMNS, values, strict=True):
            tolerance = LOSS_TOLERANCE * value
            yield Published(f"{method}, dsprites", column, value, tolerance=tolerance, source="results of one run")


def published_critic() -> Iterator[Published]:
    """Yield the estimates of the total correlation. `benchmarks/bench_critic.py` computes our estimates."""
    for (dimensions, rho), value in CRITIC.items():
        tolerance = CRITIC_TOLERANCE * value
        yield Published(critic_row(dimensions, rho), "total correlation", value, tolerance=tolerance, source="table 1")


def critic_row(dimensions: int, rho: float) -> str:
    """Return the name of the row for a Gaussian distribution.

    >>> critic_row(10, 0.3)
    'Gaussian with 10 dimensions, correlation 0.3'
    """
    return f"Gaussian with {dimensions} dimensions, correlation {rho:g}"


def published_data(data: str) -> str | None:
    """Return "dsprites" for dSprites without options, and None for other datasets."""
    return "dsprites" if "?" not in data and published_name(data) == "dsprites" else None


def our_scores(runs: DataFrame) -> OurResults:
    """Compute the means of our scores for each gamma."""
    results: dict[CellKey, OurResult | str] = {}
    for cell in published_scores():
        gamma = float(cell.row.partition("=")[2].partition(",")[0])
        strength = runs.get("setting.gamma")
        part = runs[strength == gamma] if strength is not None else runs[:0]
        column = SCORE_COLUMNS.get(cell.column)
        reason = OTHER_ESTIMATORS.get(cell.column, "")
        results[cell.row, cell.column] = summarise(part, column) if column else reason
    return results


def our_losses(runs: DataFrame) -> OurResults:
    """Compute the means of the last logged losses of each method."""
    parts = dict(list(runs.groupby("method")))
    return {
        (cell.row, cell.column): summarise(parts.get(cell.row.partition(",")[0], runs[:0]), LOSS_COLUMNS[cell.column])
        for cell in published_losses()
    }


def summarise(runs: DataFrame, column: str) -> OurResult | str:
    """Return the mean of a score of finished runs, or the reason why there is none."""
    done = runs if "status" not in runs else runs[runs["status"] == "done"]
    if not len(done):
        return "no such runs"
    return (OurResult.of(done[column]) if column in done else None) or f"no score {column}"


def select_scores(table: DataFrame) -> DataFrame:
    """Select the longest run of FactorVAE on dSprites for each published gamma and each seed."""
    runs = runs_on_published_data(table, published_data)
    gammas = [float(gamma) for gamma in SCORES if gamma != "gamma"]
    strength = runs.get("setting.gamma", Series(math.nan, runs.index))
    runs = runs.assign(**{"setting.gamma": strength})
    return longest_runs(runs[(runs["method"] == "factor_vae") & strength.isin(gammas)], ["setting.gamma"])


def select_losses(table: DataFrame) -> DataFrame:
    """Select the longest run on dSprites for each method and seed, with the hyperparameters in `LOSS_SETTINGS`."""
    runs = runs_on_published_data(table, published_data)
    wanted = Series(False, runs.index)
    for method, settings in LOSS_SETTINGS.items():
        chosen = runs["method"] == method
        for column, value in settings.items():
            chosen &= runs.get(column, Series(math.nan, runs.index)) == value
        wanted |= chosen
    return longest_runs(runs[wanted], [])


SCORES_TARGET = Target(
    SCORES_REFERENCE,
    tuple(published_scores()),
    select_scores,
    our_scores,
    published_data,
    metrics=("factor_vae", "mig", "beta_vae", "modularity"),
)
LOSSES_TARGET = Target(
    LOSSES_REFERENCE,
    tuple(published_losses()),
    select_losses,
    our_losses,
    published_data,
    metrics=(),
)
