"""Methods whose latent space is a product of subspaces."""

from __future__ import annotations

from families.base import MethodFacts
from unbraid.methods.pmp import PMP

RECONSTRUCTION_ONLY = PMP(subspaces=4, horizon=1e9)  # a horizon beyond the steps of any test
NO_TERMS = PMP(subspaces=4, horizon=1.0, distance=0.0, sparsity=0.0, consistency=0.0, regularisation=0.0)

FACTS: dict[str, MethodFacts] = {
    "pmp": MethodFacts(PMP(subspaces=4, horizon=200.0), limits=[(RECONSTRUCTION_ONLY, NO_TERMS)])
}
