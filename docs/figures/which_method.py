"""Draw the ranking of all methods for guides/which_method.md from evidence/results.csv.

Run in docs/: python -m figures.which_method
"""

from __future__ import annotations

from generate.evidence import collected_runs
from generate.which_method import PICTURE, columns_of, study_runs
from matplotlib.figure import Figure
from pandas import DataFrame

from unbraid.analysis.ranking import draw_ranking, rank_methods

DPI = 90


def ranking_figure(collected: DataFrame) -> Figure:
    """Return the figure of all methods, with one row of axes per dataset and one column per metric."""
    runs = study_runs(collected)
    columns = columns_of(runs)
    return draw_ranking(rank_methods(runs, columns, methods=2), columns)


def main() -> None:
    """Write the picture."""
    ranking_figure(collected_runs()).savefig(PICTURE, dpi=DPI, bbox_inches="tight")
    print(f"wrote {PICTURE}")


if __name__ == "__main__":
    main()
