"""How many runs fit into the memory of a GPU."""

from __future__ import annotations

import torch

from unbraid.data.dataset import FactorData
from unbraid.nets.vae import PairBuilder
from unbraid.runs.spec import RunSpec
from unbraid.training.stack import Stack

MOST_RUNS = 256  # in a stack; larger stacks are no faster
MEMORY_SHARE = 0.85  # of the free memory that a stack may use; the rest is for other work of the process
PROBE_RUNS = 2  # runs of the stack that is measured


def capacity(spec: RunSpec, data: FactorData, builder: PairBuilder, wanted: int) -> int:
    """The number of runs of a spec that fit into the free memory of the GPU, at most `wanted`.

    It is computed from the peak memory of one step of a small stack.
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
    return max(1, min(MOST_RUNS, wanted, int(MEMORY_SHARE * free / per_run)))
