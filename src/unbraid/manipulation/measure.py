"""Measurement of how much worse images can be reconstructed from rotated factors than from the factors themselves."""

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

TAIL_FRACTION = 0.5  # errors are averaged over this fraction of the steps, at the end of training


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
    """Train disentangling and entangling pairs on fixed data, and compare their reconstruction errors.

    A pair is an encoder and a decoder. The encoders are not networks: the latents of disentangling pairs are the
    factors plus noise, and the latents of entangling pairs are rotated factors plus noise. Both kinds of pairs have the
    same initial function, batches, noise and capacity. Errors are in nats per image, and are averaged over the second
    half of the steps.

    Args:
        data: A dataset of images with factors, or its name.
        steps: Number of training steps.
        batch: Number of images per batch.
        samples: Number of noisy codes per image.
        ensemble: Number of pairs of each kind.
        rotations: The planes of two factors that entangling pairs rotate: "closest", "random" or names, as in `modify`.
        capacity: The sum of -log sigma over all latents, in nats, where sigma is the standard deviation of the noise.
            Default: half of the log of the number of combinations of factors (see `settings.default_capacity`).
        likelihood: The likelihood that defines the reconstruction error: "bernoulli" or "gaussian".
        learning_rate: Learning rate.
        seed: Random seed.
        device: Device to train on.

    Returns:
        A dictionary. The keys "disentangling" and "entangling" are the mean errors of the two families. The key "gap"
        is the entangling error minus the disentangling error, and "error" is the standard error of the gap. The key
        "log_ratio" is the log of the ratio of the entangling error to the disentangling error. This ratio does not
        depend on the contrast of the images. If the gap is positive, the data favour the axes of the factors. If it is
        negative, they favour the rotated axes.

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
    data: FactorData, standardise: FactorStandardiser, settings: ManipulationSettings
) -> Float[Tensor, "steps 2"]:
    """Train both families, and return the disentangling and the entangling error at every step."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        families = build_families(data, standardise, settings)
    optimiser, seed = families.make_optimiser(settings.learning_rate), torch.tensor(settings.seed, device=data.device)
    step_number, errors = torch.tensor(0, device=data.device), torch.zeros(settings.steps, 2, device=data.device)

    def train_step() -> None:
        noise = Noise.from_seed(seed, step_number)
        index = data.draw(noise, settings.batch)
        w, x = standardise(data.factors_at(index)), data.batch(index, noise)
        errors.index_copy_(0, step_number[None], train_on_batch(families, optimiser, w, x, noise)[None])
        step_number.add_(1)

    run = step_runner(data.device)
    for _ in range(settings.steps):
        run(train_step)
    return errors.cpu()


def summarise_errors(errors: Float[Tensor, "steps 2"]) -> dict[str, float]:
    """Summarise the errors of the second half of the steps as the dictionary that `measure_gap` returns.

    >>> summarise_errors(torch.tensor([[9.0, 9.0], [5.0, 7.0], [4.0, 4.0]] * 2))["gap"]
    0.6666666865348816
    """
    tail = errors[int(len(errors) * (1 - TAIL_FRACTION)) :]
    difference = tail[:, 1] - tail[:, 0]
    standard_error = float(difference.std()) / math.sqrt(len(difference)) if len(difference) > 1 else math.nan
    disentangling, entangling = tail.mean(0).tolist()
    log_ratio = math.log(entangling / disentangling)
    means = {"disentangling": disentangling, "entangling": entangling, "log_ratio": log_ratio}
    return {**means, "gap": float(difference.mean()), "error": standard_error}
