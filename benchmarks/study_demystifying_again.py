"""The study of manipulated images once more, with ten seeds that it does not have.

From the repository root, for what docs/manipulated.md has of it:

    unbraid study benchmarks/study_demystifying_again.py --only level=1 --only method=beta_vae,beta_tcvae
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from unbraid.study.base import Planned
from unbraid.study.demystifying import SEEDS, demystifying2021


def study() -> Iterator[Planned]:
    """Every run of `demystifying2021` with seeds 10 to 19, numbered after those."""
    runs = list(demystifying2021())
    for run in runs:
        spec = dataclasses.replace(run.spec, seed=run.spec.seed + SEEDS)
        yield dataclasses.replace(run, index=run.index + len(runs), spec=spec)
