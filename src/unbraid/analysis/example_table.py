"""An artificial results table for examples and tests. Its runs were never trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas import DataFrame, Series

from unbraid.analysis.correlation import TASKS, UNSUPERVISED
from unbraid.analysis.results_table import PAPER_METRICS
from unbraid.metrics import headline

DATA = ("dsprites", "color_dsprites", "noisy_dsprites", "scream_dsprites", "smallnorb", "cars3d", "shapes3d")
SWEEPS = {
    "beta_vae": (1.0, 2.0, 4.0, 6.0, 8.0, 16.0),
    "factor_vae": (10.0, 20.0, 30.0, 40.0, 50.0, 100.0),
    "dip_vae_i": (1.0, 2.0, 5.0, 10.0, 20.0, 50.0),
    "dip_vae_ii": (1.0, 2.0, 5.0, 10.0, 20.0, 50.0),
    "beta_tcvae": (1.0, 2.0, 4.0, 6.0, 8.0, 10.0),
    "annealed_vae": (5.0, 10.0, 25.0, 50.0, 75.0, 100.0),
}
FACTORS = ("shape", "scale", "x", "y")


def example_results(
    seeds: int = 5, data: Sequence[str] = DATA, methods: Sequence[str] = tuple(SWEEPS), *, seed: int = 0
) -> DataFrame:
    """Return an artificial results table with the columns of a real one.

    Each run has a hidden quality that depends on its dataset, method, strength and seed. Its scores are noisy functions
    of this quality. The numbers have no meaning.

    Args:
        seeds: Number of seeds per setting.
        data: Names of datasets.
        methods: Names of methods, among those of the study `locatello2019`.
        seed: Random seed.

    Returns:
        A table with one row per dataset, method, level (6 per method) and seed.

    >>> example_results(seeds=2, data=["dsprites"], methods=["beta_vae"]).shape[0]
    12
    """
    rows = [
        {"data": name, "method": method, "strength": strength, "level": level, "seed": i, "steps": 300_000}
        for name in data for method in methods for level, strength in enumerate(SWEEPS[method]) for i in range(seeds)
    ]  # fmt: skip
    table = DataFrame(rows)
    table.insert(0, "run", [f"example-{i:05d}" for i in range(len(table))])
    rng = np.random.default_rng(seed)
    quality = group_effect(table, ["data", "method"], 0.7, rng) + group_effect(
        table, ["data", "method", "level"], 0.7, rng
    )
    quality = quality + rng.normal(scale=0.7, size=len(table))
    return pd.concat(
        [table, DataFrame({**labelled_scores(quality, rng), **unlabelled_scores(table, quality, rng)})], axis=1
    )


def group_effect(table: DataFrame, by: list[str], scale: float, rng: np.random.Generator) -> Series:
    """Draw one normally distributed value per group and repeat it for the rows of the group."""
    group = table.groupby(by, sort=False).ngroup()
    return group.map(Series(rng.normal(scale=scale, size=int(group.max()) + 1)))


def labelled_scores(quality: Series, rng: np.random.Generator) -> dict[str, Any]:
    """Return scores that need labels: metrics, the mutual information gap of each factor, and downstream accuracies.

    The mean of the gaps over factors is the MIG.
    """
    noise = {name: rng.normal(scale=0.3 + 0.15 * i, size=len(quality)) for i, name in enumerate(PAPER_METRICS)}
    scores: dict[str, Any] = {headline(name): 1 / (1 + np.exp(-quality - noise[name])) for name in PAPER_METRICS}
    scores |= {f"gaps.{name}": 0.4 * (i + 1) * scores[headline("mig")] for i, name in enumerate(FACTORS)}
    for i, column in enumerate(TASKS.values()):
        scores[column] = 1 / (1 + np.exp(-0.3 * quality - 0.5 * (i % 5) + 1 - rng.normal(scale=0.5, size=len(quality))))
    return scores


def unlabelled_scores(table: DataFrame, quality: Series, rng: np.random.Generator) -> dict[str, Any]:
    """Return the terms that are logged in training, and the scores that need no labels.

    For AnnealedVAE, also return the information about each factor.
    """
    n, level = len(table), table["level"].to_numpy()
    annealed = (table["method"] == "annealed_vae").to_numpy()
    kl = np.where(annealed, table["strength"], 40 - 5 * level) + rng.normal(size=n)
    rec = 80 - kl + rng.normal(scale=3, size=n)
    correlated = headline("unsupervised")
    columns = {"train.rec": rec, "train.kl": kl, "train.elbo": -rec - kl, "train.loss": rec + (1 + level) * kl}
    columns |= {"active.units": np.full(n, 6.0), "active.factors": np.full(n, float(len(FACTORS)))}
    columns[correlated] = np.exp(0.4 * level - 1 + rng.normal(scale=0.4, size=n))
    columns[f"{correlated}.sampled"] = np.exp(-0.5 * level - 1 + rng.normal(scale=0.4, size=n))
    columns[UNSUPERVISED["Mutual information"]] = 0.05 * columns[correlated] + rng.uniform(0, 0.05, n)
    columns[UNSUPERVISED["UDR"]] = 1 / (1 + np.exp(-0.5 * quality - rng.normal(scale=0.8, size=n)))
    for i, factor in enumerate(FACTORS):
        nats = np.clip((kl - 8 * (len(FACTORS) - 1 - i)) / 8, 0, 3) + rng.normal(scale=0.1, size=n) ** 2
        columns[f"information.{factor}"] = np.where(annealed, nats, np.nan)
    return columns
