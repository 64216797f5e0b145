"""Pictures of what two latents do together: move both over a grid, hold the others, decode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.loading import load_data
from unbraid.distributions import Gaussian
from unbraid.errors import UserError, unknown
from unbraid.methods.controls import Controls
from unbraid.metrics import TRAITS
from unbraid.metrics.information import discretise, entropy, mutual_information
from unbraid.noise import Noise
from unbraid.pictures.traversal import Sweep, check_decoder, drawer, encode_picture, middle_example, page, population
from unbraid.runs.folder import RunDir
from unbraid.runs.results import scores_of
from unbraid.runs.run import Run
from unbraid.runs.spec import method_name
from unbraid.runtime.files import make_folder, write_atomic
from unbraid.scoring.encoding import encode_table
from unbraid.scoring.selection import drawn

Pair = tuple[int | str, int | str]
ROWS = 10_000  # of the data, by which latents are told to hold a factor
OPEN = ("latents", "directions")  # kinds of knobs that may be turned as far as one likes


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
    """Write `pair.png`, a grid of what a run decodes while two latents move, and return its path.

    `pair` has the numbers of two latents, or the names of two factors: then the two latents are taken that hold most of
    them (`holders`). The first moves from left to right, the second from top to bottom, both from -span to span; the
    others stay those of the example, the middle one of the data by default. What moves is a knob of the method
    (`Method.controls`): a latent, or a subspace, circle or coordinate where it has such. Knobs with an end stop there.
    """
    if columns < 2 or not span > 0:
        raise UserError(f"A traversal needs at least 2 columns and a span above 0. Got {columns} and {span} instead.")
    check_decoder(run)
    source = load_data(data if data is not None else run.spec.data, run.device)
    folder = Path(out) if out is not None else run.path
    if folder is None:
        raise UserError("A run that was trained without a folder needs one for its pictures: pass out=.")
    draws = drawer(source)
    chosen = middle_example(source) if example is None else example
    source.factors([chosen])  # refuses an example that does not exist
    found, names = sweep_pair(run, source, chosen, pair, span, columns)
    make_folder(folder)
    write_atomic(folder / "pair.png", encode_picture([_still(draws(found), names)]))
    return folder / "pair.png"


@torch.no_grad()
def sweep_pair(
    run: Run, data: FactorData, example: int, pair: Pair, span: float, columns: int
) -> tuple[Sweep, tuple[str, str]]:
    """Decoded images (down, across), with labels of the rows, and what moves across and down."""
    x = data.batch(torch.tensor([example], device=data.device))
    controls = run.spec.method.controls(run.net, run.net.encode(x), population(run, data))
    across, down = numbers(run, data, controls, pair)
    ways = [positions(controls, i, span, columns) for i in (across, down)]
    z = controls.place(grid(controls, (across, down), ways), 0)
    images = run.decode(z).unflatten(0, (columns, columns)).cpu()
    names = [controls.names[i] + (f"\n({wish})" if isinstance(wish, str) else "")
             for i, wish in zip((across, down), pair, strict=True)]  # fmt: skip
    own = run.decode(controls.place(controls.start[:1], 0))[0].cpu()
    labels = [f"{names[1]}\n{float(value):+.2f}" for value in ways[1]]
    return Sweep(images, labels, x[0].cpu(), own), (names[0], names[1])


def grid(controls: Controls, pair: tuple[int, int], ways: Sequence[Tensor]) -> Float[Tensor, "n m"]:
    """Knobs of every place of the grid, row after row; the others are the example's own."""
    across, down = (way.to(controls.start) for way in ways)
    knobs = controls.start[:1].repeat(len(across) * len(down), 1)
    knobs[:, pair[0]] = across.repeat(len(down))
    knobs[:, pair[1]] = down.repeat_interleave(len(across))
    return knobs


def positions(controls: Controls, knob: int, span: float, columns: int) -> Float[Tensor, " n"]:
    """Where a knob goes: from -span to span, or as far as it can."""
    low, high = -span, span
    if controls.kind not in OPEN:
        low, high = max(low, controls.low[knob]), min(high, controls.high[knob])
    return torch.linspace(low, high, columns)


