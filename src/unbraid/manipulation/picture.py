"""A picture of changed data: the original, the changed image, and their difference made visible."""

from __future__ import annotations

from pathlib import Path

import torch

from unbraid.data.manipulated import Changed
from unbraid.pictures.traversal import encode_picture, page
from unbraid.runtime.files import make_folder, write_atomic

EXAMPLES = 8
TIMES = 10


def compare(data: Changed, out: str | Path, examples: int = EXAMPLES) -> Path:
    """Write a PNG of examples spread over the data: original, changed, and the size of the difference times 10."""
    places = torch.linspace(0, 1, examples + 2, dtype=torch.float64)[1:-1]
    index = (places * (len(data) - 1)).round().long().to(data.device)
    before, after = data.base.batch(index).cpu(), data.batch(index).cpu()
    visible = (TIMES * (after - before).abs()).clamp(max=1)
    rows = [("original", list(before)), (f"changed\neps {getattr(data, 'eps', 0):g}", list(after))]
    rows.append((f"difference\nx {TIMES}", list(visible)))
    path = Path(out)
    make_folder(path.parent)
    write_atomic(path, encode_picture([page(rows, max(1, 64 // data.shape[1]))]))
    return path
