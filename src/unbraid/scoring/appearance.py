"""Measure how well codes separate appearance from perspective, by predicting factors from parts of the codes.

The appearance is what an object looks like. The perspective is how it is seen: its rotation, shift or deformation.
"""

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
from unbraid.runs.run import CHUNK, Run

CLASS_NEIGHBOURS = 5  # number of neighbours that vote for a class
NUMBER_NEIGHBOURS = 20  # number of neighbours that are averaged to predict a number
Array = np.ndarray[Any, np.dtype[Any]]


class Separation(NamedTuple):
    """The result of `separation`.

    Attributes:
        score: The separation, from -1 to 1.
        appearance: The columns of the codes that were used as appearance.
        predictability: For each factor, two values of `predictability`: from the appearance columns, and from the other
            columns.
    """

    score: float
    appearance: tuple[int, ...]
    predictability: dict[str, tuple[float, float]]


def predictability(codes: Float[np.ndarray, "n d"], values: Num[np.ndarray, " n"]) -> float:
    """Measure how well codes predict a factor, from 0 (at chance or worse) to 1 (perfect prediction).

    A nearest-neighbour predictor is fitted to a random half of the rows and tested on the other half. Integer values
    are treated as classes and predicted by the vote of the 5 nearest rows. The score is then (accuracy - c) / (1 - c),
    where c is the frequency of the most frequent class. Other values are predicted by the mean of the 20 nearest rows.
    The score is then the fraction of the variance that is explained. Rows whose label is missing (NaN or a negative
    integer) are left out.

    >>> codes = np.linspace(0, 1, 400)[:, None]
    >>> predictability(codes, codes[:, 0]) > 0.99, predictability(codes[:, :0], codes[:, 0])
    (True, 0.0)
    """
    present = values >= 0 if np.issubdtype(values.dtype, np.integer) else ~np.isnan(values)
    codes, values = codes[present], values[present]
    if codes.shape[1] == 0:
        return 0.0
    scaled = (codes - codes.mean(0)) / (codes.std(0) + 1e-12)
    order = np.random.default_rng(0).permutation(len(codes))
    train, test = order[::2], order[1::2]
    kind = (
        KNeighborsClassifier(CLASS_NEIGHBOURS)
        if np.issubdtype(values.dtype, np.integer)
        else KNeighborsRegressor(NUMBER_NEIGHBOURS)
    )
    score = float(kind.fit(scaled[train], values[train]).score(scaled[test], values[test]))
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
    r"""Measure how well codes separate appearance from perspective, from -1 to 1.

    .. math:: D = \frac12 \left[ \frac1{|F_A|} \sum_{f \in F_A} t(f|A) - t(f|P)
              + \frac1{|F_P|} \sum_{f \in F_P} t(f|P) - t(f|A) \right]

    A is the set of columns that represent the appearance, P is the set of the other columns, and t(f|A) is the
    `predictability` of factor f from the columns A. The definition is our own, because Detlefsen & Hauberg (2019) do
    not publish how their score is computed.

    Args:
        codes: Codes of n examples, (n, d).
        appearance: The values of each factor of appearance, :math:`F_A`, by name: n integers (classes) or n floats.
        perspective: The values of each factor of perspective, :math:`F_P`, in the same form.
        split: The columns that represent the appearance. Pass None for a VAE that does not separate its latents into
            two parts. All splits into two halves are then tried and the largest D is used. This favours such a VAE.

    Returns:
        The separation with its split and the predictability of each factor.
    """
    columns = range(codes.shape[1])
    splits = [split] if split is not None else list(itertools.combinations(columns, len(columns) // 2))
    return max(
        (_separation_of_split(codes, part, appearance, perspective) for part in splits), key=lambda result: result.score
    )


def _separation_of_split(
    codes: Array, part: tuple[int, ...], appearance: Mapping[str, Array], other: Mapping[str, Array]
) -> Separation:
    """Compute the separation with the columns `part` as appearance."""
    rest = [i for i in range(codes.shape[1]) if i not in part]
    scores = {
        name: (predictability(codes[:, list(part)], values), predictability(codes[:, rest], values))
        for name, values in {**appearance, **other}.items()
    }
    of_appearance = np.mean([scores[name][0] - scores[name][1] for name in appearance])
    of_perspective = np.mean([scores[name][1] - scores[name][0] for name in other])
    return Separation(float(of_appearance + of_perspective) / 2, part, scores)


def appearance_columns(run: Run) -> tuple[int, ...] | None:
    """Return the code columns that represent the appearance, or None if the method of the run does not define them."""
    return run.spec.method.appearance_columns(run.spec.latents)


@torch.no_grad()
def decode_appearance(run: Run, x: Tensor) -> Float[Tensor, "n c h w"]:
    """Decode the appearance of examples without their perspective.

    If the VAE does not separate appearance from perspective, the result is its reconstruction of the examples.
    """
    if run.net.decoder is None:
        raise UserError(f"Decoding the appearance needs a decoder. {run.label} has no decoder. Choose another run.")
    mean = run.posterior(x).mean
    return torch.cat([run.spec.method.decode_appearance(run.net, part) for part in mean.split(CHUNK)])


def appearance_accuracy(
    run: Run,
    train: tuple[Shaped[Tensor, "n c h w"], Int[np.ndarray, " n"]],
    test: tuple[Shaped[Tensor, "m c h w"], Int[np.ndarray, " m"]],
) -> float:
    """Compute the accuracy with which decoded appearances predict the class of test images.

    The class of a test image is predicted by a vote of the 5 training images whose decoded appearances are nearest.

    Reference: the comparison in the authors' code for Detlefsen & Hauberg (2019), arXiv:1906.11881.

    Args:
        run: A run with a decoder.
        train: Training images, (n, c, h, w), and their classes, (n,).
        test: Test images, (m, c, h, w), and their classes, (m,).

    Returns:
        The fraction of test images whose class is predicted correctly.
    """
    (train_x, train_classes), (test_x, test_classes) = train, test
    a, b = (decode_appearance(run, x).flatten(1).cpu().numpy() for x in (train_x, test_x))
    classifier = KNeighborsClassifier(CLASS_NEIGHBOURS, algorithm="brute")
    return float(classifier.fit(a, train_classes).score(b, test_classes))
