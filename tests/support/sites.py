"""The documentation site, built for a test."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def built(out: Path) -> Path:
    """The site in a folder; its generator lies beside the pages, not on the path."""
    sys.path.insert(0, str(DOCS))
    try:
        from build_site import build
    finally:
        sys.path.remove(str(DOCS))
    build(out)
    return out
