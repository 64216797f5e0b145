"""Methods that learn by telling examples apart, without a decoder."""

from __future__ import annotations

from families.base import Known
from unbraid.methods.pcl import PCL

# Steps of one value are told from chance at once; with others eight pairs a batch are too few.
KNOWN: dict[str, Known] = {"pcl": Known(PCL(pairs="walk"), falls="loss")}
