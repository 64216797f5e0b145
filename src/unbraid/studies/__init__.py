"""Studies: sets of runs that are planned, reduced, trained, scored and collected in one results table."""

from __future__ import annotations

from unbraid.studies.published import STUDIES

__all__ = ["STUDIES"]
