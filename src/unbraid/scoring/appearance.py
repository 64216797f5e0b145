"""Whether appearance and perspective lie apart in a code: what each part tells of factors of either kind."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Num, Shaped
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from torch import Tensor

from unbraid.errors import UserError
from unbraid.methods.vitae import UVITAE
from unbraid.nets.vitae import VitaeNet
from unbraid.runs.run import CHUNK, Run

NEAREST, AVERAGED = 5, 20  # neighbours that vote for a class, and that are averaged for a number
Array = np.ndarray[Any, np.dtype[Any]]


class Separation(NamedTuple):
    """The score, which columns count as appearance, and what each part tells of every factor."""

    score: float
    appearance: tuple[int, ...]
    told: dict[str, tuple[float, float]]


def tells(codes: Float[np.ndarray, "n d"], values: Num[np.ndarray, " n"]) -> float:
    """How well one random half of the rows predicts the other: 0 at chance, 1 if perfect, never below 0.

    Whole numbers are classes, by the vote of the 5 nearest rows: accuracy above that of the commonest class, as a share
    of what is missing to 1. Other numbers are averaged over the 20 nearest: the share of the variance explained.

    >>> codes = np.linspace(0, 1, 400)[:, None]
    >>> tells(codes, codes[:, 0]) > 0.99, tells(codes[:, :0], codes[:, 0])
    (True, 0.0)
    """
    if codes.shape[1] == 0:
        return 0.0
    scaled = (codes - codes.mean(0)) / (codes.std(0) + 1e-12)
    order = np.random.default_rng(0).permutation(len(codes))
    learn, test = order[::2], order[1::2]
    kind = KNeighborsClassifier(NEAREST) if np.issubdtype(values.dtype, np.integer) else KNeighborsRegressor(AVERAGED)
    score = float(kind.fit(scaled[learn], values[learn]).score(scaled[test], values[test]))
    if isinstance(kind, KNeighborsClassifier):
        chance = float(np.unique(values[test], return_counts=True)[1].max()) / len(values[test])
        score = (score - chance) / max(1 - chance, 1e-12)
    return max(0.0, score)


def separation(
    codes: Float[np.ndarray, "n d"],
    appearance: Mapping[str, Array],
    perspective: Mapping[str, Array],
    split: tuple[int, ...] | None = None,
) -> Separation:
    r"""How far appearance and perspective lie in different columns of a code, from -1 to 1.

    .. math:: D = \frac12 \left[ \frac1{|F_A|} \sum_{f \in F_A} t(f|A) - t(f|P)
              + \frac1{|F_P|} \sum_{f \in F_P} t(f|P) - t(f|A) \right]

    t is `tells`, A the columns of the appearance (`split`) and P the others, :math:`F_A` and :math:`F_P` factors of
    either kind: arrays of n whole numbers (classes) or other numbers. Without a `split`, as for a VAE of one code, the
    split of the columns in two halves with the largest D is taken, which favours such codes.
    The definition is our own: the paper's score is not published.
    """
    columns = range(codes.shape[1])
    splits = [split] if split is not None else list(itertools.combinations(columns, len(columns) // 2))
    return max((_separated(codes, part, appearance, perspective) for part in splits), key=lambda found: found.score)


def _separated(
    codes: Array, part: tuple[int, ...], appearance: Mapping[str, Array], other: Mapping[str, Array]
) -> Separation:
    rest = [i for i in range(codes.shape[1]) if i not in part]
    told = {
        name: (tells(codes[:, list(part)], values), tells(codes[:, rest], values))
        for name, values in {**appearance, **other}.items()
    }
    seen = np.mean([told[name][0] - told[name][1] for name in appearance])
    turned = np.mean([told[name][1] - told[name][0] for name in other])
    return Separation(float(seen + turned) / 2, part, told)


def split_of(run: Run) -> tuple[int, ...] | None:
    """The columns of the appearance in the code of a run, if the method knows them."""
    method = run.spec.method
    return tuple(range(run.spec.latents - method.perspective)) if isinstance(method, UVITAE) else None


@torch.no_grad()
def upright(run: Run, x: Tensor) -> Float[Tensor, "n c h w"]:
    """Appearances decoded without their perspective; for a VAE of one code, reconstructions."""
    if run.net.decoder is None:
        raise UserError(f"Appearances are decoded, and {run.label} has no decoder. Choose another run.")
    mean = run.posterior(x).mean
    if not isinstance(run.net, VitaeNet):
        return run.decode(mean)
    generation = run.net.decoder
    return torch.cat([generation.upright(part) for part in mean[:, : generation.split].split(CHUNK)])


def appearance_accuracy(
    run: Run,
    learn: tuple[Shaped[Tensor, "n c h w"], Int[np.ndarray, " n"]],
    test: tuple[Shaped[Tensor, "m c h w"], Int[np.ndarray, " m"]],
) -> float:
    """Share of test images whose class the 5 nearest of the learning images name, both as decoded appearances.

    Reference: the comparison in the program of Detlefsen & Hauberg (2019), arXiv:1906.11881.
    """
    (a, kinds), (b, wanted) = learn, test
    seen, unseen = (upright(run, x).flatten(1).cpu().numpy() for x in (a, b))
    return float(KNeighborsClassifier(NEAREST, algorithm="brute").fit(seen, kinds).score(unseen, wanted))
