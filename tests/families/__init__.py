"""What is known of each method, one file a family: `FAMILY` says it of every method of the registry."""

from __future__ import annotations

from families.base import Known
from families.gaussian import KNOWN as GAUSSIAN

FAMILY: dict[str, Known] = {**GAUSSIAN}
