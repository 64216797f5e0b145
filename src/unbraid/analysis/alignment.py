"""Will a VAE find these factors? Whether the local principal axes of a dataset are its factors, before any training."""

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
from unbraid.analysis.orthogonality import distances, random_distance
from unbraid.analysis.results_table import Array, refuse

if TYPE_CHECKING:
    from unbraid.data.dataset import FactorData

PLACES = 256
REACH = 0.3  # about the standard deviation of a used latent's posterior, in units of the prior's
CHUNK = 16  # places whose images are held at once
ROUNDING = 1e-5  # cosines below it are those of orthogonal directions
DRAWS = 4000


@dataclass(frozen=True)
class Alignment:
    """How well local principal axes agree with factors: `score`, tables of pairs and strengths, a figure, a sentence.

    `each` has the score of every place; two versions of a dataset with the same seed have the same places. `gram` is
    J^T J of the images' local change by factors of unit variance, (places, k, k).
    """

    data: str
    names: tuple[str, ...]
    steps: tuple[int, ...]
    gram: Array
    each: Array

    @property
    def score(self) -> float:
        """One where local principal axes are the factors, 0 where they are turned as chance would turn them."""
        return float(np.clip(self.each.mean(), 0, 1))

    @property
    def error(self) -> float:
        """The standard error of the score over places."""
        return float(self.each.std() / np.sqrt(len(self.each)))

    def against(self, other: Alignment) -> tuple[float, float]:
        """By how much the score exceeds that of another version of the data, and the standard error of that.

        Places are compared one by one, so that even small differences can be told.
        """
        if (self.names, self.steps, len(self.each)) != (other.names, other.steps, len(other.each)):
            came = f"{self.data} {self.names} and {other.data} {other.names}"
            refuse("Both must have the same factors, steps and places.", came, "Give both calls the same arguments.")
        apart = self.each - other.each
        return float(apart.mean()), float(apart.std() / np.sqrt(len(apart)))

    @cached_property
    def strengths(self) -> DataFrame:
        """A row a factor: `factor`, `step` (of the grid, over which change was measured), `strength`.

        Strength is the length of the images' change by one standard deviation of the factor, root mean square.
        """
        lengths = np.sqrt(np.einsum("nii->ni", self.gram).mean(axis=0))
        return DataFrame({"factor": self.names, "step": self.steps, "strength": lengths})

    @cached_property
    def table(self) -> DataFrame:
        """A row a pair of factors, the most mixed first: `first`, `second`, `mixing`, `cosine`, `ratio`.

        Mixing is 0 where no principal axis holds both and 1 where two axes hold both in equal parts, at 45 degrees.
        Cosine is the mean size of that between their changes, ratio the weaker's strength over the stronger's.
        """
        mixing, cosine = mixed(self.gram).mean(axis=0), np.abs(cosines(self.gram)).mean(axis=0)
        strength = self.strengths["strength"].to_numpy()
        rows = []
        for i, j in combinations(range(len(self.names)), 2):
            low, high = sorted((strength[i], strength[j]))
            ratio = low / high if high else float("nan")
            rows.append((self.names[i], self.names[j], mixing[i, j], cosine[i, j], ratio))
        found = DataFrame(rows, columns=["first", "second", "mixing", "cosine", "ratio"])
        return found.sort_values("mixing", ascending=False, kind="stable", ignore_index=True)

    @property
    def text(self) -> str:
        """The score, what it means, and the pair that is mixed most."""
        worst = self.table.iloc[0]
        unseen = [row.factor for row in self.strengths.itertuples() if row.strength == 0]
        said = (
            f"Alignment of {self.data} is {self.score:.2f} ± {self.error:.2f} over {len(self.each)} places, where 1 "
            "says that local principal axes, which a VAE's latents follow, are the factors, and 0 that they are "
            f"turned as by chance. Mixed most are {worst['first']} and {worst['second']} ({worst['mixing']:.2f}): "
            f"their changes have a cosine of {worst['cosine']:.2f} and strengths in the ratio {worst['ratio']:.2f}."
        )
        return said + (f" No change is seen of {', '.join(unseen)}." if unseen else "")

    @cached_property
    def figure(self) -> Figure:
        """Which factors share principal axes, and how strongly each changes images."""
        shared = mixed(self.gram).mean(axis=0)
        np.fill_diagonal(shared, np.nan)
        figure, (left, right) = plots.panels(2, size=(3.4, 2.6))
        plots.heat(left, DataFrame(shared, self.names, self.names), low=0.0, cmap="Reds")
        plots.label(left, f"{self.data}: shared axes")
        bars = right.barh(range(len(self.names)), self.strengths["strength"], color=plots.PALETTE[0])
        right.bar_label(bars, fmt="%.3g", size=plots.SMALL, padding=2)
        right.margins(x=0.15)
        right.set_yticks(range(len(self.names)), self.names)
        right.invert_yaxis()
        plots.label(right, f"alignment {self.score:.2f} ± {self.error:.2f}", "strength")
        return figure


