"""Predict, before any training, whether a VAE can find the factors of a dataset: are they its local principal axes?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from pandas import DataFrame

from unbraid.analysis import plots
from unbraid.analysis.orthogonality import permutation_distances, random_distance
from unbraid.analysis.results_table import Array, reject

if TYPE_CHECKING:
    from unbraid.data.dataset import FactorData

PLACES = 256
REACH = 0.3  # about the posterior standard deviation of a used latent, relative to that of the prior
CHUNK = 16  # places whose images are in memory at the same time
ROUNDING = 1e-5  # directions with a smaller cosine count as orthogonal
DRAWS = 4000


@dataclass(frozen=True)
class Alignment:
    """The result of `alignment`: how well the local principal axes of a dataset agree with its factors.

    Attributes:
        data: Name of the dataset.
        names: Names of the k factors.
        steps: Number of grid steps of each factor over which the change of images was measured.
        gram: J^T J at each place, (places, k, k), where J is the change of the images per standard deviation of each
            factor.
        place_scores: The score at each place, (places,). Two versions of a dataset with the same seed have the same
            places.
    """

    data: str
    names: tuple[str, ...]
    steps: tuple[int, ...]
    gram: Array
    place_scores: Array

    @property
    def score(self) -> float:
        """1 if the local principal axes are the factors, 0 if they are rotated at random."""
        return float(np.clip(self.place_scores.mean(), 0, 1))

    @property
    def error(self) -> float:
        """The standard error of the score over places."""
        return float(self.place_scores.std() / np.sqrt(len(self.place_scores)))

    def difference_from(self, other: Alignment) -> tuple[float, float]:
        """The difference between this score and that of another version of the data, and its standard error.

        Scores are compared place by place, so that even small differences can be detected.

        Args:
            other: The alignment of the other version, computed with the same arguments.

        Raises:
            UserError: If the two have different factors, steps or numbers of places.
        """
        if (self.names, self.steps, len(self.place_scores)) != (other.names, other.steps, len(other.place_scores)):
            got = f"{self.data} {self.names} and {other.data} {other.names}"
            reject("Both must have the same factors, steps and places.", got, "Give both calls the same arguments.")
        differences = self.place_scores - other.place_scores
        return float(differences.mean()), float(differences.std() / np.sqrt(len(differences)))

    @cached_property
    def strengths(self) -> DataFrame:
        """One row per factor: `factor`, `step` (grid steps over which the change was measured) and `strength`.

        The strength is the root mean square length of the change of images per standard deviation of the factor.
        """
        lengths = np.sqrt(np.einsum("nii->ni", self.gram).mean(axis=0))
        return DataFrame({"factor": self.names, "step": self.steps, "strength": lengths})

    @cached_property
    def table(self) -> DataFrame:
        """One row per pair of factors, the most mixed pair first: `first`, `second`, `mixing`, `cosine`, `ratio`.

        `mixing` is 0 if no principal axis contains both factors, and 1 if two axes contain both in equal parts (at 45
        degrees). `cosine` is the mean absolute cosine between the changes of images by the two factors. `ratio` is the
        smaller strength divided by the larger.
        """
        mixing, cosine = factor_mixing(self.gram).mean(axis=0), np.abs(cosines(self.gram)).mean(axis=0)
        strength = self.strengths["strength"].to_numpy()
        rows = []
        for i, j in combinations(range(len(self.names)), 2):
            low, high = sorted((strength[i], strength[j]))
            ratio = low / high if high else float("nan")
            rows.append((self.names[i], self.names[j], mixing[i, j], cosine[i, j], ratio))
        pairs = DataFrame(rows, columns=["first", "second", "mixing", "cosine", "ratio"])
        return pairs.sort_values("mixing", ascending=False, kind="stable", ignore_index=True)

    @property
    def text(self) -> str:
        """The score, what it means, and the pair of factors that is mixed most."""
        worst = self.table.iloc[0]
        without_effect = [row.factor for row in self.strengths.itertuples() if row.strength == 0]
        text = (
            f"The alignment of {self.data} is {self.score:.2f} ± {self.error:.2f} over {len(self.place_scores)} "
            "places. It is 1 if the local principal axes, which the latents of a VAE follow, are the factors, and 0 if "
            f"they are rotated at random. {worst['first']} and {worst['second']} are mixed most "
            f"({worst['mixing']:.2f}): their changes have a cosine of {worst['cosine']:.2f} and a ratio of strengths "
            f"of {worst['ratio']:.2f}."
        )
        return text + (f" These factors do not change the images: {', '.join(without_effect)}." * bool(without_effect))

    @cached_property
    def figure(self) -> Figure:
        """A heat map of the mixing of factors, and bars of the strength with which each changes images."""
        shared = factor_mixing(self.gram).mean(axis=0)
        np.fill_diagonal(shared, np.nan)
        figure, (left, right) = plots.panel_figure(2, size=(3.4, 2.6))
        plots.draw_heat_map(left, DataFrame(shared, self.names, self.names), low=0.0, cmap="Reds")
        plots.set_labels(left, f"{self.data}: shared axes")
        bars = right.barh(range(len(self.names)), self.strengths["strength"], color=plots.PALETTE[0])
        right.bar_label(bars, fmt="%.3g", size=plots.SMALL, padding=2)
        right.margins(x=0.15)
        right.set_yticks(range(len(self.names)), self.names)
        right.invert_yaxis()
        plots.set_labels(right, f"alignment {self.score:.2f} ± {self.error:.2f}", "strength")
        return figure


def alignment(
    data: FactorData,
    factors: Sequence[str] | None = None,
    *,
    places: int = PLACES,
    reach: float = REACH,
    seed: int = 0,
) -> Alignment:
    r"""How well the local principal axes of a dataset agree with its factors. No model is trained.

    .. math:: J = U \Sigma V^T, \quad \text{score} = 1 - \frac{E \min_P \|V - P\|_F}{E_{V' \text{random}}
        \min_P \|V' - P\|_F}

    J is the change of the images with each factor, scaled to unit variance over its grid, and P are signed
    permutations. This is the distance to orthogonality (see `orthogonality`) of the generator of the data. The latents
    of a VAE follow local principal axes. So a VAE finds factors whose changes are orthogonal and of different
    strengths; two factors that change images in a similar direction, or equally strongly, are mixed.

    At each of `places` random cells of the grid, J is fitted to the images at the corners of the cell. The corners are
    chosen so that neither pixel noise nor products of two factors bias the fit towards any pair. Factors that are left
    out, and categorical factors, are constant in a cell.

    Limits: periodic factors are treated as intervals. Pixel noise adds to the strengths. Local axes may rotate from
    place to place in ways that no single code can follow.

    References: Rolinek et al. (2019), arXiv:1812.06775; Zietlow et al. (2021), arXiv:2102.06822.

    Args:
        data: A dataset with an example for each combination of factor values.
        factors: Names of the factors to use. By default all that have an order.
        places: Number of random cells of the factor grid.
        reach: Size of a cell in standard deviations of each factor. It is at least one step of the grid.
        seed: Seed of the cells.

    Returns:
        The alignment: `score`, `error`, `table`, `strengths`, `figure` and `text`.

    Raises:
        UserError: If the data have no full grid or fewer than 2 ordered factors, a factor is unknown or has no order,
            or `places` or `reach` is out of range.
    """
    columns = ordered_columns(data, factors)
    if places < 2:
        reject("There must be at least 2 places.", f"{places}", "Ask for some hundreds.")
    if not (np.isfinite(reach) and reach >= 0):
        reject("The 'reach' parameter must be finite and >= 0.", f"{reach}", "Use 0 for one step of the grid.")
    sizes = np.array([data.sizes[j] for j in columns])
    deviations = np.sqrt((sizes**2 - 1) / 12)
    steps = np.clip(np.round(reach * deviations).astype(int), 1, sizes - 1)
    gram = local_grams(data, columns, steps, places, seed) * np.outer(deviations / steps, deviations / steps)
    chance = random_distance(len(columns), DRAWS).mean
    each = 1 - permutation_distances(principal_axes(gram)) / chance
    return Alignment(data.name, tuple(data.names[j] for j in columns), tuple(steps.tolist()), gram, each)


def ordered_columns(data: FactorData, factors: Sequence[str] | None) -> list[int]:
    """The columns of `factors`, or of all ordered factors. Raises a UserError if there are fewer than two."""
    if not data.gridded:
        remedy = "Use data with an example for each combination of values."
        reject("Alignment needs factors on a full grid.", f"{data.name}, which has none", remedy)
    has_order = [name for name in data.names if name not in data.categorical]
    wanted = has_order if factors is None else list(dict.fromkeys(factors))
    wrong = [name for name in wanted if name not in has_order]
    if wrong:
        reject(f"Factors must be among those with an order: {', '.join(has_order)}.", f"{wrong[0]!r}", "Name others.")
    columns = [data.names.index(name) for name in wanted if data.sizes[data.names.index(name)] > 1]
    if len(columns) < 2:
        got = f"{len(columns)} of {data.name}"
        reject("Alignment needs at least 2 factors with an order.", got, "Use data with more factors.")
    return columns


def cell_corners(k: int) -> Array:
    """The corners of a cell that are used, as rows of +1 and -1, (corners, k).

    Columns are orthogonal to each other, to the constant 1 and to products of two columns. They are columns of a
    Hadamard matrix and its negative, which needs about 2k corners instead of all 2^k.
    """
    hadamard = np.ones((1, 1))
    while len(hadamard) < k:
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    return np.concatenate([hadamard[:, :k], -hadamard[:, :k]])


def local_grams(data: FactorData, columns: list[int], steps: Any, places: int, seed: int) -> Array:
    """J^T J of the change over one cell with each factor, (places, k, k)."""
    corners = cell_corners(len(columns))
    room = np.array(data.sizes)
    room[columns] -= steps
    base = np.random.default_rng(seed).integers(room, size=(places, len(room)))
    grams = []
    for part in np.array_split(base, -(-places // CHUNK)):
        at = np.repeat(part[:, None, :], len(corners), axis=1)
        at[:, :, columns] += (corners > 0) * steps
        x = data.batch(data.index(at.reshape(-1, len(room)))).flatten(1).double().cpu().numpy()
        change = 2 / len(corners) * corners.T @ x.reshape(len(part), len(corners), -1)
        grams.append(change @ change.swapaxes(1, 2))
    return np.concatenate(grams)


def cosines(gram: Array) -> Array:
    """The cosines between changes with each pair of factors, (places, k, k). They are 0 for a factor without effect."""
    lengths = np.sqrt(np.einsum("nii->ni", gram))
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines = gram / lengths[:, :, None] / lengths[:, None, :]
    return np.where(np.isfinite(cosines), cosines, 0.0)


def principal_axes(gram: Array) -> Array:
    """The local principal axes in terms of factors, as the columns of V, (places, k, k).

    Nearly orthogonal changes count as orthogonal, so that rounding errors do not rotate the axes.
    """
    orthogonal = np.abs(cosines(gram)) < ROUNDING
    diagonal = np.eye(gram.shape[-1], dtype=bool)
    return np.asarray(np.linalg.eigh(np.where(orthogonal & ~diagonal, 0.0, gram))[1])


def factor_mixing(gram: Array) -> Array:
    r"""The mixing :math:`2 \sum_p V_{ip}^2 V_{jp}^2` of each pair of factors at each place, (places, k, k)."""
    shares = principal_axes(gram) ** 2
    return np.asarray(2 * shares @ shares.swapaxes(1, 2))
