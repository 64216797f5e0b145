"""Generators of documentation pages: tables and measured parts, from the registries and benchmarks/results."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks")]  # the law tables and the benchmarked cases
