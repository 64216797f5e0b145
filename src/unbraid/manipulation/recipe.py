"""The choices that the paper leaves open, and those of a dataset."""

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
from unbraid.data.manipulated import Changed, bare
from unbraid.errors import UserError, unknown
from unbraid.noise import Noise

Planes: TypeAlias = tuple[tuple[str, str], ...]
Rotations: TypeAlias = str | Sequence[tuple[str, str]]

PIXELS = ("bernoulli", "gaussian")  # errors that are 0 for a perfect decoder
ROOMS = ("shapes3d", "shapes3d_rendered")  # for which the paper has numbers of their own
SHARE = 0.5  # of what it takes to tell all combinations of factors apart, as capacity
NEAR = 0.25  # of a factor's standard deviation: how far it is moved to see what that does to the image
LOOKED = 256  # examples by which the strength of factors is told


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what is learned besides the data; it is kept in the file."""

    eps: float
    steps: int
    batch: int
    samples: int
    rotations: tuple[Planes, ...]
    capacity: float
    likelihood: str
    learning_rate: float
    seed: int
    rounds: int = 3  # batches of the decoders for each of the manipulation
    warm: float = 0.1  # of the steps, the first, in which only the decoders learn
    pace: float = 0.1  # of the manipulation: its learning rate in that of the decoders

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "samples", "rounds"):
            _positive(name, getattr(self, name))
        for name in ("eps", "capacity", "learning_rate", "pace"):
            _positive(name, getattr(self, name), math.inf if name != "eps" else 1.0)
        if self.likelihood not in PIXELS:
            raise UserError(unknown("likelihood of a manipulation", self.likelihood, PIXELS))

    def facts(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**dataclasses.asdict(self), "rotations": [[list(plane) for plane in one] for one in self.rotations]}


def _positive(name: str, value: float, high: float = math.inf) -> None:
    if not (math.isfinite(value) and 0 < value <= high):
        limit = "" if high == math.inf else f" and <= {high:g}"
        raise UserError(f"The '{name}' of a manipulation must be finite, > 0{limit}. Got {value} instead.")


def usual_eps(data: FactorData) -> float:
    """The paper's strength: .175 for Shapes3D, and .1 for dSprites and everything else."""
    return 0.175 if bare(data) in ROOMS else 0.1


def usual_ensemble(data: FactorData) -> int:
    """Pairs of each kind: the paper's four for Shapes3D, and one."""
    return 4 if bare(data) in ROOMS else 1


def usual_capacity(data: FactorData) -> float:
    """Half of the nats that tell all combinations of factors apart: codes as coarse as those of a regularised VAE.

    With much more, noise is finer than the grid, every example is recognised, and no rotation costs anything.
    """
    return SHARE * (sum(map(math.log, data.sizes)) if data.gridded else math.log(len(data)))


class Standard:
    """Factors with mean 0 and variance 1; those with a single value are left out."""

    def __init__(self, data: FactorData) -> None:
        if data.gridded:
            sizes = torch.tensor(data.sizes, dtype=torch.float64)
            mean, deviation = (sizes - 1) / 2, ((sizes**2 - 1) / 12).sqrt()
        else:
            labels = data.factors(slice(None)).double().cpu()
            mean, deviation = labels.mean(0), labels.std(0, correction=0)
        varied = deviation > 0
        self.names = tuple(name for name, kept in zip(data.names, varied.tolist(), strict=True) if kept)
        self.kept = varied.nonzero().flatten().to(data.device)
        self.mean, self.deviation = (v[varied].float().to(data.device) for v in (mean, deviation))

    def __call__(self, factors: Int[Tensor, "b all"]) -> Float[Tensor, "b k"]:
        return (factors[:, self.kept] - self.mean) / self.deviation


def planes(data: FactorData, asked: Rotations, ensemble: int, seed: int) -> tuple[Planes, ...]:
    """The planes of two factors each that every entangling pair rotates.

    "closest" is one plane, of the two factors that change images most equally, where the least has the most effect;
    "random" gives each member of the ensemble planes of its own; else planes are named, as in "x:y,scale:orientation".
    Factors whose values have no order stay as they are.
    """
    _positive("ensemble", ensemble)
    ordered = [name for name in Standard(data).names if name not in data.categorical]
    if len(ordered) < 2:
        raise UserError(
            f"A rotation needs two factors whose values have an order. {data.name} has {len(ordered)}: give factors."
        )
    if asked == "closest":
        return (closest(data, ordered),) * ensemble
    if asked == "random":
        orders = [np.random.default_rng([seed, i]).permutation(ordered).tolist() for i in range(ensemble)]
        return tuple(tuple(zip(order[::2], order[1::2], strict=False)) for order in orders)
    return (named(asked, ordered, data.name),) * ensemble


def named(asked: Rotations, ordered: Sequence[str], whose: str) -> Planes:
    """Planes that the user names."""
    parts = [plane.split(":") for plane in asked.split(",")] if isinstance(asked, str) else [list(p) for p in asked]
    for name in (name for part in parts for name in part):
        if name not in ordered:
            raise UserError(unknown(f"factor to rotate of {whose}", name, [*ordered, "closest", "random"]))
    flat = [name for part in parts for name in part]
    if not parts or any(len(part) != 2 for part in parts) or len(set(flat)) < len(flat):
        raise UserError(f"Rotations must be pairs of different factors, such as x:y. Got {asked!r} instead.")
    return tuple((first, second) for first, second in parts)


def closest(data: FactorData, ordered: Sequence[str]) -> Planes:
    """The two factors with the most equal strengths; without a grid these are not known, and the first two are taken.

    There is one scalar, and it can lie along the diagonal of one plane.
    """
    base = data.base if isinstance(data, Changed) else data
    if not base.gridded:
        return ((ordered[0], ordered[1]),)
    strong = strengths(base)
    line = sorted(ordered, key=lambda name: strong[name])
    return (min(pairwise(line), key=lambda pair: strong[pair[1]] - strong[pair[0]]),)


def strengths(data: FactorData) -> dict[str, float]:
    """The log of what a factor does to the image: squared change for a squared quarter of its standard deviation."""
    rows = data._uniform(Noise(torch.tensor(0, device=data.device)), LOOKED)
    factors, before, found = data.unplace(rows), data.batch(rows), {}
    for j, (name, size) in enumerate(zip(data.names, data.sizes, strict=True)):
        if size == 1:
            continue
        deviation = math.sqrt((size**2 - 1) / 12)
        step = max(1, round(NEAR * deviation))
        moved = factors.clone()
        moved[:, j] = torch.where(factors[:, j] + step < size, factors[:, j] + step, factors[:, j] - step)
        change = (data.batch(data.place(moved)) - before).square().flatten(1).sum(1).mean()
        found[name] = math.log(max(float(change), 1e-12)) - 2 * math.log(step / deviation)
    return found