def numbers(run: Run, data: FactorData, controls: Controls, pair: Pair) -> tuple[int, int]:
    """The numbers of the two knobs that are meant."""
    if all(isinstance(one, str) for one in pair):
        return holders(run, data, len(controls.names), (str(pair[0]), str(pair[1])))
    first, second = pair
    known = range(len(controls.names))
    if first not in known or second not in known or first == second:
        raise UserError(
            f"A pair must be two different latents, 0 to {len(known) - 1}, or the names of two factors. Got {first} "
            f"and {second} instead."
        )
    return int(first), int(second)


def holders(run: Run, data: FactorData, count: int, factors: tuple[str, str]) -> tuple[int, int]:
    r"""Two different latents that together tell most of two factors, each as a share of the factor's entropy.

    .. math:: \max_{i \ne j} I(c_i; v_1) / H(v_1) + I(c_j; v_2) / H(v_2)
    """
    for name in factors:
        if name not in data.names:
            raise UserError(unknown(f"factor of {data.name}", name, data.names))
    index = drawn(data, ROWS, 0)
    codes = named_codes(run, encode_table(run, data, index))
    if codes.shape[1] != count:
        raise UserError(f"{run.label} has {codes.shape[1]} codes and {count} knobs. Name the knobs by number: 0,1.")
    values = data.factors(index).cpu().numpy()[:, [data.names.index(name) for name in factors]]
    share = mutual_information(discretise(codes), values) / np.maximum(entropy(values), 1e-12)
    total = share[:, :1] + share[:, 1]
    np.fill_diagonal(total, -np.inf)
    first, second = np.unravel_index(int(total.argmax()), total.shape)
    return int(first), int(second)


def named_codes(run: Run, q: Gaussian) -> Any:
    """Codes with a column a knob: those the metrics see, or of subspaces one number each."""
    method, zero = run.spec.method, torch.tensor(0, device=q.mean.device)
    kind = "components" if "components" in method.code_kinds else method.code_kinds[0]
    with torch.no_grad():
        return method.code(run.net, q, kind, Noise.of(zero, zero)).cpu().numpy()


def _still(found: Sweep, names: tuple[str, str]) -> Any:
    scale = max(1, 64 // found.images.shape[-1])
    rows = [(label, list(images)) for label, images in zip(found.labels, found.images, strict=True)]
    first = f"across:\n{names[0]}"
    return page([(first, [found.original, found.reconstruction]), *rows], scale)


def extremes(runs: Sequence[Run], metric: str) -> list[tuple[str, float, Run]]:
    """The best and the worst run of each dataset and method by a score kept in their folders, "best" before "worst".

    Runs that are known to have fewer active latents than factors (`active`, which studies count) are left out where
    others are there: they lack a latent for some factor, however the rest scores.
    """
    if metric not in TRAITS:
        raise UserError(unknown("metric", metric, TRAITS))
    column, better = f"{metric}.{TRAITS[metric].headline}", -1 if TRAITS[metric].low_is_good else 1
    groups: dict[tuple[str, str], list[tuple[bool, float, Run]]] = {}
    for run in runs:
        scores = {} if run.path is None else scores_of(RunDir(run.path, run.spec))
        if column in scores:
            pruned = bool(scores.get("active.units", math.inf) < scores.get("active.factors", 0))
            place = run.spec.data, method_name(type(run.spec.method))
            groups.setdefault(place, []).append((pruned, float(scores[column]), run))
    if not groups:
        raise UserError(f"No run has a score {column}. Make it: unbraid score FOLDER --metrics {metric}")
    found = []
    for members in groups.values():
        whole = [member[1:] for member in members if not member[0]] or [member[1:] for member in members]
        ordered = sorted(whole, key=lambda member: -better * member[0])
        ends = {"best": ordered[0], "worst": ordered[-1]} if len(ordered) > 1 else {"best": ordered[0]}
        found += [(end, value, run) for end, (value, run) in ends.items()]
    return found
