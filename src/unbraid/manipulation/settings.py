"""The settings of a manipulation, and their defaults for a dataset."""

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
from unbraid.manipulation.recipes import CHOICES, MAX_ROUNDS
from unbraid.noise import Noise

Planes: TypeAlias = tuple[tuple[str, str], ...]
Rotations: TypeAlias = str | Sequence[tuple[str, str]]

ERROR_LIKELIHOODS = ("bernoulli", "gaussian")  # for these, a perfect decoder has error 0
SHAPES3D = ("shapes3d", "shapes3d_rendered")  # the datasets for which the paper uses separate settings
CAPACITY_FRACTION = 0.5  # default capacity divided by the nats needed to identify a combination of factors
STEP_SIZE = 0.25  # change of a factor that is used to measure its strength, in standard deviations of the factor
STRENGTH_EXAMPLES = 256  # examples from which the strength of a factor is estimated


@dataclass(frozen=True)
class ManipulationSettings:
    """All settings that, together with the data, determine the result.

    The file of a manipulation records them under the key "recipe".

    Attributes:
        eps: The maximum change of a pixel, in (0, 1].
        steps: Number of training steps.
        batch: Number of images per batch.
        samples: Number of noisy codes per image.
        rotations: For each entangling pair, the planes that it rotates. Each plane is given by two factors.
        capacity: The sum of -log sigma over all latents, in nats, where sigma is the standard deviation of the noise.
        likelihood: The likelihood that defines the reconstruction error: "bernoulli" or "gaussian".
        learning_rate: Learning rate of the pairs.
        seed: Random seed.
        rounds: Number of batches on which the pairs are trained in each step. The manipulation is trained on one batch.
        warm: Fraction of the steps, at the beginning, in which only the pairs are trained.
        pace: Learning rate of the manipulation divided by the learning rate of the pairs.
        objective: What the manipulation minimises: "log_ratio", the log error of the entangling pairs minus the log
            error of the disentangling pairs, or "difference", the difference of the errors themselves.
        normalise: Whether the scalar and the pixels of the manipulation are normalised over the batch. The
            network that computes the pixels from the scalar is then initialised for a scalar of unit variance.
        scalar: The initial scalar of the manipulation: "diagonal" for the projection on the diagonal of the rotated
            factors, or "random" for a random function of all factors.
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
    objective: str = "log_ratio"
    normalise: bool = True
    scalar: str = "diagonal"

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "samples"):
            _check_positive(name, getattr(self, name))
        _check_positive("rounds", self.rounds, MAX_ROUNDS)
        for name in ("eps", "capacity", "learning_rate", "pace"):
            _check_positive(name, getattr(self, name), math.inf if name != "eps" else 1.0)
        if self.likelihood not in ERROR_LIKELIHOODS:
            raise UserError(unknown_name_message("likelihood of a manipulation", self.likelihood, ERROR_LIKELIHOODS))
        if not 0 <= self.warm < 1:
            raise UserError(f"The setting 'warm' of a manipulation must be >= 0 and < 1. Got {self.warm} instead.")
        if self.normalise and self.batch == 1:
            raise UserError(
                "The setting 'batch' of a manipulation must be >= 2, because the manipulation is normalised over the "
                "batch. Got 1 instead. Use a larger batch or do not normalise."
            )
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise UserError(unknown_name_message(f"{name} of a manipulation", getattr(self, name), choices))

    def as_json(self, complete: bool = False) -> dict[str, Any]:
        """Return the settings as a dictionary that does not change when it is written and read as JSON.

        A setting that was added in a later release is included only if it differs from its default. If `complete` is
        true, all settings are included.
        """
        defaults = {} if complete else self.later_defaults()
        values = {
            name: value
            for name, value in dataclasses.asdict(self).items()
            if name not in defaults or value != defaults[name]
        }
        return {**values, "rotations": [[list(plane) for plane in planes] for planes in self.rotations]}

    @classmethod
    def later_defaults(cls) -> dict[str, Any]:
        """Return the defaults of the settings that earlier releases did not have, and that old files do not record."""
        names = ("objective", "normalise", "scalar")
        return {field.name: field.default for field in dataclasses.fields(cls) if field.name in names}


def _check_positive(name: str, value: float, high: float = math.inf) -> None:
    """Raise an error unless a setting is finite, positive and at most `high`."""
    if not (math.isfinite(value) and 0 < value <= high):
        limit = "" if high == math.inf else f" and <= {high:g}"
        raise UserError(f"The setting '{name}' of a manipulation must be finite and > 0{limit}. Got {value} instead.")


def fill_settings(
    data: FactorData, eps: float | None, steps: int, batch: int, samples: int, ensemble: int | None,
    rotations: Rotations, capacity: float | None, likelihood: str, learning_rate: float, seed: int, **choices: Any,
) -> ManipulationSettings:  # fmt: skip
    """Return the settings, where each value that is None is replaced by the default for this dataset.

    `choices` are the other settings of a recipe (see `recipes`).
    """
    if isinstance(data, ChangedImages):
        raise UserError(
            f"A manipulation must be made for unchanged data. Got {data.name} instead. Remove its option 'modified' or "
            "'noise'."
        )
    if len(data.shape) != 3 or not data.names:
        raise UserError(f"A manipulation needs images with factors. Got {data} instead.")
    members = default_ensemble(data) if ensemble is None else ensemble
    nats = default_capacity(data) if capacity is None else capacity
    max_change = default_eps(data) if eps is None else eps
    planes = choose_planes(data, rotations, members, seed)
    fixed = (max_change, steps, batch, samples, planes, nats, likelihood, learning_rate, seed)
    return ManipulationSettings(*fixed, **choices)


def default_eps(data: FactorData) -> float:
    """Return the default maximum change of a pixel.

    It is 0.175 for Shapes3D and 0.1 for dSprites, as in the paper, and 0.1 for all other data.
    """
    return 0.175 if plain_name(data) in SHAPES3D else 0.1


def default_ensemble(data: FactorData) -> int:
    """Return the default number of pairs per family, which is 4 for Shapes3D, as in the paper, and 1 otherwise."""
    return 4 if plain_name(data) in SHAPES3D else 1


def default_capacity(data: FactorData) -> float:
    """Return the default capacity, which is half of the nats needed to identify a combination of factors.

    With this capacity, codes are about as noisy as in a regularised VAE. With much more capacity, the noise would be
    smaller than the spacing of the grid. Every example could then be identified, and rotations would have no cost.
    """
    return CAPACITY_FRACTION * (sum(map(math.log, data.sizes)) if data.gridded else math.log(len(data)))


class FactorStandardiser:
    """A function that standardises factors to mean 0 and variance 1 over the data.

    Factors with a single value are left out. The attribute `names` lists the remaining factors.
    """

    def __init__(self, data: FactorData) -> None:
        if data.missing_labels:
            raise UserError(
                f"A manipulation needs all labels of all examples. {data.name} has missing labels of "
                f"{', '.join(data.missing_labels)}. Add the labels, or remove these examples or factors."
            )
        if data.gridded:
            sizes = torch.tensor(data.sizes, dtype=torch.float64)
            mean, deviation = (sizes - 1) / 2, ((sizes**2 - 1) / 12).sqrt()
        else:
            labels = data.factors(slice(None)).double().cpu()
            mean, deviation = labels.mean(0), labels.std(0, correction=0)
        varies = deviation > 0
        self.names = tuple(name for name, keep in zip(data.names, varies.tolist(), strict=True) if keep)
        self.columns = varies.nonzero().flatten().to(data.device)
        self.mean, self.deviation = (v[varies].float().to(data.device) for v in (mean, deviation))

    def __call__(self, factors: Int[Tensor, "b all"]) -> Float[Tensor, "b k"]:
        return (factors[:, self.columns] - self.mean) / self.deviation


def choose_planes(data: FactorData, rotations: Rotations, ensemble: int, seed: int) -> tuple[Planes, ...]:
    """Return, for each of `ensemble` entangling pairs, the planes of two factors that it rotates.

    `rotations` has one of three forms. "closest" selects the plane of the two factors whose strengths (see
    `factor_strengths`) are most similar, because a manipulation of a given size has the largest effect there. "random"
    selects random planes, different for each entangling pair. Names such as "x:y,scale:orientation" select the planes
    explicitly. Factors whose values have no order are never rotated.
    """
    _check_positive("ensemble", ensemble)
    ordered = [name for name in FactorStandardiser(data).names if name not in data.categorical]
    if len(ordered) < 2:
        raise UserError(
            f"A rotation needs at least two factors whose values have an order. Got {data.name} with {len(ordered)} "
            "instead. Choose data with more factors."
        )
    if rotations == "closest":
        return (closest_planes(data, ordered),) * ensemble
    if rotations == "random":
        orders = [np.random.default_rng([seed, i]).permutation(ordered).tolist() for i in range(ensemble)]
        return tuple(tuple(zip(order[::2], order[1::2], strict=False)) for order in orders)
    return (parse_planes(rotations, ordered, data.name),) * ensemble


def parse_planes(text: Rotations, ordered: Sequence[str], dataset: str) -> Planes:
    """Return the planes that the user specified, or raise an error if a name or the form is invalid."""
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
    """Return the plane of the two factors with the most similar strengths.

    If the data do not fill a grid of factors, the strengths cannot be measured, and the first two factors are used.
    There is only one plane because the manipulation depends on one scalar, which can vary along the diagonal of only
    one plane.
    """
    base = data.base if isinstance(data, ChangedImages) else data
    if not base.gridded:
        return ((ordered[0], ordered[1]),)
    strength = factor_strengths(base)
    by_strength = sorted(ordered, key=lambda name: strength[name])
    return (min(pairwise(by_strength), key=lambda pair: strength[pair[1]] - strength[pair[0]]),)


def factor_strengths(data: FactorData) -> dict[str, float]:
    """Return the log strength of each factor.

    The strength is the squared change of the image divided by the squared change of the factor. The factor is changed
    by about a quarter of its standard deviation, and its change is measured in standard deviations.
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
