"""How much of the variance of scores the objective explains, and the objective with its strength."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from pandas import DataFrame

from unbraid.analysis import plots
from unbraid.analysis.results_table import SETTING, Result, checked, enough, score_columns, score_name

SHARES = {"objective": "objective alone", "setting": "objective and strength"}


def variance(table: DataFrame, metrics: Sequence[str] | None = None) -> Result:
    r"""How much the objective matters: the share of the variance of scores that settings explain.

    .. math:: R^2 = 1 - \frac{\sum_i (s_i - \hat s_{g(i)})^2}{\sum_i (s_i - \bar s)^2}

    of ordinary least squares on one indicator a category, so that :math:`\hat s_g` is the mean of the category g: a
    method (`objective`), or a method and its strength (`setting`). The rest is the seed's.

    Beware: with G categories and n runs, scores that depend on nothing have an expected share of (G - 1) / (n - 1)
    (columns `objective_chance` and `setting_chance`): 2 % with the paper's 36 settings of 50 seeds, 20 % with 5 seeds.
    Table: a row a dataset and metric. NaN where all runs score the same.
    Reference: Locatello et al. (2019), arXiv:1811.12359, section 5.3, whose two tables give for MIG on dSprites 26 %
    and 72 %, for the FactorVAE score on dSprites 47 % and 54 %, and for SAP on Cars3D 13 % and 17 %.
    """
    columns = score_columns(table, metrics)
    rows = checked(table, columns.values(), seeds=2)
    enough(rows, columns.values(), fewest=3)
    lines = []
    for data, part in rows.groupby("data", sort=False):
        for metric, column in columns.items():
            one, both = explained(part, column, ["method"]), explained(part, column, SETTING)
            runs = int(part[column].notna().sum())
            line = {"data": data, "metric": metric, "objective": one[0], "setting": both[0]}
            lines.append({**line, "objective_chance": one[1], "setting_chance": both[1], "runs": runs})
    found = DataFrame(lines)
    return Result(found, draw(found, list(columns)), say(found))


def explained(rows: DataFrame, column: str, by: list[str]) -> tuple[float, float]:
    """The share of a column's variance between groups, and what it is expected to be by chance."""
    rows = rows.dropna(subset=[column])
    groups, centred = rows.groupby(by)[column], rows[column] - rows[column].mean()
    total = float((centred**2).sum())
    if rows[column].nunique() < 2:
        return float("nan"), float("nan")
    left = float(((rows[column] - groups.transform("mean")) ** 2).sum())
    return 1 - left / total, (groups.ngroups - 1) / (len(rows) - 1)


def say(found: DataFrame) -> str:
    """The median shares and what is left, in words."""
    middle = found[["objective", "setting", "objective_chance", "setting_chance"]].median()
    return (
        f"The objective explains {plots.percent(middle['objective'])} of the variance of scores (by chance "
        f"{plots.percent(middle['objective_chance'])}), the objective with its strength "
        f"{plots.percent(middle['setting'])} (by chance {plots.percent(middle['setting_chance'])}), as medians over "
        "datasets and metrics; the rest is the seed's."
    )


def draw(found: DataFrame, metrics: list[str]) -> Figure:
    """Two heat maps, datasets down and metrics across."""
    names = list(found["data"].unique())
    figure, grid = plots.matrix(1, 2, size=(0.55 * len(metrics) + 1.2, 0.3 * len(names) + 1.2))
    for axes, share in zip(grid[0], SHARES, strict=True):
        wide = found.pivot(index="data", columns="metric", values=share).loc[names, metrics]
        plots.heat(axes, wide.rename(columns=score_name), low=0, cmap="Blues", form=lambda v: f"{100 * v:.0f}")
        plots.label(axes, SHARES[share])
        plots.outer(axes)
    figure.suptitle("Variance of scores explained, in per cent", size=plots.TITLE, weight="bold")
    return figure
