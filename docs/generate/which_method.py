"""The blocks of guides/which_method.md: the ranking of all methods by each metric, and how far the metrics agree."""

from __future__ import annotations

from pathlib import Path

from pandas import DataFrame

from generate import ROOT
from generate.evidence import collected_runs, parts_named, state_text
from generate.markdown import replace_block, table
from unbraid.analysis.plots import display_name
from unbraid.analysis.ranking import MIN_METHODS, correlate_rankings, rank_methods
from unbraid.analysis.results_table import columns_with_values, score_name
from unbraid.errors import UserError
from unbraid.methods import METHODS
from unbraid.metrics import headline
from unbraid.studies.beyond import DATASETS, SEEDS, supervision

PAGE = ROOT / "docs" / "guides" / "which_method.md"
PICTURE = ROOT / "docs" / "pictures" / "which_method.png"
PREFIX = "beyond-"
METRICS = ("beta_vae", "factor_vae", "mig", "dci", "modularity", "sap", "infomec")
CLASSES = {"images": "images only", "pairs": "pairs of images", "labels": "labels"}


def metric_name(metric: str) -> str:
    """Return the name of a metric in a table. Methods are ranked by the InfoM of InfoMEC."""
    return "InfoM" if metric == "infomec" else score_name(metric)


def which_method_pages() -> dict[Path, str]:
    """Return the page with its current blocks."""
    text, collected = PAGE.read_text(), collected_runs()
    made = {"answer": answer_block, "ranking": ranking_block, "agreement": agreement_block}
    for name, block in made.items():
        text = replace_block(text, name, block(collected))
    return {PAGE: text}


def study_runs(collected: DataFrame) -> DataFrame:
    """Return the collected runs of the study."""
    return collected[collected["part"].str.startswith(PREFIX)].reset_index(drop=True)


def columns_of(runs: DataFrame) -> dict[str, str]:
    """Return the columns of the metrics that have scores."""
    return columns_with_values(runs, {name: headline(name) for name in METRICS})


def rank_class(runs: DataFrame, kind: str) -> DataFrame | None:
    """Return the ranking within one class of supervision, or None if there are too few runs."""
    own = runs[[supervision(method) == kind for method in runs["method"]]]
    try:
        return rank_methods(own, columns_of(own), methods=2)
    except UserError:
        return None


def mean_ranks(ranking: DataFrame) -> DataFrame:
    """Return the mean rank of each method over datasets: one row per method, best first, one column per metric."""
    ranks = ranking.pivot_table(index="method", columns="metric", values="rank", aggfunc="mean")
    ranks = ranks[[name for name in METRICS if name in ranks]]
    return ranks.assign(all=ranks.mean(axis=1)).sort_values("all", kind="stable")


def expected_runs(kind: str) -> int:
    """Return the number of planned runs of a class."""
    return sum(supervision(method) == kind for method in METHODS) * len(DATASETS) * SEEDS


def answer_block(collected: DataFrame) -> str:
    """Return the state of the study, and which method has the best mean rank in each class."""
    runs = study_runs(collected)
    state = state_text(parts_named(PREFIX), collected)
    found = [sentence for kind in CLASSES if (sentence := answer(runs, kind))]
    return "\n\n".join([*("- " + sentence for sentence in found), state]) if found else state


def answer(runs: DataFrame, kind: str) -> str:
    """Say which methods rank best in a class, and how often the best one is clearly ahead. Empty without a ranking.

    If less than half of the methods of the class are ranked, no method is named as the best.
    """
    ranking = rank_class(runs, kind) if len(runs) else None
    if ranking is None:
        return ""
    ranks = mean_ranks(ranking)["all"]
    methods = sum(supervision(method) == kind for method in METHODS)
    if 2 * len(ranks) < methods:
        return (
            f"If you have **{CLASSES[kind]}**, there is no answer yet: only {len(ranks)} of {methods} methods have "
            "finished runs."
        )
    names = [f"{display_name(str(name))} ({rank:.1f})" for name, rank in ranks.items()][:3]
    groups = [part for _, part in ranking.groupby(["data", "metric"], sort=False) if len(part) > 1]
    clear = sum(
        part["method"].iloc[0] == ranks.index[0] and part["rank_high"].iloc[0] < part["rank_low"].iloc[1]
        for part in groups
    )
    done = sum(supervision(method) == kind for method in runs["method"])
    state = "" if done == expected_runs(kind) else f" Provisional: {done} of {expected_runs(kind)} runs are finished."
    return (
        f"If you have **{CLASSES[kind]}**, the best mean ranks of {len(ranks)} methods are those of "
        f"**{names[0]}**{''.join(f', {name}' for name in names[1:])}. In {clear} of {len(groups)} combinations of a "
        f"dataset and a metric, {display_name(str(ranks.index[0]))} is first and its interval of ranks is separate "
        f"from that of the second.{state}"
    )


