"""A part of the examples that is held out from training, and the losses on it.

The split depends only on the number of examples and on the fraction, which the spec records as `validation`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.in_memory import Labelled
from unbraid.errors import UserError
from unbraid.methods.added_support import add_support
from unbraid.methods.decoder_penalties import penalised_objective
from unbraid.methods.method import Batch
from unbraid.nets.vae import PairBuilder
from unbraid.noise import Noise
from unbraid.runs.network import build_net
from unbraid.runs.spec import RunSpec

MAX_BYTES = 2 * 1024**3  # limit for the total size of the examples, which are copied
Validate = Callable[[dict[str, Tensor], int], dict[str, float]]
"""A function from the weights of a run and a step to the loss and its terms on the held-out examples, by name."""


def split_data(data: FactorData, fraction: float) -> tuple[Labelled, Labelled]:
    """Divide examples at random, always in the same way, into those for training and those for validation.

    Args:
        data: The dataset.
        fraction: The fraction of examples for validation, above 0 and below 1. Each part has at least two examples.

    Returns:
        The training part and the validation part. They are not treated as full grids, so pairs cannot be drawn.

    Raises:
        UserError: If the data have an option such as ``correlate`` or ``subset``, have random parts that change in each
            step, such as colours, have too few examples, or are too large.
    """
    size = len(data) * math.prod(data.shape) * (1 if len(data.shape) == 3 else 4)
    if data.sampler is not None or len(data) < 4 or size > MAX_BYTES or _has_random_parts(data):
        raise UserError(
            f"A validation split needs at least 4 examples, of at most {MAX_BYTES / 2**30:.0f} GiB in total, without "
            f"options such as ?correlate= and without random colours or backgrounds. Got {data.name} with "
            f"{len(data):,} examples instead. Leave out validation=."
        )
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(data)))
    count = min(max(2, round(fraction * len(data))), len(data) - 2)
    return _part(data, order[count:].sort()[0]), _part(data, order[:count].sort()[0])


def _has_random_parts(data: FactorData) -> bool:
    """Return whether examples have random parts that change between steps. A split would lose them."""
    index = torch.arange(2, device=data.device)
    noise = Noise(torch.tensor(0, device=data.device))
    return not torch.equal(data.batch(index), data.batch(index, noise))


def _part(data: FactorData, index: Tensor) -> Labelled:
    """Return some examples of a dataset with their labels."""
    rows = index.to(data.device)
    values = data.factor_values(rows) if data.continuous or data.missing_labels else None
    part = Labelled(data.name, data.names, data.sizes, data.images(rows), data.factors(rows), values, data.continuous)
    part.successive = False
    return part


def check_validation(spec: RunSpec, training: FactorData, held_out: FactorData) -> None:
    """Raise an error if the loss of a method cannot be computed on single examples that are held out."""
    zero = torch.zeros((), dtype=torch.int64, device=training.device)
    drawn = spec.method.draw(training, Noise.from_seed(zero, zero), spec.batch)
    single = drawn.groups == len(drawn.examples) == spec.batch
    labelled = drawn.labels is not None and spec.method.labels_at(held_out, zero[None]) is None
    if not single or labelled:
        raise UserError(
            "A validation split needs a method whose loss is computed on single examples. Got "
            f"{type(spec.method).__name__}, which also needs pairs or groups of examples, or labels that it chooses. "
            "Leave out validation=."
        )


def validation_losses(spec: RunSpec, held_out: FactorData, builder: PairBuilder) -> Validate:
    """Return a function of weights and a step that computes the loss and its terms on the held-out examples.

    The examples are divided into batches of the same size as in training, or into one smaller batch if there are too
    few. A smaller last batch is left out. The noise is the same at every step.
    """
    net = build_net(spec, held_out.shape, builder).to(held_out.device).eval()
    size = min(spec.batch, len(held_out) - len(held_out) % 2)
    batches = torch.arange(len(held_out) // size * size, device=held_out.device).split(size)

    @torch.no_grad()
    def validate(weights: dict[str, Tensor], step: int) -> dict[str, float]:
        net.load_state_dict({name: value.to(held_out.device) for name, value in weights.items()})
        now = torch.tensor(step, device=held_out.device)
        sums: dict[str, float] = {}
        for i, index in enumerate(batches):
            zero, number = torch.zeros_like(now), torch.zeros_like(now) + i
            noise = Noise.from_seed(zero, number), Noise.from_seed(zero, number, 1)
            labels = spec.method.labels_at(held_out, index)
            batch = Batch(held_out.batch(index), len(held_out), steps=spec.steps, labels=labels)
            objective = penalised_objective(spec.method, spec.penalties, net, batch, noise, now.float())
            loss, terms = add_support(objective, spec.factorised_support, net, batch.x, noise[0])
            for name, value in {"loss": loss, **terms}.items():
                sums[name] = sums.get(name, 0.0) + float(value) / len(batches)
        return {f"validation.{name}": value for name, value in sums.items()}

    return validate
