"""Measure how much worse the data can be reconstructed from rotated factors than from the factors themselves."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.accel.capture import step_runner
from unbraid.data.dataset import FactorData
from unbraid.manipulation.adversarial_training import build_families, train_on_batch
from unbraid.manipulation.settings import (
    FactorStandardiser,
    ManipulationSettings,
    Rotations,
    choose_planes,
    default_capacity,
)
from unbraid.noise import Noise

TAIL_SHARE = 0.5  # share of the steps, at the end, over which errors are averaged


def measure_gap(
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
    """Train disentangling and entangling pairs on the data as they are, and compare their reconstruction errors.

    Disentangling pairs have the factors as latents, entangling pairs the rotated factors. Both learn at the same time
    from the same initial function, batches and noise, at equal capacity. Errors are averaged over the last half of the
    steps, in nats per image.

    Args:
        data: A dataset of images with factors, or its name.
        steps: Number of training steps.
        batch: Images per batch.
        samples: Noisy codes per image.
        ensemble: Number of pairs of each kind.
        rotations: The planes that entangling pairs rotate: "closest", "random" or names, as in `modify`.
        capacity: The sum of -log sigma over all latents, in nats. Default: `settings.default_capacity`.
        likelihood: The reconstruction error: "bernoulli" or "gaussian".
        learning_rate: Learning rate.
        seed: Seed of all random numbers.
        device: Device to train on.

    Returns:
        A dictionary with the error of each family, "disentangling" and "entangling"; their difference "gap", entangling
        minus disentangling, and its standard error "error"; and "log_ratio", the log of the entangling over the
        disentangling error, which does not depend on the contrast of the images. If "gap" is above 0, the data favour
        the axes of the factors; if it is below 0, they favour the rotated axes.

    Raises:
        UserError: If the data have fewer than two ordered factors, or if a setting is out of range.
    """
    from unbraid.data.loading import load_data

    loaded = load_data(data, device, True).to(device)
    nats = default_capacity(loaded) if capacity is None else capacity
    planes = choose_planes(loaded, rotations, ensemble, seed)
    settings = ManipulationSettings(1.0, steps, batch, samples, planes, nats, likelihood, learning_rate, seed)
    return summarise_errors(training_errors(loaded, FactorStandardiser(loaded), settings))


def training_errors(
    data: FactorData, standard: FactorStandardiser, settings: ManipulationSettings
) -> Float[Tensor, "steps 2"]:
    """Train both families and return their errors at every step: disentangling, then entangling."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        families = build_families(data, standard, settings)
    optimiser, seed = families.adam(settings.learning_rate), torch.tensor(settings.seed, device=data.device)
    clock, errors = torch.tensor(0, device=data.device), torch.zeros(settings.steps, 2, device=data.device)

    def train_step() -> None:
        noise = Noise.from_seed(seed, clock)
        index = data.draw(noise, settings.batch)
        w, x = standard(data.factors_at(index)), data.batch(index, noise)
        errors.index_copy_(0, clock[None], train_on_batch(families, optimiser, w, x, noise)[None])
        clock.add_(1)

    run = step_runner(data.device)
    for _ in range(settings.steps):
        run(train_step)
    return errors.cpu()


def summarise_errors(errors: Float[Tensor, "steps 2"]) -> dict[str, float]:
    """Return the mean errors over the last steps, and their difference with its standard error.

    >>> summarise_errors(torch.tensor([[9.0, 9.0], [5.0, 7.0], [4.0, 4.0]] * 2))["gap"]
    0.6666666865348816
    """
    tail = errors[int(len(errors) * (1 - TAIL_SHARE)) :]
    difference = tail[:, 1] - tail[:, 0]
    error = float(difference.std()) / math.sqrt(len(difference)) if len(difference) > 1 else math.nan
    disentangling, entangling = tail.mean(0).tolist()
    log_ratio = math.log(entangling / disentangling)
    means = {"disentangling": disentangling, "entangling": entangling, "log_ratio": log_ratio}
    return {**means, "gap": float(difference.mean()), "error": error}
