"""What rotated factors cost on given images: the question of the game, asked of data as they are."""

from __future__ import annotations

import math

import torch

from unbraid.accel.capture import repeater
from unbraid.data.dataset import FactorData
from unbraid.manipulation.networks import Families
from unbraid.manipulation.recipe import Recipe, Rotations, Standard, planes, usual_capacity
from unbraid.noise import Noise

TAIL = 0.5  # of the steps, the last, over which errors are averaged


def gap(
    data: str | FactorData,
    *,
    steps: int = 2000,
    batch: int = 64,
    samples: int = 4,
    ensemble: int = 1,
    rotations: Rotations = "closest",
    capacity: float | None = None,
    likelihood: str = "bernoulli",
    learning_rate: float = 1e-3,
    seed: int = 1000,
    device: str | torch.device = "cpu",
) -> dict[str, float]:
    """How much worse pairs with rotated factors reconstruct the data than pairs with the factors themselves.

    Both kinds learn side by side from the same start, batches and noise, at equal capacity. `gap` is the error of the
    entangling pairs less that of the disentangling ones over the last half of the steps, in nats an image, and
    `error` its standard error. Above 0 the data favour the factors' own axes; below 0 the rotated ones. `log_ratio` is
    the same question free of contrast: the logarithm of one error over the other.
    """
    from unbraid.data.loading import load_data

    loaded = load_data(data, device, True).to(device)
    standard = Standard(loaded)
    nats = usual_capacity(loaded) if capacity is None else capacity
    turned = planes(loaded, rotations, ensemble, seed)
    recipe = Recipe(1.0, steps, batch, samples, turned, nats, likelihood, learning_rate, seed)
    return summary(errors(loaded, standard, recipe))


def errors(data: FactorData, standard: Standard, recipe: Recipe) -> torch.Tensor:
    """The errors of both families at every step, (steps, 2)."""
    from unbraid.manipulation.game import families, learn

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        pairs: Families = families(data, standard, recipe)
    optimiser, seed = pairs.adam(recipe.learning_rate), torch.tensor(recipe.seed, device=data.device)
    clock, found = torch.tensor(0, device=data.device), torch.zeros(recipe.steps, 2, device=data.device)

    def lesson() -> None:
        noise = Noise.of(seed, clock)
        index = data.draw(noise, recipe.batch)
        w, x = standard(data.unplace(index)), data.batch(index, noise)
        found.index_copy_(0, clock[None], learn(pairs, optimiser, w, x, noise)[None])
        clock.add_(1)

    repeat = repeater(data.device)
    for _ in range(recipe.steps):
        repeat(lesson)
    return found.cpu()


def summary(found: torch.Tensor) -> dict[str, float]:
    """The means of the tail, and the standard error of their difference.

    >>> summary(torch.tensor([[9.0, 9.0], [5.0, 7.0], [4.0, 4.0]] * 2))["gap"]
    0.6666666865348816
    """
    tail = found[int(len(found) * (1 - TAIL)) :]
    difference = tail[:, 1] - tail[:, 0]
    error = float(difference.std()) / math.sqrt(len(difference)) if len(difference) > 1 else math.nan
    straight, entangled = tail.mean(0).tolist()
    errors = {"disentangling": straight, "entangling": entangled, "log_ratio": math.log(entangled / straight)}
    return {**errors, "gap": float(difference.mean()), "error": error}
