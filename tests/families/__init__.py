"""What is known of each method, one file a family: `FAMILY` says it of every method of the registry."""

from __future__ import annotations

from families.base import Known
from families.contrast import KNOWN as CONTRAST
from families.curved import KNOWN as CURVED
from families.gaussian import KNOWN as GAUSSIAN
from families.pairs import KNOWN as PAIRS
from families.plain import KNOWN as PLAIN
from families.product import KNOWN as PRODUCT
from families.warped import KNOWN as WARPED

FAMILY: dict[str, Known] = {**PLAIN, **GAUSSIAN, **PAIRS, **CONTRAST, **PRODUCT, **CURVED, **WARPED}
