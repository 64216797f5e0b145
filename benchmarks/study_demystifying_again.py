"""The study `demystifying2021` with ten other seeds.

Run: unbraid study benchmarks/study_demystifying_again.py
docs/guides/manipulated_results.md has the full command and the results.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from unbraid.studies.demystifying import SEEDS, demystifying2021
from unbraid.studies.planned import PlannedRun


def study() -> Iterator[PlannedRun]:
    """Every run of `demystifying2021` with seeds 10 to 19. The indices continue those of the study."""
    runs = list(demystifying2021())
    for run in runs:
        spec = dataclasses.replace(run.spec, seed=run.spec.seed + SEEDS)
        yield dataclasses.replace(run, index=run.index + len(runs), spec=spec)
