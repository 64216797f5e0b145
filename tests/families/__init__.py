"""Facts about every method, which the shared tests of methods use. There is one file per family of methods."""

from __future__ import annotations

from families.base import MethodFacts
from families.contrast import FACTS as CONTRAST
from families.curved import FACTS as CURVED
from families.gaussian import FACTS as GAUSSIAN
from families.pairs import FACTS as PAIRS
from families.plain import FACTS as PLAIN
from families.product import FACTS as PRODUCT
from families.supervised import FACTS as SUPERVISED
from families.warped import FACTS as WARPED

METHOD_FACTS: dict[str, MethodFacts] = {
    **PLAIN,
    **GAUSSIAN,
    **PAIRS,
    **CONTRAST,
    **PRODUCT,
    **CURVED,
    **WARPED,
    **SUPERVISED,
}
