"""Methods whose code is a product of subspaces."""

from __future__ import annotations

from families.base import Known
from unbraid.methods.pmp import PMP

QUIET = PMP(subspaces=4, horizon=1e9)  # reconstruction alone, for the steps of a test
BARE = PMP(subspaces=4, horizon=1.0, distance=0.0, sparsity=0.0, consistency=0.0, regularisation=0.0)

KNOWN: dict[str, Known] = {"pmp": Known(PMP(subspaces=4, horizon=200.0), limits=[(QUIET, BARE)])}
