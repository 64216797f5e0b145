"""Encode tables of examples with one run at a time, or on a GPU with several runs at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import groupby

import torch
from torch import Tensor

from unbraid.accel.capture import supports_kernels
from unbraid.data.dataset import FactorData
from unbraid.distributions import Gaussian
from unbraid.runs.run import CHUNK, Run
from unbraid.runtime.progress import ignore_message

# Maximum number of runs encoded together. It limits the memory: 65,536 posteriors of 10 latents take 5 MB per run.
RUNS_PER_STACK = 64


@torch.no_grad()
def encode_table(
    run: Run, data: FactorData, index: Tensor, on_message: Callable[[str], None] = ignore_message
) -> Gaussian:
    """Compute the posteriors of the examples at `index`, in chunks. `on_message` is called with progress messages."""
    parts = []
    for i, part in enumerate(index.split(CHUNK)):
        on_message(f"encoded {i * CHUNK:,} of {len(index):,} examples of {run.label}")
        parts.append(run.net.encode(data.batch(part)))
    return Gaussian(torch.cat([q.mean for q in parts]), torch.cat([q.logvar for q in parts]))


@torch.no_grad()
def encode_stack(
    runs: Sequence[Run], data: FactorData, index: Tensor, on_message: Callable[[str], None] = ignore_message
) -> list[Gaussian]:
    """Compute the posteriors of the examples at `index` for several runs with the same `stacking_key`.

    Each chunk of examples is loaded once and encoded by all runs.
    """
    from unbraid.training.fused.encoder import StackEncoder

    encode = StackEncoder([run.net.encoder for run in runs], data.shape, runs[0].spec.precision)
    means, logvars = (torch.empty(len(runs), len(index), runs[0].spec.latents, device=data.device) for _ in range(2))
    for start in range(0, len(index), CHUNK):
        on_message(f"encoded {start:,} of {len(index):,} examples of {len(runs)} runs together")
        part = slice(start, start + CHUNK)
        means[:, part], logvars[:, part] = encode(data.batch(index[part])).chunk(2, -1)
    return [Gaussian(mean, logvar) for mean, logvar in zip(means, logvars, strict=True)]


def stacking_key(run: Run, data: FactorData) -> Hashable | None:
    """Return a key that is equal for runs that can be encoded together, or None if the run must be encoded alone."""
    if not supports_kernels(data.device) or run.spec.precision == "fp32":
        return None
    from unbraid.training.fused.networks import plan_encoder

    return None if plan_encoder(run.net.encoder, data.shape) is None else run.spec.stack_key()


def encode_tables(
    runs: Iterable[tuple[Run, FactorData, Tensor]], on_message: Callable[[str], None] = ignore_message
) -> Iterator[Gaussian]:
    """Yield the posteriors of each run, in order. Adjacent runs are encoded together where possible.

    Each entry of `runs` is a run, its dataset, and the indices of the examples to encode.
    """
    for key, group in groupby(runs, lambda item: (stacking_key(item[0], item[1]), id(item[1]), id(item[2]))):
        members = list(group)
        _, data, index = members[0]
        if key[0] is None:
            yield from (encode_table(run, data, index, on_message) for run, _, _ in members)
            continue
        for i in range(0, len(members), RUNS_PER_STACK):
            yield from encode_stack([run for run, _, _ in members[i : i + RUNS_PER_STACK]], data, index, on_message)
