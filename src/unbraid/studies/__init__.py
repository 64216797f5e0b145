"""Studies: thousands of runs as one value, cut down, carried out, and read as one table."""

from __future__ import annotations

from unbraid.studies.published import STUDIES

__all__ = ["STUDIES"]
