"""The registry of analyses of a results table, and a function that runs them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pandas import DataFrame

from unbraid.analysis.capacity import capacity
from unbraid.analysis.challenge import challenge
from unbraid.analysis.correlation import agreement, downstream, selection
from unbraid.analysis.demystifying import manipulated
from unbraid.analysis.efficiency import efficiency
from unbraid.analysis.manipulated_views import manipulated_factors, manipulated_spread, manipulated_strengths
from unbraid.analysis.pmp import pmp_ablation, pmp_comparison
from unbraid.analysis.ranking import method_ranking, ranking_agreement
from unbraid.analysis.results_table import Result
from unbraid.analysis.scores import distributions, scores, strengths
from unbraid.analysis.total_correlation import total_correlation
from unbraid.analysis.transfer import transfer
from unbraid.analysis.variance import variance
from unbraid.analysis.vitae import stability
from unbraid.errors import UserError, unknown_name_message, warn_user
from unbraid.label_kinds import split_names
from unbraid.metrics import TRAITS
from unbraid.runtime.arguments import explain_unknown_arguments
from unbraid.runtime.files import make_folder, write_atomic


@dataclass(frozen=True)
class Analysis:
    """A question about a results table and the function that answers it.

    Attributes:
        question: The question.
        run: The function that takes a results table and returns a result. It may have a parameter `metrics`, the names
            of the metrics to analyse, and a parameter `folder`, the folder of the runs.
    """

    question: str
    run: Callable[..., Result]

    def answer(
        self, table: DataFrame, metrics: Sequence[str] | None = None, folder: str | Path | None = None
    ) -> Result:
        """Run the analysis. `metrics` and `folder` are passed to its function only if the function takes them."""
        given = {"metrics": metrics, "folder": folder}
        parameters = inspect.signature(self.run).parameters
        return self.run(table, **{name: value for name, value in given.items() if name in parameters})


ANALYSES: dict[str, Analysis] = {
    "total_correlation": Analysis("Does regularisation make codes uncorrelated?", total_correlation),
    "agreement": Analysis("Do metrics agree with each other?", agreement),
    "scores": Analysis("Is one method better than the others?", scores),
    "method_ranking": Analysis("How do methods rank by each metric, and how certain are the ranks?", method_ranking),
    "ranking_agreement": Analysis("Do metrics rank methods in the same order?", ranking_agreement),
    "strengths": Analysis("Is one regularisation strength better than the others?", strengths),
    "distributions": Analysis("How are scores distributed over seeds at each strength?", distributions),
    "variance": Analysis("How much do objective, strength and seed matter?", variance),
    "selection": Analysis("Can good runs be identified without labels?", selection),
    "transfer": Analysis("Do good settings transfer to other datasets and metrics?", transfer),
    "downstream": Analysis("Do disentangled codes help downstream tasks?", downstream),
    "efficiency": Analysis("Do runs with high scores need fewer labels for a downstream task?", efficiency),
    "capacity": Analysis("What is the effect of more capacity in AnnealedVAE?", capacity),
    "challenge": Analysis("How do dimension, capacity and length of the random walk affect diffusion VAEs?", challenge),
    "pmp_comparison": Analysis("Does PMP have better scores than Ada-GVAE?", pmp_comparison),
    "pmp_ablation": Analysis("Which of its terms does PMP need?", pmp_ablation),
    "stability": Analysis("Which affine parametrisations of VITAE train at which learning rates?", stability),
    "manipulated": Analysis("How much do methods lose on images modified to mislead VAEs?", manipulated),
    "manipulated_spread": Analysis("How does the MIG vary over seeds on modified images?", manipulated_spread),
    "manipulated_factors": Analysis("Which factors are lost on modified images?", manipulated_factors),
    "manipulated_strengths": Analysis(
        "Does a different strength compensate for the modification of images?", manipulated_strengths
    ),
}


@explain_unknown_arguments()
def analyse(
    runs: str | Path | DataFrame,
    names: str | Sequence[str] | None = None,
    *,
    metrics: str | Sequence[str] | None = None,
    out: str | Path | None = None,
    on_skip: Callable[[str, str], None] | None = None,
) -> dict[str, Result]:
    """Run analyses of a results table.

    Args:
        runs: A results table, a file that contains one (`results.sqlite`, or a .csv or .parquet file), or a folder of
            runs that contains `results.sqlite`.
        names: Names of analyses in `ANALYSES`, as a list or separated by commas. By default all analyses for which the
            table has the necessary runs and columns.
        metrics: Names of metrics to analyse, for the analyses that have a choice of metrics. By default each analysis
            chooses its metrics, in most cases those of the six metrics of Locatello et al. (2019) that are in the
            table.
        out: A folder to which each analysis writes its table as NAME.csv and its figure as NAME.png.
        on_skip: A function that is called with the name of each skipped analysis and the reason. By default a warning
            is issued. If `names` is given, no analysis is skipped. An analysis that cannot be
            run then raises an error.

    Returns:
        The result of each analysis by name, in the order of `names` or of `ANALYSES`.

    Raises:
        UserError: If the name of an analysis or a metric is unknown, there is no results table, or an analysis in
            `names` needs runs or columns that the table does not have.

    >>> import unbraid as ub
    >>> table = ub.analysis.example_results(seeds=3, data=["dsprites"])
    >>> results = ub.analyse(table, ["variance", "agreement"])
    >>> list(results), list(results["agreement"].table.columns)
    (['variance', 'agreement'], ['data', 'first', 'second', 'correlation', 'runs'])
    """
    names, metrics = split_names(names) or None, split_names(metrics) or None
    for name in names or ():
        if name not in ANALYSES:
            raise UserError(unknown_name_message("analysis", name, ANALYSES))
    for metric in metrics or ():
        if metric not in TRAITS:
            raise UserError(unknown_name_message("metric", metric, TRAITS))
    table = runs if isinstance(runs, DataFrame) else _load_table(runs)
    folder = None if isinstance(runs, DataFrame) else Path(runs).parent if Path(runs).is_file() else Path(runs)
    results = {}
    for name in names or ANALYSES:
        try:
            results[name] = ANALYSES[name].answer(table, metrics, folder)
        except UserError as error:
            if names:
                raise
            (on_skip or _warn_skipped)(name, " ".join(str(error).split()))
            continue
        if out is not None:
            save_result(results[name], Path(out), name)
    return results


def _load_table(path: str | Path) -> DataFrame:
    from unbraid.runs.results import load_results

    table: DataFrame = load_results(path)
    return table


def _warn_skipped(name: str, reason: str) -> None:
    warn_user(f"left out: {name}: {reason}")


def save_result(result: Result, folder: Path, name: str) -> None:
    """Write the table of a result as NAME.csv and its figure as NAME.png, each atomically."""
    make_folder(folder)
    picture = result.picture()
    write_atomic(folder / f"{name}.csv", result.table.to_csv().encode())
    write_atomic(folder / f"{name}.png", picture)
