"""The numbers in "Challenging Common Assumptions" (Locatello et al. 2019), and the same numbers from our runs."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pandas import DataFrame

from unbraid.analysis.results_table import SETTING, spearman
from unbraid.analysis.transfer import transfer, win_rates
from unbraid.analysis.variance import explained_fraction
from unbraid.errors import UserError
from unbraid.metrics import headline
from unbraid.reproduction.agreement import CellKey, OurResult, OurResults, Published, PublishedSign, Target
from unbraid.reproduction.rows import PUBLISHED_DATA, longest_runs, published_name, runs_on_published_data

REFERENCE = "Locatello et al. (2019), arXiv:1811.12359"
METRICS = ("beta_vae", "dci", "factor_vae", "mig", "modularity", "sap")
CORRELATED = ("beta_vae", "factor_vae", "beta_tcvae", "dip_vae_i", "dip_vae_ii")  # methods in figure 1
METHODS = (*CORRELATED, "annealed_vae")
SETTINGS, SEEDS = 36, 50
RUNS = SETTINGS * SEEDS  # number of runs in the paper for each dataset
TOLERANCE = 0.05  # the guide on reproduction gives the reason for this value
# Columns that define groups of runs. The explained fraction is the fraction of the variance of scores that lies between
# these groups.
GROUPINGS = {"objective": ["method"], "setting": SETTING}
TITLES = {
    "beta_vae": "BetaVAE",
    "dci": "DCI",
    "factor_vae": "FactorVAE",
    "mig": "MIG",
    "modularity": "Modularity",
    "sap": "SAP",
}
# Percentage of the variance of scores that is explained by the objective alone, and by the objective and its strength
# together. The columns are in the order of METRICS.
EXPLAINED = {
    "objective": """
        cars3d           1 36 26 34 37 13
        color_dsprites  30 39 52 26 23 29
        noisy_dsprites  17 21 17 11 41  6
        scream_dsprites 89 50 76 45 60 56
        shapes3d        31 21 14 20 26 10
        smallnorb       68 71 58 71 62 62
        dsprites        29 41 47 26 29 31
    """,
    "setting": """
        cars3d           4 69 42 59 51 17
        color_dsprites  69 80 61 76 40 56
        noisy_dsprites  26 42 25 29 50 20
        scream_dsprites 93 74 83 66 68 75
        shapes3d        61 78 53 59 49 35
        smallnorb       87 89 81 88 72 82
        dsprites        59 77 54 72 39 56
    """,
}
WINS = {"same metric, same data": 80.7, "same metric, other data": 59.3, "other metric, other data": 54.9}
PER_TREE = "dci.disentanglement_per_tree"


def datasets() -> list[str]:
    """Return the seven datasets of the paper."""
    return [line.split()[0] for line in EXPLAINED["setting"].strip().splitlines()]


def published_data(data: str) -> str | None:
    """Return the dataset in the paper that corresponds to the name of a dataset, or None."""
    return published_name(data) if "?" not in data and published_name(data) in datasets() else None


def published_numbers() -> Iterator[Published]:
    """Yield the two tables of explained variance, as fractions, and the three win rates."""
    for kind, text in EXPLAINED.items():
        source = f"table of the variance explained by the objective{' and its strength' if kind == 'setting' else ''}"
        for line in text.strip().splitlines():
            data, *digits = line.split()
            for metric, digit in zip(METRICS, digits, strict=True):
                row, value = variance_row(data, kind), float(digit) / 100
                yield Published(row, TITLES[metric], value, tolerance=TOLERANCE, source=source)
    for case, rate in WINS.items():
        source = "section on model selection"
        yield Published(case, "win rate", rate / 100, tolerance=TOLERANCE, unit=0.001, source=source)


def variance_row(data: str, kind: str) -> str:
    """Return the name of the row of an explained fraction. `kind` is "objective" or "setting".

    >>> variance_row("cars3d", "setting")
    'cars3d, objective and strength'
    """
    return f"{data}, {'objective and strength' if kind == 'setting' else 'objective'}"


def published_signs() -> Iterator[PublishedSign]:
    """Yield the signs in figure 1.

    With increasing regularisation, the total correlation of sampled codes falls and that of mean codes rises.
    """
    for codes, sign in (("sampled", -1), ("mean", 1)):
        for method in CORRELATED:
            yield PublishedSign(f"{method}, color_dsprites", f"TC of {codes} codes", sign, source="figure 1")


def select_runs(table: DataFrame) -> DataFrame:
    """Select the runs of the methods of the paper on its datasets."""
    runs = runs_on_published_data(table, published_data)
    return longest_runs(runs[runs["method"].isin(METHODS)], ["level"])


def our_results(runs: DataFrame) -> OurResults:
    """Compute explained fractions, win rates and signs from the finished runs.

    The score of DCI is the one that is computed from per-tree importances.
    """
    runs = runs if "status" not in runs else runs[runs["status"] == "done"]
    if PER_TREE in runs:
        runs = runs.assign(**{headline("dci"): runs[PER_TREE]})
    else:
        runs = runs.drop(columns=headline("dci"), errors="ignore")
    if not len(runs):
        return {}
    return {**explained_fractions(runs), **win_rate_results(runs), **correlation_signs(runs)}


def explained_fractions(runs: DataFrame) -> OurResults:
    """Compute the explained fractions for each dataset and metric.

    They are adjusted to the values that are expected with as many seeds as in the paper.
    """
    results: dict[CellKey, OurResult | str] = {}
    for data, part in runs.groupby(PUBLISHED_DATA):
        for metric in METRICS:
            column = headline(metric)
            scored = part.dropna(subset=[column]) if column in part else part[:0]
            for kind, result in fractions_of_score(scored, column).items():
                results[variance_row(str(data), kind), TITLES[metric]] = result
    return results


def fractions_of_score(scored: DataFrame, column: str) -> dict[str, OurResult | str]:
    """Compute both explained fractions of one score on one dataset, or return the reason why there are none."""
    settings = scored.groupby(SETTING).ngroups if len(scored) else 0
    if not settings:
        return dict.fromkeys(GROUPINGS, f"no score {column}")
    if settings < SETTINGS:
        return dict.fromkeys(GROUPINGS, f"needs all {SETTINGS} settings")
    if len(scored) <= settings or scored[column].nunique() < 2:
        return dict.fromkeys(GROUPINGS, "needs 2 seeds and scores that differ")
    observed = {kind: explained_fraction(scored, column, by)[0] for kind, by in GROUPINGS.items()}
    expected = adjust_number_of_seeds(observed["objective"], observed["setting"], len(scored) / SETTINGS, SEEDS)
    notes = {kind: f"{observed[kind]:.3f} without correction" for kind in GROUPINGS if len(scored) < RUNS}
    return {
        kind: OurResult(value, None, len(scored), notes.get(kind, ""))
        for kind, value in zip(GROUPINGS, expected, strict=True)
    }


def adjust_number_of_seeds(objective: float, setting: float, seeds: float, wanted: int) -> tuple[float, float]:
    r"""Convert explained fractions with `seeds` seeds per setting to those expected with `wanted` seeds.

    Means over few seeds differ by chance. These differences contribute :math:`(G - 1) \sigma^2` to the sum of squares
    between G groups, where :math:`\sigma^2` is the variance over seeds. The contribution is subtracted, the remaining
    sum of squares is scaled to the wanted number of seeds, and the contribution is added again.

    >>> objective, setting = adjust_number_of_seeds(5 / 179, 35 / 179, 5, 50)  # expected for random scores
    >>> round(objective * 1799, 6), round(setting * 1799, 6)
    (5.0, 35.0)
    """
    variance = (1 - setting) / (SETTINGS * (seeds - 1))
    chance = {"objective": (len(METHODS) - 1) * variance, "setting": (SETTINGS - 1) * variance}
    between = {"objective": objective, "setting": setting}
    scaled = {kind: (between[kind] - chance[kind]) * wanted / seeds + chance[kind] for kind in between}
    total = scaled["setting"] + SETTINGS * (wanted - 1) * variance
    return scaled["objective"] / total, scaled["setting"] / total


def win_rate_results(runs: DataFrame) -> OurResults:
    """Compute how often a setting that was chosen by its score with a single seed beats a random setting.

    This needs all 36 settings.
    """
    counts = runs.groupby([PUBLISHED_DATA, *SETTING]).ngroups
    if counts < SETTINGS * runs[PUBLISHED_DATA].nunique():
        return dict.fromkeys(((case, "win rate") for case in WINS), f"needs all {SETTINGS} settings of every dataset")
    try:
        rates = win_rates(transfer(runs.assign(data=runs[PUBLISHED_DATA])).table)
    except UserError as reason:
        return dict.fromkeys(((case, "win rate") for case in WINS), " ".join(str(reason).split()))
    datasets = runs[PUBLISHED_DATA].nunique()
    results: dict[CellKey, OurResult | str] = {}
    for case in WINS:
        if case not in rates.index or math.isnan(rates["by_seed"][case]):
            results[case, "win rate"] = "needs at least 2 metrics"
            continue
        share = 100 * rates["by_mean"][case]
        note = f"{datasets} datasets; {share:.1f} % if the setting is chosen by its mean score over seeds"
        results[case, "win rate"] = OurResult(float(rates["by_seed"][case]), None, len(runs), note)
    return results


def correlation_signs(runs: DataFrame) -> OurResults:
    """Compute the rank correlation of strength and total correlation on color_dsprites, for each method."""
    results: dict[CellKey, OurResult | str] = {}
    for sign in published_signs():
        method, data = sign.row.split(", ")
        column = headline("unsupervised") + (".sampled" if "sampled" in sign.column else "")
        part = runs[(runs["method"] == method) & (runs[PUBLISHED_DATA] == data)]
        scored = part.dropna(subset=[column]) if column in part else part[:0]
        rho = spearman(scored["level"], scored[column], minimum=3) if len(scored) else math.nan
        reason = "needs at least 2 strengths and their total correlation"
        results[sign.row, sign.column] = reason if math.isnan(rho) else OurResult(rho, None, len(scored))
    return results


TARGET = Target(
    REFERENCE,
    (*published_numbers(), *published_signs()),
    select_runs,
    our_results,
    published_data,
    (*METRICS, "unsupervised"),
)
