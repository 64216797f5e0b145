"""Predict, before any training, whether a VAE can find the factors of a dataset.

A VAE can find the factors if they agree with the local principal axes of the data.
"""

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

PLACES = 256  # default number of grid cells
# Default size of a grid cell, in standard deviations of each factor. This is about the standard deviation of the
# posterior of an active latent, relative to that of the prior.
REACH = 0.3
CHUNK = 16  # number of grid cells whose images are in memory at the same time
ROUNDING = 1e-5  # directions with a smaller cosine are treated as orthogonal
DRAWS = 4000  # number of random rotations from which the chance level is estimated


@dataclass(frozen=True)
class Alignment:
    """The result of `alignment`: how well the local principal axes of a dataset agree with its factors.

    Attributes:
        data: Name of the dataset.
        names: Names of the k factors.
        steps: Size of a grid cell along each factor, in grid steps. The change of the images is measured over one cell.
        gram: J^T J in each grid cell, (places, k, k), where J is the change of the images per standard deviation of
            each factor.
        place_scores: The score in each grid cell, (places,). With the same seed, `alignment` uses the same
            cells for two versions of a dataset, so their scores can be compared cell by cell.
    """

    data: str
    names: tuple[str, ...]
    steps: tuple[int, ...]
    gram: Array
    place_scores: Array

    @property
    def score(self) -> float:
        """The mean score over grid cells: 1 if the local principal axes are the factors, 0 if they are random."""
        return float(np.clip(self.place_scores.mean(), 0, 1))

    @property
    def error(self) -> float:
        """The standard error of the score over grid cells."""
        return float(self.place_scores.std() / np.sqrt(len(self.place_scores)))

    def difference_from(self, other: Alignment) -> tuple[float, float]:
        """Compare the score with that of another version of the data.

        Scores are compared cell by cell, so even small differences can be detected.

        Args:
            other: The alignment of the other version, computed with the same arguments.

        Returns:
            The difference (this score minus the other) and its standard error.

        Raises:
            UserError: If the two have different factors, steps or numbers of grid cells.
        """
        if (self.names, self.steps, len(self.place_scores)) != (other.names, other.steps, len(other.place_scores)):
            got = f"{self.data} {self.names} and {other.data} {other.names}"
            requirement = "Both alignments must have the same factors, steps and number of places."
            reject(requirement, got, "Call 'alignment' with the same arguments for both.")
        differences = self.place_scores - other.place_scores
        return float(differences.mean()), float(differences.std() / np.sqrt(len(differences)))

    @cached_property
    def strengths(self) -> DataFrame:
        """A table with one row per factor: `factor`, `step` (size of a cell in grid steps) and `strength`.

        The strength is the root mean square length of the change of images per standard deviation of the factor.
        """
        lengths = np.sqrt(np.einsum("nii->ni", self.gram).mean(axis=0))
        return DataFrame({"factor": self.names, "step": self.steps, "strength": lengths})

    @cached_property
    def table(self) -> DataFrame:
        """A table with one row per pair of factors: `first`, `second`, `mixing`, `cosine`, `ratio`.

        `mixing` is 0 if no principal axis contains both factors. It is 1 if two axes contain both factors in equal
        parts, at 45 degrees. `cosine` is the mean absolute cosine between the image changes that the two factors cause.
        `ratio` is the smaller strength divided by the larger. The most mixed pair comes first.
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
            f"The alignment of {self.data} is {self.score:.2f} ± {self.error:.2f} over {len(self.place_scores)} cells "
            "of the factor grid. The latents of a VAE follow the local principal axes of the data. The alignment is 1 "
            "if these axes are the factors and 0 if they are rotated at random. "
            f"The factors {worst['first']} and {worst['second']} are mixed most (mixing {worst['mixing']:.2f}). The "
            f"cosine between the image changes that they cause is {worst['cosine']:.2f}, and the ratio of their "
            f"strengths is {worst['ratio']:.2f}."
        )
        return text + (f" These factors do not change the images: {', '.join(without_effect)}." * bool(without_effect))

    @cached_property
    def figure(self) -> Figure:
        """A heat map of the mixing of factors, and a bar chart of the strength of each factor."""
        mixing = factor_mixing(self.gram).mean(axis=0)
        np.fill_diagonal(mixing, np.nan)
        figure, (left, right) = plots.panel_figure(2, size=(3.4, 2.6))
        plots.draw_heat_map(left, DataFrame(mixing, self.names, self.names), low=0.0, cmap="Reds")
        plots.set_labels(left, f"{self.data}: mixing of factors")
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
    r"""Measure how well the local principal axes of a dataset agree with its factors. No model is trained.

    .. math:: J = U \Sigma V^T, \quad \text{score} = 1 - \frac{E \min_P \|V - P\|_F}{E_{V' \text{random}}
        \min_P \|V' - P\|_F}

    J is the change of the images with each factor, where each factor is scaled to unit variance over its grid. The
    columns of V in the singular value decomposition of J are the local principal axes. The first mean E is over cells
    of the factor grid, and V' is a random rotation. P ranges over signed permutations. The score is based on the
    distance to orthogonality (see `orthogonality`). That distance is defined for a decoder. Here it is computed for the
    process that generates the data. The latents of a VAE follow local principal axes. A VAE therefore finds factors
    whose image changes are orthogonal and differ in strength. It mixes two factors that change images in similar
    directions or equally strongly.

    In each of `places` random cells of the factor grid, J is fitted to the images at the corners of the cell. The
    corners are chosen such that neither pixel noise nor interactions between two factors make the estimated changes of
    two factors look correlated. Factors that are not in `factors`, and categorical factors, are constant within a cell.

    Limitations: If image changes of two factors are orthogonal and equally strong, any rotation of their axes is
    principal, and the score is that of axes that agree with the factors. Periodic factors are treated as intervals.
    Pixel noise increases the strengths. The local axes may
    rotate from cell to cell in ways that no single representation can follow.

    References: Rolinek et al. (2019), arXiv:1812.06775; Zietlow et al. (2021), arXiv:2102.06822.

    Args:
        data: A dataset with an example for each combination of factor values.
        factors: Names of the factors to use. By default all factors that are ordered, that is, not categorical.
        places: Number of random cells of the factor grid.
        reach: Size of a cell in standard deviations of each factor. A cell spans at least one grid step.
        seed: Random seed for the choice of cells.

    Returns:
        The alignment, with `score`, `error`, `table`, `strengths`, `figure` and `text`.

    Raises:
        UserError: If the data do not cover a full grid or have fewer than 2 ordered factors, if a factor is unknown or
            categorical, or if `places` or `reach` is out of range.
    """
    columns = ordered_factor_columns(data, factors)
    if places < 2:
        reject("The 'places' parameter must be at least 2.", f"{places}", "Use a few hundred.")
    if not (np.isfinite(reach) and reach >= 0):
        reject("The 'reach' parameter must be finite and >= 0.", f"{reach}", "Use 0 for one step of the grid.")
    sizes = np.array([data.sizes[j] for j in columns])
    deviations = np.sqrt((sizes**2 - 1) / 12)
    steps = np.clip(np.round(reach * deviations).astype(int), 1, sizes - 1)
    gram = local_grams(data, columns, steps, places, seed) * np.outer(deviations / steps, deviations / steps)
    chance = random_distance(len(columns), DRAWS).mean
    each = 1 - permutation_distances(principal_axes(gram)) / chance
    return Alignment(data.name, tuple(data.names[j] for j in columns), tuple(steps.tolist()), gram, each)


def ordered_factor_columns(data: FactorData, factors: Sequence[str] | None) -> list[int]:
    """Return the column indices of `factors`, or of all ordered factors if it is None.

    Factors with a single value are left out. Raise a UserError if fewer than two remain.
    """
    if not data.gridded:
        remedy = "Use data with an example for each combination of factor values."
        reject("Alignment needs factors on a full grid.", f"{data.name}, which has no such grid,", remedy)
    has_order = [name for name in data.names if name not in data.categorical]
    wanted = has_order if factors is None else list(dict.fromkeys(factors))
    wrong = [name for name in wanted if name not in has_order]
    if wrong:
        reject(f"Factors must be among those with an order: {', '.join(has_order)}.", f"{wrong[0]!r}", "Use these.")
    columns = [data.names.index(name) for name in wanted if data.sizes[data.names.index(name)] > 1]
    if len(columns) < 2:
        got = f"{len(columns)} in {data.name}"
        reject("Alignment needs at least 2 factors with an order.", got, "Use data with more factors.")
    return columns


def cell_corners(k: int) -> Array:
    """Return the corners of a cell at which images are evaluated, as rows of +1 and -1, (corners, k).

    The columns are orthogonal to each other, to the constant 1 and to products of two columns. They are columns of a
    Hadamard matrix, stacked on their negatives. A cell has 2^k corners, of which fewer than 4k are returned.
    """
    hadamard = np.ones((1, 1))
    while len(hadamard) < k:
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    return np.concatenate([hadamard[:, :k], -hadamard[:, :k]])


def local_grams(data: FactorData, columns: list[int], steps: Any, places: int, seed: int) -> Array:
    """Return J^T J in each grid cell, (places, k, k). J is the change of images over one cell along each factor."""
    corners = cell_corners(len(columns))
    n_origins = np.array(data.sizes)
    n_origins[columns] -= steps
    origins = np.random.default_rng(seed).integers(n_origins, size=(places, len(n_origins)))
    grams = []
    for part in np.array_split(origins, -(-places // CHUNK)):
        values = np.repeat(part[:, None, :], len(corners), axis=1)
        values[:, :, columns] += (corners > 0) * steps
        x = data.batch(data.index(values.reshape(-1, len(n_origins)))).flatten(1).double().cpu().numpy()
        change = 2 / len(corners) * corners.T @ x.reshape(len(part), len(corners), -1)
        grams.append(change @ change.swapaxes(1, 2))
    return np.concatenate(grams)


def cosines(gram: Array) -> Array:
    """Return the cosines between the image changes of each pair of factors, (places, k, k).

    They are 0 for a factor that does not change the images.
    """
    lengths = np.sqrt(np.einsum("nii->ni", gram))
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines = gram / lengths[:, :, None] / lengths[:, None, :]
    return np.where(np.isfinite(cosines), cosines, 0.0)


def principal_axes(gram: Array) -> Array:
    """Return the local principal axes in terms of factors, as the columns of V, (places, k, k).

    Nearly orthogonal changes are treated as orthogonal, because rounding errors would otherwise rotate the axes.
    """
    orthogonal = np.abs(cosines(gram)) < ROUNDING
    diagonal = np.eye(gram.shape[-1], dtype=bool)
    return np.asarray(np.linalg.eigh(np.where(orthogonal & ~diagonal, 0.0, gram))[1])


def factor_mixing(gram: Array) -> Array:
    r"""Return the mixing :math:`2 \sum_p V_{ip}^2 V_{jp}^2` of each pair of factors in each cell, (places, k, k).

    The columns of V are the principal axes.
    """
    squares = principal_axes(gram) ** 2
    return np.asarray(2 * squares @ squares.swapaxes(1, 2))
