"""The blocks of guides/claims.md: quantised autoencoders, 100 labels, and correlated factors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pandas import DataFrame, Series

from generate import ROOT
from generate.evidence import collected_runs, parts_named, runs_of_study, state_text, study_ids
from generate.markdown import replace_block, table
from generate.reproduction import explanation
from unbraid.analysis.plots import display_name
from unbraid.methods.semi_vae import FAMILIES
from unbraid.reproduction import quantised
from unbraid.reproduction.agreement import Cell, OurResult, make_cell
from unbraid.scoring.permutation import p_value
from unbraid.studies.claims import HFS_BETA

PAGE = ROOT / "docs" / "guides" / "claims.md"
SCORES = {
    "MIG": "mig.discrete_mig",
    "DCI": "dci.disentanglement",
    "FactorVAE score": "factor_vae.eval_accuracy",
    "BetaVAE score": "beta_vae.eval_accuracy",
    "SAP": "sap.SAP_score",
    "modularity": "modularity.modularity_score",
}
SIGNIFICANT = 0.05
CHOICES = """The best strength of each method is chosen by the scores of the table itself, for each score separately and
in the same way for all methods. The last column compares the best of the three weights of HFS with a single beta-VAE
that has the same beta. This comparison favours HFS. The first table has the three weights separately. p-values do not
account for these choices, nor for the number of comparisons on this page, so they are too small."""


def claim_pages() -> dict[Path, str]:
    """Return the page with its current blocks."""
    text, collected = PAGE.read_text(), collected_runs()
    made = {"quantised": quantised_block, "labels": labels_block, "correlated": correlated_block}
    for name, block in made.items():
        text = replace_block(text, name, block(collected))
    return {PAGE: text}


def spread_text(values: Series) -> str:
    """Return the mean and standard deviation of the values, or a dash if there are none."""
    found = OurResult.of(values)
    if found is None:
        return "-"
    return f"{found.mean:.3f}" if found.spread is None else f"{found.mean:.3f} ± {found.spread:.3f}"


def probability(p: float) -> str:
    """Return a p-value with three decimals."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def quantised_block(collected: DataFrame) -> str:
    """Return our scores beside the published ones, and how far the order is the same."""
    runs = runs_of_study("hsu2024", collected)
    state = state_text(parts_named("hsu-"), collected)
    if runs.empty:
        return state
    return "\n\n".join([state, quantised_table(runs), *(order_text(runs, column) for column in quantised.COLUMNS)])


def quantised_table(runs: DataFrame) -> str:
    """Return one row per method, with each score beside the published one."""
    rows = []
    for method, published in quantised.PUBLISHED.items():
        own = runs[runs["method"] == method]
        pairs = zip(quantised.COLUMNS.values(), published, strict=True)
        scores = (f"{spread_text(own[column])} / {value:.2f}" for column, value in pairs)
        rows.append([display_name(method), f"{len(own)}", *scores])
    return table(["method", "runs", *(f"{name}: ours / published, second-hand" for name in quantised.COLUMNS)], rows)


def order_text(runs: DataFrame, column: str) -> str:
    """Say how many pairs of methods have the published order by a score, and why the others do not."""
    results = quantised.our_order(quantised.select(runs))
    cells = [
        make_cell(published, results[published.row, column])
        for published in quantised.TARGET.published
        if published.column == column
    ]
    compared = [cell for cell in cells if cell.verdict in ("agree", "differ")]
    other = [cell for cell in compared if cell.verdict == "differ"]
    text = f"By {column}, {len(compared) - len(other)} of {len(compared)} pairs of methods have the published order."
    reasons: dict[str, list[Cell]] = {}
    for cell in other:
        reasons.setdefault(explanation("hsu2024", cell), []).append(cell)
    return " ".join([text, *(differences_text(reason, cells) for reason, cells in reasons.items())])


def differences_text(reason: str, cells: list[Cell]) -> str:
    """Say which methods do not have the published order, and the reason if it is known."""
    orders = []
    for cell in cells:
        second, first = cell.published.row.partition(",")[0].split(" minus ")
        better = "higher" if cell.published.value and cell.published.value > 0 else "lower"
        orders.append(f"{display_name(second)} is {better} than {display_name(first)}")
    known = reason.removeprefix("open").strip(". ") or "The reason is not known"
    return f"In the paper, but not in our runs, {' and '.join(orders)}. {known}."


def labels_block(collected: DataFrame) -> str:
    """Return the scores of each family without and with 100 labels."""
    runs = runs_of_study("locatello2020_labels", collected)
    needed = parts_named("labels-dsprites-", "locatello-dsprites-")
    state = state_text(needed, collected, study_ids("locatello2020_labels"))
    if runs.empty:
        return state
    return "\n\n".join([state, labels_table(runs), labels_text(runs)])


