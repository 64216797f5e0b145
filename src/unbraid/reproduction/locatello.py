"""The numbers of "Challenging common assumptions" on its 12,600 models, and our results for them."""

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
METHODS, SETTINGS, SEEDS = 6, 36, 50
RUNS = SETTINGS * SEEDS  # per dataset
TOLERANCE = 0.05  # the guide on reproduction says why
SHARES = {"objective": ["method"], "setting": SETTING}
TITLES = {
    "beta_vae": "BetaVAE",
    "dci": "DCI",
    "factor_vae": "FactorVAE",
    "mig": "MIG",
    "modularity": "Modularity",
    "sap": "SAP",
}
# Percentage of the variance of scores explained by the objective alone, and by objective and strength together. The
# columns are in the order of METRICS.
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
CORRELATED = ("beta_vae", "factor_vae", "beta_tcvae", "dip_vae_i", "dip_vae_ii")
PER_TREE = "dci.disentanglement_per_tree"


def datasets() -> list[str]:
    """The seven datasets of the paper."""
    return [line.split()[0] for line in EXPLAINED["setting"].strip().splitlines()]


def published_data(data: str) -> str | None:
    """The dataset in the paper that a dataset name corresponds to, or None."""
    return published_name(data) if "?" not in data and published_name(data) in datasets() else None


def numbers() -> Iterator[Published]:
    """The two tables of explained variance, as shares, and the three win rates."""
    for share, text in EXPLAINED.items():
        source = f"table of the variance explained by the objective{' and its strength' if share == 'setting' else ''}"
        for line in text.strip().splitlines():
            data, *digits = line.split()
            for metric, digit in zip(METRICS, digits, strict=True):
                row, value = variance_row(data, share), float(digit) / 100
                yield Published(row, TITLES[metric], value, tolerance=TOLERANCE, source=source)
    for case, rate in WINS.items():
        source = "section on model selection"
        yield Published(case, "win rate", rate / 100, tolerance=TOLERANCE, unit=0.001, source=source)


def variance_row(data: str, share: str) -> str:
    """The name of the row of an explained share.

    >>> variance_row("cars3d", "setting")
    'cars3d, objective and strength'
    """
    return f"{data}, {'objective and strength' if share == 'setting' else 'objective'}"


def signs() -> Iterator[PublishedSign]:
    """The signs in figure 1: with the strength, the total correlation of samples falls and that of means rises."""
    for codes, sign in (("sampled", -1), ("mean", 1)):
        for method in CORRELATED:
            yield PublishedSign(f"{method}, color_dsprites", f"TC of {codes} codes", sign, source="figure 1")


def select(table: DataFrame) -> DataFrame:
    """The runs on the data of the paper."""
    return longest_runs(runs_on_published_data(table, published_data), ["level"])


def ours(runs: DataFrame) -> OurResults:
    """Explained shares, win rates and signs of the finished runs. DCI is computed from per-tree importances."""
    runs = runs if "status" not in runs else runs[runs["status"] == "done"]
    if PER_TREE in runs:
        runs = runs.assign(**{headline("dci"): runs[PER_TREE]})
    else:
        runs = runs.drop(columns=headline("dci"), errors="ignore")
    if not len(runs):
        return {}
    return {**explained_shares(runs), **win_rate_results(runs), **correlation_signs(runs)}


def explained_shares(runs: DataFrame) -> OurResults:
    """The explained variance for each dataset and metric, as expected for the number of seeds in the paper."""
    results: dict[CellKey, OurResult | str] = {}
    for data, part in runs.groupby(PUBLISHED_DATA):
        for metric in METRICS:
            column = headline(metric)
            scored = part.dropna(subset=[column]) if column in part else part[:0]
            for share, one in shares_of_score(scored, column).items():
                results[variance_row(str(data), share), TITLES[metric]] = one
    return results


def shares_of_score(scored: DataFrame, column: str) -> dict[str, OurResult | str]:
    """Both explained shares of one score on one dataset, or the reason why there are none."""
    settings = scored.groupby(SETTING).ngroups if len(scored) else 0
    if not settings:
        return dict.fromkeys(SHARES, f"no score {column}")
    if settings < SETTINGS:
        return dict.fromkeys(SHARES, f"needs all {SETTINGS} settings")
    if len(scored) <= settings or scored[column].nunique() < 2:
        return dict.fromkeys(SHARES, "needs 2 seeds, and scores that differ")
    observed = {share: explained_fraction(scored, column, by)[0] for share, by in SHARES.items()}
    expected = with_seeds(observed["objective"], observed["setting"], len(scored) / SETTINGS, SEEDS)
    notes = {share: f"{100 * observed[share]:.0f} % without correction" for share in SHARES if len(scored) < RUNS}
    return {
        share: OurResult(value, None, len(scored), notes.get(share, ""))
        for share, value in zip(SHARES, expected, strict=True)
    }


def with_seeds(objective: float, setting: float, seeds: float, wanted: int) -> tuple[float, float]:
    r"""Convert explained shares with `seeds` seeds per setting to those expected with `wanted` seeds.

    Means over few seeds differ by chance. This contributes :math:`(G - 1) \sigma^2` to the sum of squares between G
    groups, where :math:`\sigma^2` is the variance over seeds. The contribution is subtracted, the rest is scaled to the
    other number of seeds, and the contribution is added again.

    >>> objective, setting = with_seeds(5 / 179, 35 / 179, 5, 50)  # scores that depend on nothing
    >>> round(objective * 1799, 6), round(setting * 1799, 6)
    (5.0, 35.0)
    """
    variance = (1 - setting) / (SETTINGS * (seeds - 1))
    chance = {"objective": (METHODS - 1) * variance, "setting": (SETTINGS - 1) * variance}
    between = {"objective": objective, "setting": setting}
    grown = {share: (between[share] - chance[share]) * wanted / seeds + chance[share] for share in between}
    total = grown["setting"] + SETTINGS * (wanted - 1) * variance
    return grown["objective"] / total, grown["setting"] / total


def win_rate_results(runs: DataFrame) -> OurResults:
    """How often a setting chosen by one run beats a random setting, if all 36 settings have runs."""
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
        note = f"{datasets} datasets; {100 * rates['by_mean'][case]:.1f} % if the mean chooses"
        results[case, "win rate"] = OurResult(float(rates["by_seed"][case]), None, len(runs), note)
    return results


def correlation_signs(runs: DataFrame) -> OurResults:
    """The rank correlation of the strength with the total correlation on color_dsprites, for each method."""
    results: dict[CellKey, OurResult | str] = {}
    for sign in signs():
        method, data = sign.row.split(", ")
        column = headline("unsupervised") + (".sampled" if "sampled" in sign.column else "")
        part = runs[(runs["method"] == method) & (runs[PUBLISHED_DATA] == data)]
        scored = part.dropna(subset=[column]) if column in part else part[:0]
        rho = spearman(scored["level"], scored[column], minimum=3) if len(scored) else math.nan
        reason = "needs 2 strengths or more, and their total correlation"
        results[sign.row, sign.column] = reason if math.isnan(rho) else OurResult(rho, None, len(scored))
    return results


TARGET = Target(REFERENCE, (*numbers(), *signs()), select, ours, published_data, (*METRICS, "unsupervised"))
