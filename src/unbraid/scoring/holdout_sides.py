"""Score runs on both sides of a split: on the factor combinations seen in training, and on those held out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from unbraid.data.dataset import FactorData
from unbraid.data.holdout import SIDES, SideView
from unbraid.data.loading import DataLike
from unbraid.errors import UserError
from unbraid.metrics.protocol import Array, Protocol, resolve_metric_names
from unbraid.metrics.similarity import fit_linear_map
from unbraid.runs.run import Run
from unbraid.scoring.encoding import encode_table
from unbraid.scoring.reconstruction import decoding_error
from unbraid.scoring.rows import ScoreRows
from unbraid.scoring.score import load_datasets, score_runs

MIN_READOUT_ROWS = 4  # minimum number of training rows for `readout_scores`, which fits a linear map to half of them
TITLES = dict(zip(SIDES, ("training", "held out"), strict=True))


def score_sides(
    runs: Sequence[Run],
    metrics: str | Iterable[str] | None = None,
    data: DataLike | None = None,
    codes: Any = None,
    protocol: Protocol | None = None,
    jobs: int | None = None,
    quiet: bool = False,
) -> ScoreRows:
    """Compute the scores of runs separately on the training side and on the held-out side of their data.

    The arguments are those of `score`.

    Returns:
        Two rows per run, the first for the training side and the second for the held-out side. In addition to the
        columns of `score`, the rows have `side` ("training" or "held out"), `examples` (the number of examples of the
        side), `reconstruction_error` (see `decoding_error`; only with a decoder) and `readout_r2` (see
        `readout_scores`).

    Raises:
        UserError: If the data of a run have no held-out side.
    """
    datasets = load_datasets(runs, data, quiet)
    for dataset in datasets.values():
        check_holdout(dataset)
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for name, dataset in datasets.items():
        group = [run for run in runs if run.spec.data == name]
        views = {side: dataset.holdout.view(dataset, side) for side in SIDES if dataset.holdout is not None}
        for side, view in views.items():
            for row in score_runs(group, metrics, view, codes, protocol, jobs, quiet):
                found[row["run"], side] = {**row, "side": TITLES[side], "examples": len(view)}
        for run in group:
            for side, extra in generalisation(run, dataset, views, protocol or Protocol()).items():
                found[run.id, side] |= extra
    rows = [found[run.id, side] for run in runs for side in SIDES]
    return ScoreRows(rows, [run.spec for run in runs], resolve_metric_names(metrics))


def check_holdout(data: FactorData) -> None:
    """Raise a UserError if nothing is held out from training."""
    if data.holdout is None or isinstance(data, SideView):
        raise UserError(
            f"Scores on both sides need a dataset from which examples are held out. {data.name} has no held-out side. "
            "Train on data with the option holdout, such as sprites?holdout=range."
        )


@torch.no_grad()
def generalisation(
    run: Run, data: FactorData, views: dict[str, SideView], protocol: Protocol
) -> dict[str, dict[str, float]]:
    """Return the reconstruction error and the readout score of each side, on at most `protocol.train` examples."""
    codes: dict[str, Array] = {}
    factors: dict[str, Array] = {}
    scores: dict[str, dict[str, float]] = {side: {} for side in views}
    for side, view in views.items():
        moved = view.to(run.device)
        index = torch.as_tensor(protocol.sample_indices(len(view)), device=moved.device)
        q = encode_table(run, moved, index)
        codes[side] = run.codes(q).double().cpu().numpy()
        factors[side] = data.factor_values(view.rows[index.to(view.device)].to(data.device)).cpu().numpy()
        if run.net.decoder is not None:
            latents = run.spec.method.point_latents(run.net, q)
            scores[side]["reconstruction_error"] = decoding_error(run, moved, index, latents)
    ordered = [j for j, name in enumerate(data.names) if name not in data.categorical and data.sizes[j] > 1]
    variances = np.nanvar(data.factor_values(slice(None)).cpu().numpy()[:, ordered], axis=0)
    values = {side: table[:, ordered] for side, table in factors.items()}
    for side, value in readout_scores(codes, values, variances).items():
        scores[side]["readout_r2"] = value
    return scores


def readout_scores(codes: dict[str, Array], factors: dict[str, Array], variances: Array) -> dict[str, float]:
    r"""Fit a linear map from codes to factors on the training side, and measure how well it predicts on each side.

    .. math:: \frac{1}{k} \sum_j \left( 1 - \frac{\mathrm{mean}_t (v_{tj} - f_j(c_t))^2}{\sigma_j^2} \right)

    k is the number of factors, :math:`v_{tj}` is the value of factor j of example t, and :math:`c_t` is the code of
    this example. The map f is fitted to half of the training side, and :math:`f_j` is its prediction of factor j. For
    the score of the training side, the mean runs over the other half of the training side. For the score of the
    held-out side, it runs over all held-out examples. :math:`\sigma_j^2` is the variance of factor j in the whole
    dataset. The score is therefore defined even if a factor is constant on the held-out side.

    The score is at most 1. On the held-out side it is far below 0 if the map extrapolates badly to the codes of the
    held-out examples. Rows with a missing label are left out.

    Reference: Schott et al. (2022), arXiv:2107.08221, for the score with these variances. The readout of the
    paper is a network instead of a linear map.

    Args:
        codes: The codes of each side, (n, d), with the keys "training" and "heldout".
        factors: The factors of the same examples, (n, k), without the categorical ones, by the same keys. NaN is a
            missing label.
        variances: The variance of each factor in the whole dataset.

    Returns:
        The score of each side, or an empty dictionary if there are no factors or too few examples.

    >>> z = np.indices((4, 5)).reshape(2, -1).T
    >>> v = {"training": 2.0 * z, "heldout": 2.0 * z + 18}
    >>> {side: round(r2, 6) for side, r2 in readout_scores({"training": z, "heldout": z + 9}, v, np.ones(2)).items()}
    {'training': 1.0, 'heldout': 1.0}
    """
    known = {side: ~np.isnan(table).any(axis=1) for side, table in factors.items()}
    x, v = ({side: table[known[side]] for side, table in part.items()} for part in (codes, factors))
    if not len(variances) or len(v["training"]) < MIN_READOUT_ROWS or not len(v["heldout"]):
        return {}
    readout = fit_linear_map(x["training"][::2], v["training"][::2])
    test = {"training": slice(1, None, 2), "heldout": slice(None)}
    errors = {side: ((v[side][rows] - readout(x[side][rows])) ** 2).mean(axis=0) for side, rows in test.items()}
    return {side: float((1 - error / variances).mean()) for side, error in errors.items()}