def ranking_block(collected: DataFrame) -> str:
    """Return the mean ranks in each class, and the scores on each dataset."""
    runs = study_runs(collected)
    rankings = {kind: ranking for kind in CLASSES if len(runs) and (ranking := rank_class(runs, kind)) is not None}
    if not rankings:
        return "**Not run yet**, so there is no ranking."
    parts = [picture()] if PICTURE.exists() else []
    for kind, ranking in rankings.items():
        parts += [f"### Methods that learn from {CLASSES[kind]}", rank_table(ranking)]
        parts += [score_table(ranking, data) for data in ranking["data"].unique()]
    return "\n\n".join(parts)


def picture() -> str:
    """Return the line that shows the picture of the ranking."""
    return "![Mean scores of all methods by each metric, with intervals](../pictures/which_method.png)"


def rank_table(ranking: DataFrame) -> str:
    """Return the mean rank of each method over datasets, for each metric and for all metrics."""
    ranks = mean_ranks(ranking)
    names = [name for name in ranks if name != "all"]
    rows = [
        [display_name(str(method)), f"{row['all']:.1f}", *(f"{row[name]:.1f}" for name in names)]
        for method, row in ranks.iterrows()
    ]
    return table(["mean rank over datasets", "all metrics", *map(metric_name, names)], rows)


def score_table(ranking: DataFrame, data: str) -> str:
    """Return the mean scores on one dataset with the 95 % intervals of the ranks. The order is that of mean ranks."""
    part = ranking[ranking["data"] == data].set_index(["method", "metric"])
    names = [name for name in METRICS if name in part.index.get_level_values("metric")]
    rows = []
    for method in mean_ranks(ranking).index:
        if method in part.index.get_level_values("method"):
            rows.append([display_name(str(method)), *(score_text(part, str(method), name) for name in names)])
    return table([f"{data}: mean score (ranks)", *map(metric_name, names)], rows)


def score_text(part: DataFrame, method: str, metric: str) -> str:
    """Return a mean score with the interval of its rank, or a dash if the method has no such score."""
    if (method, metric) not in part.index:
        return "-"
    row = part.loc[(method, metric)]
    return f"{row['mean']:.3f} ({row['rank_low']:g}-{row['rank_high']:g})"


def agreement_block(collected: DataFrame) -> str:
    """Return the rank correlation of each two metrics over all methods, averaged over datasets."""
    runs = study_runs(collected)
    try:
        ranking = rank_methods(runs, columns_of(runs), methods=MIN_METHODS) if len(runs) else None
    except UserError:
        ranking = None
    if ranking is None:
        return "**Not run yet**, so there is nothing to compare."
    names = [name for name in METRICS if name in set(ranking["metric"])]
    parts = [part for _, part in ranking.groupby("data", sort=False)]
    means = {
        (a, b): sum(correlate_rankings(part, a, b)[0] for part in parts) / len(parts) for a in names for b in names
    }
    rows = [[metric_name(a), *(f"{means[a, b]:.2f}" for b in names)] for a in names]
    pairs = {pair: value for pair, value in means.items() if names.index(pair[0]) < names.index(pair[1])}
    return "\n\n".join([table(["rank correlation", *map(metric_name, names)], rows), agreement_text(pairs)])


def agreement_text(pairs: dict[tuple[str, str], float]) -> str:
    """Say which two metrics agree most and least."""
    if not pairs:
        return "Only one metric has scores."
    most, least = max(pairs, key=pairs.__getitem__), min(pairs, key=pairs.__getitem__)
    return (
        f"{metric_name(most[0])} and {metric_name(most[1])} agree most ({pairs[most]:.2f}), and "
        f"{metric_name(least[0])} and {metric_name(least[1])} least ({pairs[least]:.2f})."
    )
