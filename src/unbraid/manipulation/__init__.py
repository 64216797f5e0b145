"""Manipulations: small changes of images under which VAEs prefer entangled representations.

`modify` learns a manipulation by adversarial training and writes it to a file. `measure_gap` measures how much worse
images can be reconstructed from rotated factors than from the factors themselves. `draw_comparison` draws original and
changed images.
Reference: Zietlow, Rolinek, Martius (2021), arXiv:2102.06822.
"""

from unbraid.manipulation.measure import measure_gap
from unbraid.manipulation.modification import modify
from unbraid.manipulation.picture import draw_comparison
from unbraid.manipulation.settings import ManipulationSettings

__all__ = ["ManipulationSettings", "draw_comparison", "measure_gap", "modify"]
