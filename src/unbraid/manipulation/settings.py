"""The settings of a manipulation: those that the paper leaves open, and the defaults for a dataset."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.manipulated import ChangedImages
from unbraid.data.manipulation_files import plain_name
from unbraid.errors import UserError, unknown_name_message
from unbraid.noise import Noise

Planes: TypeAlias = tuple[tuple[str, str], ...]
Rotations: TypeAlias = str | Sequence[tuple[str, str]]

ERROR_LIKELIHOODS = ("bernoulli", "gaussian")  # their errors are 0 for a perfect decoder
SHAPES3D = ("shapes3d", "shapes3d_rendered")  # the paper has separate settings for these
CAPACITY_SHARE = 0.5  # capacity as a share of the nats that identify a combination of factors
STEP_SIZE = 0.25  # how far a factor is moved to measure its effect, in standard deviations of the factor
STRENGTH_EXAMPLES = 256  # examples from which the strength of a factor is estimated


@dataclass(frozen=True)
class ManipulationSettings:
    """Everything besides the data that determines the result. It is recorded in the file, under the key "recipe".

    Attributes:
        eps: The largest change of a pixel.
        steps: Number of updates of the manipulation.
        batch: Images per batch.
        samples: Noisy codes per image.
        rotations: For each member of the ensemble, the planes of two factors that its entangling pair rotates.
        capacity: The sum of -log sigma over all latents, in nats.
        likelihood: The reconstruction error, "bernoulli" or "gaussian".
        learning_rate: Learning rate of the pairs.
        seed: Seed of all random numbers.
        rounds: Batches on which the pairs are trained for each batch of the manipulation.
        warm: Share of the steps, at the beginning, in which only the pairs learn.
        pace: Learning rate of the manipulation divided by that of the pairs.
    """

    eps: float
    steps: int
    batch: int
    samples: int
    rotations: tuple[Planes, ...]
    capacity: float
    likelihood: str
    learning_rate: float
    seed: int
    rounds: int = 3
    warm: float = 0.1
    pace: float = 0.1

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "samples", "rounds"):
            _check_positive(name, getattr(self, name))
        for name in ("eps", "capacity", "learning_rate", "pace"):
            _check_positive(name, getattr(self, name), math.inf if name != "eps" else 1.0)
        if self.likelihood not in ERROR_LIKELIHOODS:
            raise UserError(unknown_name_message("likelihood of a manipulation", self.likelihood, ERROR_LIKELIHOODS))

    def as_json(self) -> dict[str, Any]:
        """Return the settings as a dictionary that JSON reads back unchanged."""
        return {**dataclasses.asdict(self), "rotations": [[list(plane) for plane in one] for one in self.rotations]}


def _check_positive(name: str, value: float, high: float = math.inf) -> None:
    if not (math.isfinite(value) and 0 < value <= high):
        limit = "" if high == math.inf else f" and <= {high:g}"
        raise UserError(f"The setting '{name}' of a manipulation must be finite and > 0{limit}. Got {value} instead.")


def fill_settings(
    data: FactorData, eps: float | None, steps: int, batch: int, samples: int, ensemble: int | None,
    rotations: Rotations, capacity: float | None, likelihood: str, learning_rate: float, seed: int,
) -> ManipulationSettings:  # fmt: skip
    """Return the settings, with the defaults for this dataset where a value is None."""
    if isinstance(data, ChangedImages):
        raise UserError(
            f"A manipulation must be made for unchanged data. Got {data.name}. Remove its option 'modified' or 'noise'."
        )
    if len(data.shape) != 3 or not data.names:
        raise UserError(f"A manipulation needs images with factors. Got {data} instead.")
    members = default_ensemble(data) if ensemble is None else ensemble
    nats = default_capacity(data) if capacity is None else capacity
    strength = default_eps(data) if eps is None else eps
    planes = choose_planes(data, rotations, members, seed)
    return ManipulationSettings(strength, steps, batch, samples, planes, nats, likelihood, learning_rate, seed)


def default_eps(data: FactorData) -> float:
    """Return the paper's strength: 0.175 for Shapes3D, and 0.1 for dSprites and all other data."""
    return 0.175 if plain_name(data) in SHAPES3D else 0.1


def default_ensemble(data: FactorData) -> int:
    """Return the number of pairs of each kind: the paper's 4 for Shapes3D, else 1."""
    return 4 if plain_name(data) in SHAPES3D else 1


def default_capacity(data: FactorData) -> float:
    """Return half of the nats that identify a combination of factors.

    Codes are then as coarse as in a regularised VAE.
    With much more capacity the noise is finer than the grid, every example is recognised, and no rotation has a cost.
    """
    return CAPACITY_SHARE * (sum(map(math.log, data.sizes)) if data.gridded else math.log(len(data)))