def by_labels(runs: DataFrame, family: str) -> tuple[DataFrame, DataFrame]:
    """Return the runs of a family without labels and with labels."""
    semi = runs[runs["method"] == "semi_vae"]
    return runs[runs["method"] == family], semi[semi["setting.family"] == family] if len(semi) else semi


def labels_table(runs: DataFrame) -> str:
    """Return one row per family, with each score without and with labels."""
    rows = []
    for family in FAMILIES:
        without, labelled = by_labels(runs, family)
        pairs = (f"{spread_text(without[c])} / {spread_text(labelled[c])}" for c in SCORES.values())
        rows.append([display_name(family), f"{len(without)} / {len(labelled)}", *pairs])
    return table(["method", "runs", *(f"{name}: without / with labels" for name in SCORES)], rows)


def label_gains(runs: DataFrame) -> Iterator[tuple[float, float]]:
    """Yield the gain by labels and its p-value, for each family and score with at least 2 runs on both sides."""
    for family in FAMILIES:
        without, labelled = by_labels(runs, family)
        for column in SCORES.values():
            old, new = without[column].dropna().to_numpy(), labelled[column].dropna().to_numpy()
            if min(len(old), len(new)) > 1:
                yield float(new.mean() - old.mean()), float(p_value(old, new))


def labels_text(runs: DataFrame) -> str:
    """Say how often labels raise a score."""
    gains = list(label_gains(runs))
    if not gains:
        return "No method has runs both without and with labels yet, so there is nothing to compare."
    higher = sum(gain > 0 for gain, _ in gains)
    clear = [gain for gain, p in gains if p < SIGNIFICANT]
    up, down = sum(gain > 0 for gain in clear), sum(gain < 0 for gain in clear)
    return (
        f"With 100 labels, the mean score is higher in **{higher} of {len(gains)}** combinations of a method and a "
        f"metric. The difference is significant (p < {SIGNIFICANT}, permutation test) in {up + down} of them: {up} "
        f"times the score is higher with labels, and {down} times lower."
    )


def correlated_block(collected: DataFrame) -> str:
    """Return the scores of beta-VAE, beta-TCVAE and HFS on correlated dSprites, and the gain by HFS."""
    runs = runs_of_study("roth2023", collected)
    state = state_text(parts_named("roth-"), collected)
    if runs.empty:
        return state
    return "\n\n".join([state, correlated_table(runs), gain_table(runs), CHOICES])


def correlated_table(runs: DataFrame) -> str:
    """Return one row per method and strength."""
    rows = []
    for (method, strength), own in runs.groupby(["method", "strength"], sort=False):
        name = f"gamma {strength:g}, beta {HFS_BETA:g}" if method == "hfs" else f"beta {strength:g}"
        rows.append(
            [display_name(str(method)), name, f"{len(own)}", *(spread_text(own[column]) for column in SCORES.values())]
        )
    return table(["method", "strength", "runs", *SCORES], rows)


def best_scores(runs: DataFrame, method: str, column: str) -> Series:
    """Return the scores of a method at the strength with the best mean."""
    own = runs[runs["method"] == method]
    if own.empty or own[column].isna().all():
        return own[column].dropna()
    best = own.groupby("strength")[column].mean().idxmax()
    return own[own["strength"] == best][column].dropna()


def gain_table(runs: DataFrame) -> str:
    """Return, for each score, the best strength of HFS beside the best ones of the other methods and beside beta 4."""
    rows = []
    for name, column in SCORES.items():
        hfs = best_scores(runs, "hfs", column)
        same = runs[(runs["method"] == "beta_vae") & (runs["strength"] == HFS_BETA)][column].dropna()
        others = (best_scores(runs, "beta_vae", column), best_scores(runs, "beta_tcvae", column), same)
        rows.append([name, spread_text(hfs), *(gain_text(other, hfs) for other in others)])
    same_beta = f"gain over beta-VAE with beta {HFS_BETA:g} (p)"
    head = ["score", "HFS, best gamma", "gain over beta-VAE, best beta (p)", "gain over beta-TCVAE, best beta (p)"]
    return table([*head, same_beta], rows)


def gain_text(old: Series, new: Series) -> str:
    """Return the difference of two means with its p-value, or a dash if one side has fewer than 2 runs."""
    if min(len(old), len(new)) < 2:
        return "-"
    return f"{new.mean() - old.mean():+.3f} ({probability(float(p_value(old.to_numpy(), new.to_numpy())))})"
