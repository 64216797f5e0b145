"""Codes of whole tables of examples: one run at a time, or on a GPU all runs of a kind at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import groupby

import torch
from torch import Tensor

from unbraid.accel.capture import kernels_on
from unbraid.data.dataset import FactorData
from unbraid.distributions import Gaussian
from unbraid.runs.run import CHUNK, Run

SIDE_BY_SIDE = 64  # runs whose posteriors are made together: 10 MB each for 65,536 rows of 10 codes


def _silent(note: str) -> None:
    """A note that goes nowhere."""


@torch.no_grad()
def encode_table(run: Run, data: FactorData, index: Tensor, tell: Callable[[str], None] = _silent) -> Gaussian:
    """The posteriors of the examples at `index`, in chunks."""
    parts = []
    for i, part in enumerate(index.split(CHUNK)):
        tell(f"encoded {i * CHUNK:,} of {len(index):,} examples of {run.label}")
        parts.append(run.net.encode(data.batch(part)))
    return Gaussian(torch.cat([q.mean for q in parts]), torch.cat([q.logvar for q in parts]))


@torch.no_grad()
def encode_stack(
    runs: Sequence[Run], data: FactorData, index: Tensor, tell: Callable[[str], None] = _silent
) -> list[Gaussian]:
    """The same for several runs of one kind (see `kind`): each chunk of examples is made once and read by all."""
    from unbraid.training.fused.encoder import StackEncoder

    encode = StackEncoder([run.net.encoder for run in runs], data.shape, runs[0].spec.precision)
    means, logvars = (torch.empty(len(runs), len(index), runs[0].spec.latents, device=data.device) for _ in range(2))
    for start in range(0, len(index), CHUNK):
        tell(f"encoded {start:,} of {len(index):,} examples of {len(runs)} runs together")
        part = slice(start, start + CHUNK)
        means[:, part], logvars[:, part] = encode(data.batch(index[part])).chunk(2, -1)
    return [Gaussian(mean, logvar) for mean, logvar in zip(means, logvars, strict=True)]


def kind(run: Run, data: FactorData) -> Hashable | None:
    """What runs must agree in to be encoded together, or None for a run that goes alone."""
    if not kernels_on(data.device) or run.spec.precision == "fp32":
        return None
    from unbraid.training.fused.networks import plan_encoder

    return None if plan_encoder(run.net.encoder, data.shape) is None else run.spec.stack_key()


def encode_tables(
    runs: Iterable[tuple[Run, FactorData, Tensor]], tell: Callable[[str], None] = _silent
) -> Iterator[Gaussian]:
    """The posteriors of runs in their order, those of neighbours that can go together made together."""
    for same, group in groupby(runs, lambda item: (kind(item[0], item[1]), id(item[1]), id(item[2]))):
        members = list(group)
        _, data, index = members[0]
        if same[0] is None:
            yield from (encode_table(run, data, index, tell) for run, _, _ in members)
            continue
        for i in range(0, len(members), SIDE_BY_SIDE):
            yield from encode_stack([run for run, _, _ in members[i : i + SIDE_BY_SIDE]], data, index, tell)
