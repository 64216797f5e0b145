"""The VAEs that warp decoded images. Their special cases are tested in test_vitae."""

from __future__ import annotations

from families.base import MethodFacts
from unbraid.methods.vitae import CVITAE, UVITAE

FACTS: dict[str, MethodFacts] = {
    "u_vitae": MethodFacts(UVITAE(), images=True),
    "c_vitae": MethodFacts(CVITAE(), images=True),
}
