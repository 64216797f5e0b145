"""Pictures of the joint effect of two latents. Both change over a grid while the other latents keep their values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from unbraid.data.dataset import FactorData, factor_index
from unbraid.errors import UserError, unknown_name_message
from unbraid.methods.controls import Controls
from unbraid.metrics import TRAITS, headline
from unbraid.pictures.examples import decoded_images, start_example
from unbraid.pictures.images import labelled_grid, tile_scale, write_picture
from unbraid.pictures.traversal import check_decoder, check_grid_arguments, encode_population, output_folder
from unbraid.runs.folder import RunFolder
from unbraid.runs.results import latest_scores
from unbraid.runs.run import Run
from unbraid.runs.run_data import run_data
from unbraid.runs.spec import method_name
from unbraid.scoring.code_statistics import information_shares
from unbraid.scoring.encoding import encode_table
from unbraid.scoring.factor_table import FactorTable
from unbraid.scoring.selection import draw_examples

Pair = tuple[int | str, int | str]
"""The indices of two controls (see `Method.controls`), or the names of two factors."""
ROWS = 10_000  # number of examples from which `informative_controls` chooses the controls of two factors


def traverse_pair(
    run: Run,
    pair: Pair,
    data: str | FactorData | None = None,
    *,
    example: int | None = None,
    span: float = 2.0,
    columns: int = 9,
    out: str | Path | None = None,
) -> Path:
    """Write `pair.png`, a grid of decoded examples in which two latents change.

    The first latent changes from left to right and the second from top to bottom, both from -span to span. All other
    latents keep the values of the example. For methods whose controls (`Method.controls`) are not latents but
    subspaces, circles or coordinates, two of these controls change. If a control has bounds, its values stay within
    them.

    Args:
        run: A run with a decoder.
        pair: The indices of two latents, or the names of two factors. For factors, the two latents with the most
            information about them are used (`informative_controls`).
        data: A dataset or its name. By default the dataset of the run.
        example: The index of the example to start from. By default the one in the middle of the data.
        span: The largest position. Positions run from -span to span.
        columns: The number of rows and columns of the grid.
        out: The folder of the file. By default the folder of the run.

    Returns:
        The path of the file.

    Raises:
        UserError: If the run has no decoder, if the data cannot be drawn, or if an argument is not valid.
    """
    check_grid_arguments(span, columns)
    check_decoder(run)
    source = run_data(run, data, run.device)
    folder = output_folder(run, out)
    chosen = start_example(source, example)
    return write_picture(folder / "pair.png", draw_pair(decode_pair(run, source, chosen, pair, span, columns), source))


@dataclass(frozen=True)
class DecodedPair:
    """A grid of decoded examples in which two controls change.

    Attributes:
        decoded: Decoded examples, of shape (down, across, ...).
        names: The names of the control that changes across and of the control that changes down.
        positions: The values of the second control, one per row.
        original: The example from which the grid starts.
        reconstruction: The reconstruction of this example.
    """

    decoded: Tensor
    names: tuple[str, str]
    positions: Tensor
    original: Tensor
    reconstruction: Tensor

    def labels(self) -> list[str]:
        """Return one label per row, with the name of the second control and its value."""
        return [f"{self.names[1]}\n{float(value):+.2f}" for value in self.positions]


@torch.no_grad()
def decode_pair(
    run: Run, data: FactorData, example: int, pair: Pair, span: float, columns: int, align: bool = False
) -> DecodedPair:
    """Decode a grid of values of two controls, starting from one example.

    If the pair names two factors and `align` is true, a control whose codes fall as its factor rises is flipped, that
    is, its values run from span to -span.
    """
    x = data.batch(torch.tensor([example], device=data.device))
    controls = run.spec.method.controls(run.net, run.net.encode(x), encode_population(run, data))
    across, down = control_indices(run, data, controls, pair)
    positions = [control_positions(controls, i, span, columns) for i in (across, down)]
    if align:
        falls = falling_controls(run, data, len(controls.names), (str(pair[0]), str(pair[1])), (across, down))
        positions = [values.flip(0) if fall else values for values, fall in zip(positions, falls, strict=True)]
    z = controls.to_latents(grid_values(controls, (across, down), positions), 0)
    decoded = run.decode(z).unflatten(0, (columns, columns)).cpu()
    names = [controls.names[i] + (f"\n({factor})" if isinstance(factor, str) else "")
             for i, factor in zip((across, down), pair, strict=True)]  # fmt: skip
    own = run.decode(controls.to_latents(controls.start[:1], 0))[0].cpu()
    return DecodedPair(decoded, (names[0], names[1]), positions[1], x[0].cpu(), own)


def draw_pair(pair: DecodedPair, data: FactorData) -> Image.Image:
    """Draw the example and its reconstruction, and below them the grid."""
    first = (f"across:\n{pair.names[0]}", decoded_images(torch.stack([pair.original, pair.reconstruction]), data))
    rows = [(label, decoded_images(row, data)) for label, row in zip(pair.labels(), pair.decoded, strict=True)]
    return labelled_grid([first, *rows], tile_scale(*first[1][0].shape[1:]))


def grid_values(controls: Controls, pair: tuple[int, int], positions: Sequence[Tensor]) -> Float[Tensor, "n m"]:
    """Return the values of all controls at each point of the grid, row by row.

    All controls except the two of the pair keep the values of the example.
    """
    across, down = (values.to(controls.start) for values in positions)
    values = controls.start[:1].repeat(len(across) * len(down), 1)
    values[:, pair[0]] = across.repeat(len(down))
    values[:, pair[1]] = down.repeat_interleave(len(across))
    return values


def control_positions(controls: Controls, control: int, span: float, columns: int) -> Float[Tensor, " n"]:
    """Return evenly spaced values of a control, from -span to span.

    If a bound of the control lies between -span and span, the values end at the bound.
    """
    low, high = -span, span
    if controls.bounded:
        low, high = max(low, controls.low[control]), min(high, controls.high[control])
    return torch.linspace(low, high, columns)


def control_indices(run: Run, data: FactorData, controls: Controls, pair: Pair) -> tuple[int, int]:
    """Return the indices of the two controls that a pair of indices or of factor names refers to."""
    if all(isinstance(one, str) for one in pair):
        return informative_controls(run, data, len(controls.names), (str(pair[0]), str(pair[1])))
    first, second = pair
    valid = range(len(controls.names))
    if first not in valid or second not in valid or first == second:
        raise UserError(
            f"A pair must be two different latents, 0 to {len(valid) - 1}, or the names of two factors. Got {first} "
            f"and {second} instead."
        )
    return int(first), int(second)


def informative_controls(run: Run, data: FactorData, controls: int | None, factors: tuple[str, str]) -> tuple[int, int]:
    r"""Return the indices i and j of two different controls with the most information about two factors.

    .. math:: \text{arg max}_{i \ne j} I(c_i; v_1) / H(v_1) + I(c_j; v_2) / H(v_2)

    Here c_i is the column of codes of control i, and v_1 and v_2 are the two factors. The mutual information I of each
    control with its factor is divided by the entropy H of the factor.

    Args:
        run: The run.
        data: A dataset with these factors.
        controls: The number of controls of the run, or None to choose among the columns of its codes.
        factors: The names of two factors.
    """
    codes, table = codes_and_factors(run, data, controls, factors)
    fractions, _ = information_shares(codes, *table)
    total = fractions[:, :1] + fractions[:, 1]
    np.fill_diagonal(total, -np.inf)
    first, second = np.unravel_index(int(total.argmax()), total.shape)
    return int(first), int(second)


def codes_and_factors(
    run: Run, data: FactorData, controls: int | None, factors: tuple[str, str]
) -> tuple[Float[np.ndarray, "n m"], FactorTable]:
    """Return the codes of `ROWS` examples, with one column per control, and the values of two factors.

    If `controls` is None, the codes may have any number of columns.
    """
    columns = [factor_index(data, name) for name in factors]
    index = draw_examples(data, ROWS, 0)
    codes = run.codes(encode_table(run, data, index), run.spec.method.column_code_kind).cpu().numpy()
    if controls is not None and codes.shape[1] != controls:
        raise UserError(
            f"To choose controls by factors, a run must have one column of codes per control. {run.label} has "
            f"{codes.shape[1]} columns and {controls} controls instead. Choose two controls by index, such as 0,1."
        )
    return codes, FactorTable.of(data, index).select(columns)


def falling_controls(
    run: Run, data: FactorData, controls: int, factors: tuple[str, str], chosen: tuple[int, int]
) -> list[bool]:
    """Return for each of two factors whether the codes of its control fall as the factor rises."""
    codes, table = codes_and_factors(run, data, controls, factors)
    centred = codes[:, list(chosen)] - codes[:, list(chosen)].mean(0)
    values = np.asarray(table[0], dtype=np.float64)
    slopes = np.nansum(centred * (values - np.nanmean(values, axis=0)), axis=0)
    return [bool(slope < 0) for slope in slopes]


def best_and_worst_runs(runs: Sequence[Run], metric: str, count: int = 1) -> list[tuple[str, float, Run]]:
    """Return the best and the worst runs for each combination of dataset and method, by a stored score.

    Runs whose stored score `active` counts fewer active latents than factors are left out, because they cannot
    represent all factors. If all runs of a dataset and method would be left out, all of them are used.

    Args:
        runs: Runs with folders.
        metric: The name of a metric.
        count: The number of best runs, and also of worst runs, per dataset and method.

    Returns:
        Tuples ("best" or "worst", score, run). For each dataset and method, the best runs come before the worst, and no
        run is both. A single run counts as best.

    Raises:
        UserError: If the metric does not exist, or if no run has a score of it.
    """
    if metric not in TRAITS:
        raise UserError(unknown_name_message("metric", metric, TRAITS))
    column, sign = headline(metric), -1 if TRAITS[metric].low_is_good else 1
    groups: dict[tuple[str, str], list[tuple[bool, float, Run]]] = {}
    for run in runs:
        scores = {} if run.path is None else latest_scores(RunFolder(run.path, run.spec))
        if column in scores:
            pruned = bool(scores.get("active.units", math.inf) < scores.get("active.factors", 0))
            group = run.spec.data, method_name(run.spec.method)
            groups.setdefault(group, []).append((pruned, float(scores[column]), run))
    if not groups:
        raise UserError(f"No run has a score {column}. To compute it, run: unbraid score FOLDER --metrics {metric}")
    selected = []
    for members in groups.values():
        eligible = [member[1:] for member in members if not member[0]] or [member[1:] for member in members]
        ordered = sorted(eligible, key=lambda member: -sign * member[0])
        best = ordered[: max(1, min(count, len(ordered) // 2))]
        worst = ordered[len(best) :][::-1][:count]
        selected += [("best", *member) for member in best] + [("worst", *member) for member in worst]
    return selected
