"""A remark about runs whose latents carry almost no information about the examples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unbraid.runs.run import Run

COLLAPSED_NATS = 0.1  # the KL of all latents together below which a posterior is practically the prior
COLLAPSE_ADVICE = "Train longer, or with a larger learning rate or a smaller weight of the KL."


def last_kl(run: Run) -> float:
    """Return the last logged KL of all latents of a run, or infinity if it diverged or has not logged the KL."""
    terms = run.spec.method.kl_terms
    if run.divergence or not run.log or not terms or not run.log[-1].keys() >= set(terms):
        return math.inf
    return sum(run.log[-1][term] for term in terms)


def collapse_notes(runs: Sequence[Run]) -> list[str]:
    """Return a sentence about the runs whose posterior is practically the prior, if there are any.

    These are the runs whose last logged KL is below `COLLAPSED_NATS`. Their codes carry almost no information about the
    examples. Runs that diverged or were not trained, and methods that do not log a KL, are not counted.
    """
    found = [run.label for run in runs if last_kl(run) < COLLAPSED_NATS]
    return [
        f"{len(found)} of {len(runs)} run(s) have a KL below {COLLAPSED_NATS} nats, so their codes carry almost no "
        f"information about the examples: {', '.join(found)}. {COLLAPSE_ADVICE}"
    ] * bool(found)