class FactorStandardiser:
    """Scale factors to mean 0 and variance 1 over the data. Factors with a single value are left out."""

    def __init__(self, data: FactorData) -> None:
        if data.gridded:
            sizes = torch.tensor(data.sizes, dtype=torch.float64)
            mean, deviation = (sizes - 1) / 2, ((sizes**2 - 1) / 12).sqrt()
        else:
            labels = data.factors(slice(None)).double().cpu()
            mean, deviation = labels.mean(0), labels.std(0, correction=0)
        varied = deviation > 0
        self.names = tuple(name for name, varies in zip(data.names, varied.tolist(), strict=True) if varies)
        self.columns = varied.nonzero().flatten().to(data.device)
        self.mean, self.deviation = (v[varied].float().to(data.device) for v in (mean, deviation))

    def __call__(self, factors: Int[Tensor, "b all"]) -> Float[Tensor, "b k"]:
        return (factors[:, self.columns] - self.mean) / self.deviation


def choose_planes(data: FactorData, rotations: Rotations, ensemble: int, seed: int) -> tuple[Planes, ...]:
    """Return, for each member of the ensemble, the planes of two factors that its entangling pair rotates.

    `rotations` is "closest" for the one plane of the two factors whose effects on the image are most equal, because
    there the smallest manipulation has the largest effect; "random" for random planes, different for each member; or
    the names of the planes, as in "x:y,scale:orientation". Factors whose values have no order are never rotated.
    """
    _check_positive("ensemble", ensemble)
    ordered = [name for name in FactorStandardiser(data).names if name not in data.categorical]
    if len(ordered) < 2:
        raise UserError(
            f"A rotation needs at least two factors whose values have an order. {data.name} has {len(ordered)}. Choose "
            "data with more factors."
        )
    if rotations == "closest":
        return (closest_planes(data, ordered),) * ensemble
    if rotations == "random":
        orders = [np.random.default_rng([seed, i]).permutation(ordered).tolist() for i in range(ensemble)]
        return tuple(tuple(zip(order[::2], order[1::2], strict=False)) for order in orders)
    return (parse_planes(rotations, ordered, data.name),) * ensemble


def parse_planes(text: Rotations, ordered: Sequence[str], dataset: str) -> Planes:
    """Return the planes that the user names."""
    parts = [plane.split(":") for plane in text.split(",")] if isinstance(text, str) else [list(p) for p in text]
    for name in (name for part in parts for name in part):
        if name not in ordered:
            raise UserError(
                unknown_name_message(f"factor to rotate of {dataset}", name, [*ordered, "closest", "random"])
            )
    flat = [name for part in parts for name in part]
    if not parts or any(len(part) != 2 for part in parts) or len(set(flat)) < len(flat):
        raise UserError(f"Rotations must be pairs of different factors, such as x:y. Got {text!r} instead.")
    return tuple((first, second) for first, second in parts)


def closest_planes(data: FactorData, ordered: Sequence[str]) -> Planes:
    """Return the plane of the two factors with the most equal strengths.

    Data that do not fill a grid have no known strengths; then the first two factors are taken. There is one plane,
    because the manipulation depends on one scalar, which can follow the diagonal of only one plane.
    """
    base = data.base if isinstance(data, ChangedImages) else data
    if not base.gridded:
        return ((ordered[0], ordered[1]),)
    strength = factor_strengths(base)
    by_strength = sorted(ordered, key=lambda name: strength[name])
    return (min(pairwise(by_strength), key=lambda pair: strength[pair[1]] - strength[pair[0]]),)


def factor_strengths(data: FactorData) -> dict[str, float]:
    """Return the log strength of each factor: squared change of the image per squared change of the factor.

    The factor is moved by a quarter of its standard deviation, the unit in which its change is measured.
    """
    rows = data._draw_uniform(Noise(torch.tensor(0, device=data.device)), STRENGTH_EXAMPLES)
    factors, before, strength = data.factors_at(rows), data.batch(rows), {}
    for j, (name, size) in enumerate(zip(data.names, data.sizes, strict=True)):
        if size == 1:
            continue
        deviation = math.sqrt((size**2 - 1) / 12)
        step = max(1, round(STEP_SIZE * deviation))
        moved = factors.clone()
        moved[:, j] = torch.where(factors[:, j] + step < size, factors[:, j] + step, factors[:, j] - step)
        change = (data.batch(data.index_of(moved)) - before).square().flatten(1).sum(1).mean()
        strength[name] = math.log(max(float(change), 1e-12)) - 2 * math.log(step / deviation)
    return strength
