"""Studies. A study is a set of runs that are trained and scored together and collected in one results table."""

from __future__ import annotations

from unbraid.studies.published import STUDIES

__all__ = ["STUDIES"]
