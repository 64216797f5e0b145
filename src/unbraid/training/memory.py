"""How many runs a GPU's memory holds."""

from __future__ import annotations

import torch

from unbraid.data.dataset import FactorData
from unbraid.nets.vae import PairBuilder
from unbraid.runs.spec import RunSpec
from unbraid.training.stack import Stack

MOST = 256  # runs in a stack: beyond that, more of them are no faster
SHARE = 0.85  # of the free memory, at most; the rest is for what else the process does
PROBE = 2  # runs of the stack that is measured


def capacity(spec: RunSpec, data: FactorData, builder: PairBuilder, wanted: int) -> int:
    """As many runs of a spec as fit beside what is on the device, from the peak of one step of a small stack."""
    if wanted <= PROBE:
        return wanted
    device = data.device
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    try:
        Stack([spec] * PROBE, data, builder).advance()
        torch.cuda.synchronize(device)
    except torch.cuda.OutOfMemoryError:
        return 1
    each = (torch.cuda.max_memory_allocated(device) - before) / PROBE
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info(device)[0]
    return max(1, min(MOST, wanted, int(SHARE * free / each)))
