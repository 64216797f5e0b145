"""Checking that a run fits into memory, and measuring how many runs fit into the memory of a GPU."""

from __future__ import annotations

import gc
import math
import os

import torch

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.nets.vae import PairBuilder
from unbraid.runs.spec import RunSpec
from unbraid.training.stack import Stack

MAX_RUNS = 256  # per stack, because larger stacks are not faster
MEMORY_FRACTION = 0.85  # of the free memory, because the process needs the rest for other work
PROBE_RUNS = 2  # number of runs in the small stack whose memory is measured
# Minimum number of tensors of the same size: a batch, its reconstruction and the gradients of both, or a weight, its
# gradient and its two moments.
COPIES = 4
UNITS = 200  # minimum number of units in the layers next to the latents, over all networks of unbraid


def check_memory(spec: RunSpec, data: FactorData) -> None:
    """Raise a UserError if a run certainly needs more memory than the machine has, before anything is allocated."""
    numbers = spec.batch * (math.prod(data.shape) + spec.latents) + spec.latents * UNITS
    needed, available = 4 * COPIES * numbers, physical_memory(data.device)
    if needed > available:
        raise UserError(
            f"A run with batch={spec.batch} and latents={spec.latents} on examples of shape {tuple(data.shape)} needs "
            f"at least {needed / 2**30:,.3g} GiB of memory. The device has {available / 2**30:,.3g} GiB. Use a smaller "
            "batch or fewer latents."
        )


def physical_memory(device: torch.device) -> float:
    """Return the size of the memory of a device in bytes, or infinity if it is not known."""
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return math.inf


def max_runs_in_memory(spec: RunSpec, data: FactorData, builder: PairBuilder, wanted: int) -> int:
    """Return the number of runs of a spec that fit into the free memory of the GPU, at most `wanted` and `MAX_RUNS`.

    The memory per run is measured as the peak memory of one training step of a small stack.
    """
    if wanted <= PROBE_RUNS:
        return wanted
    device = data.device
    gc.collect()  # because compiled steps of earlier stacks have their data in reference cycles
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    try:
        Stack([spec] * PROBE_RUNS, data, builder, compiled=False).advance()
        torch.cuda.synchronize(device)
    except torch.cuda.OutOfMemoryError:
        return 1
    per_run = (torch.cuda.max_memory_allocated(device) - before) / PROBE_RUNS
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info(device)[0]
    return max(1, min(MAX_RUNS, wanted, int(MEMORY_FRACTION * free / per_run)))
