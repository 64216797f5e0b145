"""Draw learning curves of abstract reasoning, and describe them in words."""

from __future__ import annotations

from matplotlib.figure import Figure
from pandas import DataFrame

from unbraid.analysis import plots
from unbraid.analysis.results_table import quartiles
from unbraid.reasoning.puzzles import ANSWERS

CHANCE = 1 / ANSWERS


def draw_curves(table: DataFrame) -> Figure:
    """Draw the accuracy over training steps, with one panel per dataset and one line per setting.

    The runs of a setting differ only in the seed. Lines and bands are medians and quartiles over seeds. A dashed line
    shows the accuracy of random guessing.
    """
    datasets, styles = list(table["data"].unique()), plots.line_styles(table["setting"])
    figure, panels = plots.panel_figure(len(datasets), across=3, size=(4.0, 3.2), sharey=True)
    summary = quartiles(table, "accuracy", ["data", "setting", "step"])
    for axes, data in zip(panels, datasets, strict=True):
        for setting, part in summary[summary["data"] == data].groupby("setting", sort=False):
            plots.draw_band(axes, part, "step", styles[str(setting)])
        axes.axhline(CHANCE, color="#555555", linewidth=1, linestyle="--")
        plots.set_labels(axes, data, "training steps", "accuracy")
    plots.draw_legend(figure, {plots.display_name(name): style for name, style in styles.items()}, columns=2)
    return figure


def describe_curves(table: DataFrame) -> str:
    """Return one sentence per dataset with the best and the worst median accuracy after the last step.

    A last sentence gives the accuracy of random guessing. Networks whose training diverged are left out.
    """
    texts = []
    last = table[table["step"] == table["step"].max()].dropna(subset=["accuracy"])
    for data, part in last.groupby("data", sort=False):
        ranked = part.groupby("setting", sort=False)["accuracy"].median().sort_values(ascending=False)
        ends = ", ".join(f"{ranked.iloc[i]:.2f} from the codes of {ranked.index[i]}" for i in dict.fromkeys((0, -1)))
        texts.append(f"On {data}, the accuracy after {part['step'].iloc[0]:,} steps is {ends}.")
    return " ".join([*texts, f"Chance is {CHANCE:.2f}."])
