"""The time that the objective of a trained run takes: one forward and one backward pass on a batch."""

from __future__ import annotations

import copy
import statistics
import time
from typing import NamedTuple

import torch

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods.added_support import add_support
from unbraid.methods.method import Batch
from unbraid.noise import Noise
from unbraid.runs.run import Run

REPEATS = 15  # default number of measurements


class ObjectiveTimes(NamedTuple):
    """The result of `objective_times`.

    Attributes:
        forward: Median milliseconds to compute the loss of a batch.
        backward: Median milliseconds to compute the gradient of this loss with respect to all parameters.
    """

    forward: float
    backward: float


def objective_times(run: Run, data: FactorData, batch: int | None = None, repeats: int = REPEATS) -> ObjectiveTimes:
    """Measure how long the objective of a run takes, for one run alone and without the optimiser.

    The batch is drawn once, as in training. Operations are launched one by one, without a CUDA graph. When many runs
    are trained together on a GPU, each run takes less time than measured here.

    Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881, supplement, table 5.

    Args:
        run: The run.
        data: The dataset of the run, on the device of the run.
        batch: The number of examples in the batch. By default the batch size of the run.
        repeats: The number of measurements. One additional measurement at the start is not counted.

    Returns:
        The medians of the measurements, in milliseconds.

    Raises:
        UserError: If `repeats` is less than 1, or if the method cannot train on batches of this size.

    >>> import unbraid as ub
    >>> (run,) = ub.train(ub.methods.VAE(), "toy", steps=1, batch=4, latents=2, quiet=True)
    >>> times = objective_times(run, ub.data.load("toy"), repeats=3)
    >>> times.forward > 0, times.backward > 0
    (True, True)
    """
    if repeats < 1:
        raise UserError(f"The number of measurements must be at least 1. Got {repeats} instead.")
    size, method, spec = batch or run.spec.batch, run.spec.method, run.spec
    method.check(data, size, spec.latents)
    net = copy.deepcopy(run.net).requires_grad_(True)
    parameters = list(net.parameters())
    seed, step = torch.zeros((), dtype=torch.int64, device=run.device), torch.zeros((), device=run.device)
    drawn = method.draw(data, Noise.from_seed(seed, seed), size)
    x = data.batch(drawn.examples, Noise.from_seed(seed, seed))
    examples = Batch(x, len(data), drawn.changed, spec.steps, drawn.labels)
    found = []
    for _ in range(repeats + 1):
        start = _now(run)
        noise = Noise.from_seed(seed, seed)
        objective = method.objective(net, examples, noise, step)
        loss = add_support(objective, spec.factorised_support, net, x, noise)[0]
        middle = _now(run)
        torch.autograd.grad(loss, parameters, allow_unused=True)
        found.append((middle - start, _now(run) - middle))
    forward, backward = zip(*found[1:], strict=True)
    return ObjectiveTimes(1000 * statistics.median(forward), 1000 * statistics.median(backward))


def _now(run: Run) -> float:
    """Return the time in seconds, after all operations on the device of the run have ended."""
    if run.device.type == "cuda":
        torch.cuda.synchronize(run.device)
    return time.perf_counter()