def alignment(
    data: FactorData,
    factors: Sequence[str] | None = None,
    *,
    places: int = PLACES,
    reach: float = REACH,
    seed: int = 0,
) -> Alignment:
    r"""How well the local principal axes of a dataset agree with its factors.

    .. math:: J = U \Sigma V^T, \quad \text{score} = 1 - \frac{E \min_P \|V - P\|_F}{E_{V' \text{random}}
        \min_P \|V' - P\|_F}

    J are the images' changes by each factor, scaled to unit variance over its grid, and P signed permutations: it is
    the distance to orthogonality (`orthogonality`) of the data's own generator. A VAE's latents follow local principal
    axes, so factors are found where their changes are orthogonal and of different strengths. Two factors that change
    images alike, or equally strongly, leave axes that mix them.

    At each of `places` random cells of the grid, J is fitted to images at corners of the cell by a design in which
    neither pixel noise nor products of two factors lean towards any pair. A cell spans `reach` standard deviations of
    each factor, at least one step of its grid. `factors` are those to look at; all that have an order by default.
    Factors left out, categories among them, have one value in a cell.

    Limits: cycles are not closed. Pixel noise adds to strengths. Local axes may turn from place to place in ways that
    no single code can follow.
    References: Rolinek et al. (2019), arXiv:1812.06775; Zietlow et al. (2021), arXiv:2102.06822.
    """
    columns = ordered(data, factors)
    if places < 2:
        refuse("There must be at least 2 places.", f"{places}", "Ask for some hundreds.")
    if not (np.isfinite(reach) and reach >= 0):
        refuse("The 'reach' parameter must be finite and >= 0.", f"{reach}", "Take 0 for one step of the grid.")
    sizes = np.array([data.sizes[j] for j in columns])
    deviations = np.sqrt((sizes**2 - 1) / 12)
    steps = np.clip(np.round(reach * deviations).astype(int), 1, sizes - 1)
    gram = local_grams(data, columns, steps, places, seed) * np.outer(deviations / steps, deviations / steps)
    chance = random_distance(len(columns), DRAWS).mean
    each = 1 - distances(axes(gram)) / chance
    return Alignment(data.name, tuple(data.names[j] for j in columns), tuple(steps.tolist()), gram, each)


def ordered(data: FactorData, factors: Sequence[str] | None) -> list[int]:
    """The columns of the factors that were asked for, or of all with an order; two at least."""
    if not data.gridded:
        do = "Use data with an example for each combination of values."
        refuse("Alignment needs factors on a full grid.", f"{data.name}, which has none", do)
    has_order = [name for name in data.names if name not in data.categorical]
    wanted = has_order if factors is None else list(dict.fromkeys(factors))
    wrong = [name for name in wanted if name not in has_order]
    if wrong:
        refuse(f"Factors must be among those with an order: {', '.join(has_order)}.", f"{wrong[0]!r}", "Name others.")
    columns = [data.names.index(name) for name in wanted if data.sizes[data.names.index(name)] > 1]
    if len(columns) < 2:
        came = f"{len(columns)} of {data.name}"
        refuse("Alignment needs at least 2 factors with an order.", came, "Use data with more factors.")
    return columns


def design(k: int) -> Array:
    """Corners of a cell as rows of +1 and -1, (corners, k).

    Columns are orthogonal to each other, to 1 and to products of two columns: a Hadamard matrix
    and its negative, of 2k corners at least instead of all 2^k.
    """
    hadamard = np.ones((1, 1))
    while len(hadamard) < k:
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    return np.concatenate([hadamard[:, :k], -hadamard[:, :k]])


def local_grams(data: FactorData, columns: list[int], steps: Any, places: int, seed: int) -> Array:
    """J^T J of the change over one cell by each factor, (places, k, k)."""
    corners = design(len(columns))
    room = np.array(data.sizes)
    room[columns] -= steps
    base = np.random.default_rng(seed).integers(room, size=(places, len(room)))
    found = []
    for part in np.array_split(base, -(-places // CHUNK)):
        at = np.repeat(part[:, None, :], len(corners), axis=1)
        at[:, :, columns] += (corners > 0) * steps
        x = data.batch(data.index(at.reshape(-1, len(room)))).flatten(1).double().cpu().numpy()
        change = 2 / len(corners) * corners.T @ x.reshape(len(part), len(corners), -1)
        found.append(change @ change.swapaxes(1, 2))
    return np.concatenate(found)


def cosines(gram: Array) -> Array:
    """Cosines between changes, (places, k, k); zero for a factor that changes nothing."""
    lengths = np.sqrt(np.einsum("nii->ni", gram))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = gram / lengths[:, :, None] / lengths[:, None, :]
    return np.where(np.isfinite(found), found, 0.0)


def axes(gram: Array) -> Array:
    """Local principal axes in terms of factors, V as columns, (places, k, k); rounding does not turn them."""
    apart = np.abs(cosines(gram)) < ROUNDING
    diagonal = np.eye(gram.shape[-1], dtype=bool)
    return np.asarray(np.linalg.eigh(np.where(apart & ~diagonal, 0.0, gram))[1])


def mixed(gram: Array) -> Array:
    r""":math:`2 \sum_p V_{ip}^2 V_{jp}^2` of every two factors at each place, (places, k, k)."""
    shares = axes(gram) ** 2
    return np.asarray(2 * shares @ shares.swapaxes(1, 2))
