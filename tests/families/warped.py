"""The VAEs that warp what they decode; their limits are in test_vitae."""

from __future__ import annotations

from families.base import Known
from unbraid.methods.vitae import CVITAE, UVITAE

KNOWN: dict[str, Known] = {
    "u_vitae": Known(UVITAE(), images=True),
    "c_vitae": Known(CVITAE(), images=True),
}
