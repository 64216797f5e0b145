"""Measuring how many runs fit into the memory of a GPU."""

from __future__ import annotations

import torch

from unbraid.data.dataset import FactorData
from unbraid.nets.vae import PairBuilder
from unbraid.runs.spec import RunSpec
from unbraid.training.stack import Stack

MAX_RUNS = 256  # per stack, because larger stacks are not faster
MEMORY_FRACTION = 0.85  # of the free memory, because the process needs the rest for other work
PROBE_RUNS = 2  # number of runs in the small stack whose memory is measured


def max_runs_in_memory(spec: RunSpec, data: FactorData, builder: PairBuilder, wanted: int) -> int:
    """Return the number of runs of a spec that fit into the free memory of the GPU, at most `wanted`.

    The memory per run is measured as the peak memory of one training step of a small stack.
    """
    if wanted <= PROBE_RUNS:
        return wanted
    device = data.device
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    try:
        Stack([spec] * PROBE_RUNS, data, builder).advance()
        torch.cuda.synchronize(device)
    except torch.cuda.OutOfMemoryError:
        return 1
    per_run = (torch.cuda.max_memory_allocated(device) - before) / PROBE_RUNS
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info(device)[0]
    return max(1, min(MAX_RUNS, wanted, int(MEMORY_FRACTION * free / per_run)))
