"""Contrastive methods, which have no decoder."""

from __future__ import annotations

from families.base import MethodFacts
from unbraid.methods.cl_ica import ClICA
from unbraid.methods.pcl import PCL

# The loss falls quickly with pairs that differ by one value. For other pairs, eight pairs per batch are too few.
FACTS: dict[str, MethodFacts] = {
    "pcl": MethodFacts(PCL(pairs="walk"), falling_term="loss"),
    "cl_ica": MethodFacts(ClICA(pairs="walk", temperature=0.3), falling_term="loss"),
}
